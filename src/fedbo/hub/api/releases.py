"""Private releases: how they are made, and the ledger of what they cost."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection

from fedbo.hub import admin
from fedbo.hub.api.endpoint import Called, Resource
from fedbo.hub.api.federations import Name

resource = Resource("releases")

_LARGEST = 2**31 - 1


class ReleaseInfo(BaseModel):
    """A private release."""

    number: int = Field(description="From 1, in all epochs of the federation.")
    epoch: int
    time: float = Field(description="When it was made, in seconds since 1970.")
    members: int = Field(description="How many members' contributions are in it.")
    trials: int = Field(description="How many trials are behind these.")
    is_lost: bool = Field(
        description="Whether only its number is known, because the hub was restored from a backup."
    )


class ReleaseLedger(BaseModel):
    """The releases of a federation, what was planned, and what they cost."""

    epsilon: float = Field(description="ε that all planned releases cost each member, at most.")
    delta: float = Field(description="δ of this guarantee.")
    planned: int = Field(description="How many releases are planned, in all epochs together.")
    spent: float | None = Field(
        description="ε of the releases so far; null: the hub has no accountant installed."
    )
    contributed: int = Field(
        description="How many members have contributed from enough trials in the current epoch."
    )
    is_reconciled: bool = Field(description="false after a restore: no release can be made.")
    releases: list[ReleaseInfo]


class NewRelease(BaseModel):
    """Which release to make."""

    model_config = ConfigDict(extra="forbid")

    number: int | None = Field(
        default=None,
        ge=1,
        le=_LARGEST,
        description="The number that it should have; asking twice for one number makes one "
        "release. By default the next number.",
    )


class Reconciled(BaseModel):
    """How many releases are recorded."""

    model_config = ConfigDict(extra="forbid")

    releases: int = Field(
        ge=0,
        le=_LARGEST,
        description="The number of the last release that any member's ledger shows; 0: none.",
    )


@resource.endpoint("GET", "/v1/federations/{federation}/releases", "both", "no-privacy-plan")
async def releases(call: Called, federation: Name) -> ReleaseLedger:
    """Return the releases that were made, and what they cost each member."""
    found = await call.service.read(lambda connection: admin.ledger(connection, federation))
    return ReleaseLedger(
        epsilon=found.plan.epsilon,
        delta=found.plan.delta,
        planned=found.plan.releases,
        spent=found.spent,
        contributed=found.contributed,
        is_reconciled=found.is_reconciled,
        releases=[ReleaseInfo(**one._asdict()) for one in found.made],
    )


@resource.endpoint(
    "POST",
    "/v1/federations/{federation}/releases",
    "operator",
    "no-privacy-plan",
    "nothing-to-release",
    "release-made",
    "budget-spent",
    "not-reconciled",
    "no-release-key",
    status=201,
)
async def make_release(call: Called, federation: Name, body: NewRelease) -> ReleaseInfo:
    """Make a release from the contributions of the current epoch, with secret noise.

    What it costs is spent, and cannot be taken back.
    """
    service, number = call.service, body.number
    if number is None:
        number = await service.read(lambda there: admin.next_number(there, federation))
    agreed = await service.agreed(call.federation_id)
    await asyncio.to_thread(lambda: agreed.basis)  # not while others wait for the database

    def make(connection: Connection) -> admin.Made:
        return admin.make_release(
            connection, federation, actor=call.known.actor, number=number, keys=service.keys
        )

    made = await service.change(make, call.federation_id)
    return ReleaseInfo(**made._asdict())


@resource.endpoint(
    "POST", "/v1/federations/{federation}/releases/reconcile", "operator", "no-privacy-plan"
)
async def reconcile(call: Called, federation: Name, body: Reconciled) -> Reconciled:
    """Record releases made after the backup from which this hub was restored.

    They count as spent. From then on, releases can be made again.
    """

    def put(connection: Connection) -> None:
        admin.reconcile(connection, federation, body.releases, actor=call.known.actor)

    await call.service.change(put, call.federation_id)
    return body
