"""Members of a federation, as others see them: how they enrol, and what an operator may do."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection
from starlette.requests import Request

from fedbo.exchange.hub.proof import PROOF_DIGITS, Statement
from fedbo.hub import admin
from fedbo.hub.admin.names import wanted_subject
from fedbo.hub.api.endpoint import Called, Resource
from fedbo.hub.api.federations import Name
from fedbo.hub.api.invitations import Secret, count_failure
from fedbo.hub.problems import Refused
from fedbo.hub.tokens import digest
from fedbo.message.signed import key_text, parse_key

resource = Resource("members")

Proof = Annotated[
    str,
    Field(
        max_length=PROOF_DIGITS,
        description="The key's signature of a `Statement` (fedbo.exchange.hub.proof), in "
        "hexadecimal digits: that the member has the private key.",
    ),
]
_PAGE = 1000  # members at once


class NewMember(BaseModel):
    """Who wants to enrol."""

    model_config = ConfigDict(extra="forbid")

    secret: Secret
    name: str = Field(max_length=64, description="The name of the member.")
    key: str | None = Field(
        default=None,
        max_length=64,
        description="The public key that signs its messages, as fedbo identity show prints it.",
    )
    proof: Proof = ""


class EnrolledMember(BaseModel):
    """A new member and its token, shown once."""

    federation: str
    member: str
    token: str
    epoch: int
    file: str = Field(description="The federation file (TOML).")


class MemberInfo(BaseModel):
    """A member and what the hub has of it."""

    id: int
    name: str
    key: str = Field(description="Its public key; empty if its messages are not signed.")
    joined: float
    seen: float
    is_revoked: bool
    agents: int = Field(description="Its agents whose messages are handed out.")
    messages: int
    bytes: int = Field(description="Of these messages.")
    trials: int = Field(description="Observations behind these messages.")


class MemberName(BaseModel):
    """The name of a member."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=64)


@resource.endpoint(
    "POST",
    "/v1/members",
    "invited",
    "not-invited",
    "wrong-name",
    "name-taken",
    "wrong-key",
    "wrong-signature",
    status=201,
)
async def enrol(call: Called, request: Request, body: NewMember) -> EnrolledMember:
    """Become a member of the federation that an invitation is for."""
    call.record.subject = wanted_subject(body.name)
    try:
        here, _ = await call.service.read(
            lambda connection: admin.open_invitation(connection, body.secret)
        )
        call.record.federation = here.name
        key = None if body.key is None else public_key(body.key)
        if key is not None:
            agreed = await call.service.agreed(here.id)
            shared = here.name, agreed.fingerprint, body.name, digest(body.secret)
            check_proof(Statement("enrol", *shared), key, body.proof)
        made = await call.service.change(
            lambda connection: admin.enrol(connection, body.secret, body.name, key), here.id
        )
    except Refused as refused:
        count_failure(call, request, refused)
        raise
    return EnrolledMember(
        federation=made.federation.name,
        member=made.member.name,
        token=made.token,
        epoch=made.federation.epoch,
        file=made.file,
    )


@resource.endpoint("GET", "/v1/federations/{federation}/members", "both", cost=5)
async def members(
    call: Called,
    federation: Name,
    after: Annotated[int, Query(ge=0, le=2**62, description="Only larger ids.")] = 0,
    most: Annotated[int, Query(ge=1, le=_PAGE, description="At most so many.")] = _PAGE,
) -> list[MemberInfo]:
    """List the members in the order in which they joined."""
    found = await call.service.read(
        lambda connection: admin.members(connection, federation, after=after, most=most)
    )
    return [shown(one) for one in found]


@resource.endpoint("DELETE", "/v1/federations/{federation}/members", "operator", "not-found")
async def remove_member(
    call: Called, federation: Name, name: Annotated[str, Query(max_length=64)]
) -> MemberName:
    """Remove a member: what the hub has of it is deleted, and its name is free."""

    def remove(connection: Connection) -> None:
        admin.remove(connection, federation, name, actor=call.known.actor)

    await call.service.change(remove, call.federation_id)
    return MemberName(name=name)


@resource.endpoint("POST", "/v1/federations/{federation}/members/revoke", "operator", "not-found")
async def revoke_member(call: Called, federation: Name, body: MemberName) -> MemberName:
    """Revoke a member's token and delete what the hub has of it. Its name stays taken."""

    def revoke(connection: Connection) -> None:
        admin.revoke(connection, federation, body.name, actor=call.known.actor)

    await call.service.change(revoke, call.federation_id)
    return MemberName(name=body.name)


def public_key(text: str) -> bytes:
    """Read a public key; `Refused` if it is not one.

    Args:
        text: As `fedbo.message.signed.key_text` writes it.
    """
    try:
        return parse_key(text)
    except ValueError as error:
        raise Refused("wrong-key", str(error)) from None


def check_proof(statement: Statement, key: bytes, proof: str) -> None:
    """Raise `Refused` unless a member has proved that it has a private key.

    Args:
        statement: What the member has to sign.
        key: The public key.
        proof: The signature that it sent.
    """
    if not statement.is_signed(key, proof):
        given = "is wrong" if proof else "is missing"
        raise Refused(
            "wrong-signature",
            f"the proof that you have the private key of {key_text(key)} {given}: enrol with fedbo "
            "join, or change the key with fedbo hub rekey, on the machine that has this key",
        )


def shown(found: admin.MemberInfo) -> MemberInfo:
    """Return a member as the API shows it.

    Args:
        found: What the database has.
    """
    return MemberInfo(**found._asdict() | {"key": key_text(found.key) if found.key else ""})
