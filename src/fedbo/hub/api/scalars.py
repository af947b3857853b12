"""Scalars: the hyper-parameters that agents share to agree on a new epoch."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from fastapi import Query
from pydantic import BaseModel
from sqlalchemy import Connection, delete, func, insert, select
from starlette.requests import Request
from starlette.responses import Response

from fedbo.exchange.hub.wire import MEDIA_TYPE
from fedbo.federation import Scalars
from fedbo.hub import admin, schema
from fedbo.hub.api.endpoint import Called, Resource
from fedbo.hub.api.federations import EpochNumber, Name
from fedbo.hub.api.member import check_token
from fedbo.hub.api.messages import check_sender
from fedbo.hub.limits import read_body
from fedbo.hub.problems import Refused
from fedbo.message import Fingerprint, MessageRefused
from fedbo.message.signed import MOST_AGENTS
from fedbo.outside import shortened

resource = Resource("scalars")

_MOST_BYTES = 64 * 1024
_MOST_SHARED = 4096  # that one answer has
_BINARY = {"schema": {"type": "string", "format": "binary"}}


class Shared(BaseModel):
    """The epoch that scalars were taken for."""

    epoch: int


@resource.endpoint(
    "PUT",
    "/v1/federations/{federation}/scalars",
    "member",
    "wrong-message",
    "wrong-sender",
    "wrong-epoch",
    "too-many-agents",
    "private-federation",
    extra={"requestBody": {"required": True, "content": {MEDIA_TYPE: _BINARY}}},
)
async def share(call: Called, request: Request, federation: Name) -> Shared:
    """Share the scalars of an agent (`Scalars.encode`), in place of its earlier ones.

    Not in a federation with a privacy plan, which does not cover them.
    """
    caller = call.known
    agreed = await call.service.agreed(call.federation_id)
    if agreed.privacy is not None:
        raise Refused(
            "private-federation",
            "scalars are fitted to trials, and the privacy plan of this federation does not cover "
            "them: nothing but contributions leaves a member",
        )
    content = await read_body(request, _MOST_BYTES)
    try:
        given = Scalars.decode(content)
    except MessageRefused as error:
        raise Refused("wrong-message", shortened(str(error), 500)) from None
    check_sender(caller, given.sender)
    try:
        given.check(agreed.fingerprint, agreed.space.dimensions)
    except MessageRefused as error:
        raise Refused("wrong-message", shortened(str(error), 500)) from None

    def put(connection: Connection) -> int:
        check_token(connection, caller)
        epoch = _epoch(connection, caller.federation, given.fingerprint)
        row = schema.scalars.c
        there = (row.federation == caller.federation) & (row.epoch == epoch)
        count = select(func.count()).where(
            there, row.member == caller.id, row.sender != given.sender
        )
        if (connection.scalar(count) or 0) >= MOST_AGENTS:
            raise Refused(
                "too-many-agents",
                f"{MOST_AGENTS} agents of {caller.name!r} share scalars already, and no more may",
            )
        connection.execute(delete(schema.scalars).where(there, row.sender == given.sender))
        values = {
            "federation": caller.federation,
            "member": caller.id,
            "epoch": epoch,
            "sender": given.sender,
            "content": given.encode(),
            "changed": time.time(),
        }
        connection.execute(insert(schema.scalars).values(values))
        admin.record(
            connection,
            "shared",
            actor=caller.actor,
            federation=federation,
            subject=given.sender,
            detail={"epoch": epoch, "bytes": len(content)},
        )
        return epoch

    return Shared(epoch=await call.service.change(put, call.federation_id))


@resource.endpoint(
    "GET",
    "/v1/federations/{federation}/scalars",
    "member",
    answers={
        "description": "Scalars as they were shared: a MessagePack array of byte strings.",
        "content": {MEDIA_TYPE: _BINARY},
    },
    cost=5,
)
async def shared(
    call: Called,
    federation: Name,
    epoch: Annotated[EpochNumber | None, Query(description="The current one by default.")] = None,
) -> Response:
    """Return the scalars that agents share in an epoch: the latest, and at most 4,096."""

    def find(connection: Connection) -> list[bytes]:
        number = epoch
        if number is None:
            number = admin.find_federation(connection, call.federation_id).epoch
        row = schema.scalars.c
        here = row.federation == call.federation_id, row.epoch == number
        found = select(row.content).where(*here).order_by(row.changed.desc(), row.id)
        return [bytes(one) for one in connection.scalars(found.limit(_MOST_SHARED))]

    return Response(msgspec.msgpack.encode(await call.service.read(find)), media_type=MEDIA_TYPE)


def _epoch(connection: Connection, federation: int, fingerprint: bytes) -> int:
    """Return the latest epoch with this fingerprint; `Refused` if there is none."""
    row = schema.epoch.c
    same = row.federation == federation, row.fingerprint == bytes(fingerprint)
    found = connection.scalar(select(func.max(row.number)).where(*same))
    if found is None:
        raise Refused(
            "wrong-epoch",
            f"the scalars are for {Fingerprint(fingerprint)}, which no epoch of the federation has",
        )
    return int(found)
