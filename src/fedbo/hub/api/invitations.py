"""Invitations to a federation."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection
from starlette.requests import Request

from fedbo.hub import admin
from fedbo.hub.admin.invitations import MOST_DAYS, MOST_USES
from fedbo.hub.api.endpoint import Call, Called, Resource
from fedbo.hub.api.federations import Name
from fedbo.hub.problems import Refused

resource = Resource("invitations")

Secret = Annotated[str, Field(max_length=64, description="The last part of the invitation.")]


class Secrets(BaseModel):
    """What proves that one is invited."""

    model_config = ConfigDict(extra="forbid")

    secret: Secret
    name: str | None = Field(default=None, description="The federation of the invitation.")


class OpenedInvitation(BaseModel):
    """What an invitation is for."""

    federation: str
    epoch: int
    file: str = Field(description="The federation file (TOML).")


class NewInvitation(BaseModel):
    """An invitation to make."""

    model_config = ConfigDict(extra="forbid")

    uses: int = Field(default=10, ge=1, le=MOST_USES, description="How many members can enrol.")
    days: float = Field(default=14.0, gt=0.0, le=MOST_DAYS, description="For how many days.")


class MadeInvitation(BaseModel):
    """An invitation, shown once."""

    id: int
    invitation: str
    uses: int
    expires: float


class InvitationInfo(BaseModel):
    """An invitation, without its secret."""

    id: int
    uses: int = Field(description="How many members can still enrol.")
    expires: float
    created: float


class Dropped(BaseModel):
    """An invitation that was taken back."""

    id: int


@resource.endpoint("POST", "/v1/invitations/open", "invited", "not-invited")
async def open_invitation(call: Called, request: Request, body: Secrets) -> OpenedInvitation:
    """Tell what an invitation is for; it is not used up by this."""

    def opened(connection: Connection) -> OpenedInvitation:
        here, _ = admin.open_invitation(connection, body.secret)
        if body.name is not None and body.name != here.name:
            text = "the invitation is for another federation of this hub"
            raise Refused("not-invited", text, federation=here.name)
        file = admin.epoch_file(connection, here.id, here.epoch).file
        return OpenedInvitation(federation=here.name, epoch=here.epoch, file=file)

    try:
        found = await call.service.read(opened)
    except Refused as refused:
        count_failure(call, request, refused)
        raise
    call.record.federation = found.federation
    return found


@resource.endpoint("POST", "/v1/federations/{federation}/invitations", "operator", status=201)
async def invite(call: Called, federation: Name, body: NewInvitation) -> MadeInvitation:
    """Make an invitation, which is shown once."""
    made = await call.service.change(
        lambda connection: admin.invite(
            connection, federation, uses=body.uses, days=body.days, actor=call.known.actor
        ),
        call.federation_id,
    )
    return MadeInvitation(**made._asdict() | {"invitation": str(made.invitation)})


@resource.endpoint("GET", "/v1/federations/{federation}/invitations", "operator")
async def invitations(call: Called, federation: Name) -> list[InvitationInfo]:
    """List the invitations that can still be used, without their secrets."""
    found = await call.service.read(lambda connection: admin.invitations(connection, federation))
    return [
        InvitationInfo(id=one.id, uses=one.uses, expires=one.expires, created=one.created)
        for one in found
    ]


@resource.endpoint("DELETE", "/v1/federations/{federation}/invitations", "operator", "not-found")
async def drop_invitation(
    call: Called, federation: Name, id: Annotated[int, Query(ge=1, le=2**31 - 1)]
) -> Dropped:
    """Take an invitation back. Members that enrolled with it stay."""
    await call.service.change(
        lambda connection: admin.drop_invitation(
            connection, federation, id, actor=call.known.actor
        ),
        call.federation_id,
    )
    return Dropped(id=id)


def count_failure(call: Call, request: Request, refused: Refused) -> None:
    """Count a wrong invitation as a failed log-in.

    Args:
        call: The call.
        request: Its request.
        refused: Why it failed.
    """
    if refused.slug == "not-invited":
        call.service.auth.failed(request)
