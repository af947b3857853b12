"""Federations: what their agents agree on, and in which epoch they are."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection, func, select

from fedbo.federation import Federation
from fedbo.hub import admin, schema
from fedbo.hub.api.endpoint import Call, Called, Resource
from fedbo.hub.limits import FILE_BYTES
from fedbo.hub.problems import Refused
from fedbo.message.signed import COUNTER_LIMITS

resource = Resource("federations")

Name = Annotated[str, Path(description="The name of the federation at the hub.")]
EpochNumber = Annotated[int, Query(ge=0, le=COUNTER_LIMITS["epoch"])]


class FederationInfo(BaseModel):
    """A federation at this hub."""

    name: str
    epoch: int = Field(description="The current epoch.")
    fingerprint: str = Field(description="Of the current epoch, in hexadecimal digits.")
    members: int = Field(description="How many members it has.")
    messages: int = Field(description="How many messages it hands out, in all epochs.")
    created: float


class FederationFile(BaseModel):
    """A federation, and the federation file of one of its epochs."""

    name: str
    epoch: int = Field(description="The epoch of the file.")
    current: int = Field(description="The current epoch.")
    fingerprint: str = Field(description="Of the epoch of the file, in hexadecimal digits.")
    file: str = Field(description="The federation file (TOML).")
    members: int = Field(description="How many members it has.")
    created: float


class NewFederation(BaseModel):
    """A federation to create."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(description="1 to 63 small letters, digits and hyphens.", max_length=63)
    file: str = Field(description="The federation file (TOML).", max_length=FILE_BYTES)


class NewEpoch(BaseModel):
    """The federation file of a later epoch."""

    model_config = ConfigDict(extra="forbid")

    file: str = Field(description="The federation file (TOML).", max_length=FILE_BYTES)


@resource.endpoint("GET", "/v1/federations", "both")
async def federations(call: Called) -> list[FederationInfo]:
    """List the federations: all for an operator, its own for a member."""
    found = await call.service.read(admin.federations)
    caller = call.known
    return [
        FederationInfo(**one._asdict() | {"fingerprint": one.fingerprint.hex()})
        for one in found
        if caller.is_operator or one.id == caller.federation
    ]


@resource.endpoint(
    "POST",
    "/v1/federations",
    "operator",
    "wrong-name",
    "name-taken",
    "wrong-federation",
    status=201,
    most=2 * FILE_BYTES,
)
async def create_federation(call: Called, body: NewFederation) -> FederationFile:
    """Create a federation."""
    agreed = await parsed(body.file)

    def create(connection: Connection) -> FederationFile:
        admin.create_federation(connection, body.name, agreed, actor=call.known.actor)
        return _file(connection, body.name, None)

    return await call.service.change(create)


@resource.endpoint("GET", "/v1/federations/{federation}", "both", "wrong-epoch")
async def federation(
    call: Called, federation: Name, epoch: EpochNumber | None = None
) -> FederationFile:
    """Return a federation with its file, of the current epoch or of another."""
    return await call.service.read(lambda connection: _file(connection, federation, epoch))


@resource.endpoint(
    "POST",
    "/v1/federations/{federation}/epochs",
    "operator",
    "wrong-federation",
    status=201,
    most=2 * FILE_BYTES,
)
async def add_epoch(call: Called, federation: Name, body: NewEpoch) -> FederationFile:
    """Start a later epoch, or change the list of members of the current one."""
    agreed = await parsed(body.file)

    def add(connection: Connection) -> FederationFile:
        admin.add_epoch(connection, federation, agreed, actor=call.known.actor)
        return _file(connection, federation, None)

    return await call.service.change(add, call.federation_id)


async def parsed(file: str) -> Federation:
    """Read a federation file; `Refused` if it cannot be used.

    Args:
        file: Its text.
    """
    try:
        return await asyncio.to_thread(Federation.from_toml, file)
    except (ValueError, TypeError, RecursionError) as error:
        raise Refused("wrong-federation", f"the federation file: {error}") from None


def _file(connection: Connection, name: str, epoch: int | None) -> FederationFile:
    here = admin.find_federation(connection, name)
    found = admin.epoch_file(connection, here.id, here.epoch if epoch is None else epoch)
    row = schema.member.c
    members = select(func.count()).where(row.federation == here.id, row.token.is_not(None))
    return FederationFile(
        name=here.name,
        epoch=found.number,
        current=here.epoch,
        fingerprint=found.fingerprint.hex(),
        file=found.file,
        members=connection.scalar(members) or 0,
        created=here.created,
    )


__all__ = ["Call", "EpochNumber", "Name", "parsed", "resource"]
