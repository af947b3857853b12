"""What a member may do about itself."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection, select

from fedbo.exchange.hub.proof import Statement
from fedbo.hub import admin, schema
from fedbo.hub.api.endpoint import Called, Resource
from fedbo.hub.api.federations import Name
from fedbo.hub.api.members import (
    MemberInfo,
    MemberName,
    Proof,
    check_proof,
    public_key,
    shown,
)
from fedbo.hub.auth import Caller
from fedbo.hub.problems import Refused
from fedbo.message.signed import key_text

resource = Resource("member")


class Token(BaseModel):
    """A new token, shown once."""

    token: str


class Key(BaseModel):
    """The public key of a member."""

    key: str | None = Field(
        max_length=64, description="As fedbo identity show prints it; null: messages are unsigned."
    )


class NewKey(Key):
    """Another public key, and the proof that the member has its private key."""

    model_config = ConfigDict(extra="forbid")

    proof: Proof = ""


@resource.endpoint("GET", "/v1/federations/{federation}/member", "member")
async def member(call: Called, federation: Name) -> MemberInfo:
    """Return what the hub has of the member that asks."""
    number = call.known.id

    def find(connection: Connection) -> MemberInfo:
        found = admin.members(connection, federation, after=number - 1, most=1)
        if not found or found[0].id != number:
            raise Refused("wrong-token", "the member has left, or was removed")
        return shown(found[0])

    return await call.service.read(find)


@resource.endpoint("DELETE", "/v1/federations/{federation}/member", "member")
async def leave(call: Called, federation: Name) -> MemberName:
    """Leave the federation: everything that the hub has of the member is deleted."""
    caller = call.known

    def leave(connection: Connection) -> None:
        check_token(connection, caller)
        admin.leave(connection, caller.id)

    await call.service.change(leave, call.federation_id)
    call.service.auth.forget(caller.token)
    return MemberName(name=caller.name)


@resource.endpoint("POST", "/v1/federations/{federation}/member/token", "member", status=201)
async def rotate(call: Called, federation: Name) -> Token:
    """Get a new token, which is shown once; the old one is no longer valid."""
    caller = call.known

    def rotate(connection: Connection) -> str:
        check_token(connection, caller)
        return admin.rotate(connection, caller.id)

    token = await call.service.change(rotate, call.federation_id)
    call.service.auth.forget(caller.token)
    return Token(token=token)


@resource.endpoint(
    "PUT",
    "/v1/federations/{federation}/member/key",
    "member",
    "wrong-key",
    "wrong-name",
    "wrong-signature",
)
async def rekey(call: Called, federation: Name, body: NewKey) -> Key:
    """Use another key. Messages signed with the old one are taken back."""
    caller, key = call.known, None if body.key is None else public_key(body.key)
    if key is not None:
        agreed = await call.service.agreed(call.federation_id)
        shared = federation, agreed.fingerprint, caller.name, caller.token
        check_proof(Statement("rekey", *shared), key, body.proof)

    def rekey(connection: Connection) -> None:
        check_token(connection, caller)
        admin.rekey(connection, caller.id, key)

    await call.service.change(rekey, call.federation_id)
    call.service.auth.forget(caller.token)
    return Key(key=None if key is None else key_text(key))


def check_token(connection: Connection, caller: Caller) -> None:
    """Raise `Refused` if a member's token has been changed or revoked in the last second.

    Args:
        connection: In the transaction that changes something.
        caller: The member.
    """
    row = schema.member.c
    if connection.scalar(select(row.token).where(row.id == caller.id)) != caller.token:
        raise Refused("wrong-token", "the token is no longer valid")
