"""Progress: what a site may tell the page, if it wants to."""

from __future__ import annotations

import time
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection, delete, func, insert, select

from fedbo.exchange.hub.wire import MOST_TRIALS as MOST_SAVED
from fedbo.hub import admin, schema
from fedbo.hub.api.endpoint import Called, Resource
from fedbo.hub.api.federations import Name
from fedbo.hub.api.member import check_token
from fedbo.hub.api.messages import SenderName, check_sender
from fedbo.hub.problems import Refused
from fedbo.message.signed import (
    COUNTER_LIMITS,
    MOST_AGENTS,
    SENDER_BYTES,
    MessageRefused,
    check_origin,
)

resource = Resource("progress")

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Progress(BaseModel):
    """How far an agent is."""

    model_config = ConfigDict(extra="forbid")

    sender: str = Field(max_length=SENDER_BYTES)
    trials: int = Field(ge=0, le=COUNTER_LIMITS["t_n"], description="How many it has made.")
    best: Finite | None = Field(default=None, description="Its best score.")
    saved: Finite | None = Field(
        default=None, ge=-MOST_SAVED, le=MOST_SAVED, description="Its estimate of trials saved."
    )


class Forgotten(BaseModel):
    """Whether there was any progress to forget."""

    was_there: bool


@resource.endpoint(
    "PUT",
    "/v1/federations/{federation}/progress",
    "member",
    "wrong-sender",
    "too-many-agents",
    "private-federation",
)
async def report(call: Called, federation: Name, body: Progress) -> Progress:
    """Report how far an agent is, for the page; everyone in the federation can see it.

    Not in a federation with a privacy plan, which does not cover it.
    """
    caller = call.known
    if (await call.service.agreed(call.federation_id)).privacy is not None:
        raise Refused(
            "private-federation",
            "a best score says something about trials, and so does an estimate of trials saved; "
            "the privacy plan of this federation does not cover them: report no progress",
        )
    check_sender(caller, body.sender)
    try:
        check_origin(bytes(16), body.sender)
    except MessageRefused as error:
        raise Refused("wrong-request", str(error)) from None

    def put(connection: Connection) -> None:
        check_token(connection, caller)
        row = schema.progress.c
        own = (row.federation == caller.federation) & (row.member == caller.id)
        others = select(func.count()).where(own, row.sender != body.sender)
        if (connection.scalar(others) or 0) >= MOST_AGENTS:
            raise Refused(
                "too-many-agents",
                f"{MOST_AGENTS} agents of {caller.name!r} report already, and no more may",
            )
        here = own & (row.sender == body.sender)
        found = connection.execute(select(row.trials, row.best, row.saved).where(here)).first()
        if found is not None and tuple(found) == (body.trials, body.best, body.saved):
            return
        connection.execute(delete(schema.progress).where(here))
        values = body.model_dump() | {
            "federation": caller.federation,
            "member": caller.id,
            "changed": time.time(),
        }
        connection.execute(insert(schema.progress).values(values))
        admin.record(
            connection,
            "reported",
            actor=caller.actor,
            federation=federation,
            subject=body.sender,
            detail={"trials": body.trials},
        )

    await call.service.change(put, call.federation_id)
    return body


@resource.endpoint("DELETE", "/v1/federations/{federation}/progress", "member", "wrong-sender")
async def forget_progress(call: Called, federation: Name, sender: SenderName) -> Forgotten:
    """Forget what an agent reported."""
    caller = call.known
    check_sender(caller, sender)

    def forget(connection: Connection) -> bool:
        check_token(connection, caller)
        row = schema.progress.c
        own = (row.member == caller.id) & (row.sender == sender)
        if not connection.execute(delete(schema.progress).where(own)).rowcount:
            return False
        admin.record(
            connection,
            "reported",
            actor=caller.actor,
            federation=federation,
            subject=sender,
            detail={"forgotten": True},
        )
        return True

    return Forgotten(was_there=await call.service.change(forget, call.federation_id))
