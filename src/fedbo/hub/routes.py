"""The API of a hub, beside its messages: what members and those who are invited may do.

Whoever runs the hub works on its database, with `fedbo hub` on its machine.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import Response, StreamingResponse

from fedbo.exchange.hub.proof import PROOF_DIGITS, Statement, hashed
from fedbo.hub import store
from fedbo.hub.access import AnyMember, BoundedRoute, Running
from fedbo.hub.problems import Refused
from fedbo.hub.records import Enrolled
from fedbo.hub.service import Service
from fedbo.hub.store.audit import LOOKED_AT, as_json
from fedbo.message.signed import key_text, parse_key
from fedbo.version import __version__

LINES_TYPE = "application/x-ndjson"

router = APIRouter(route_class=BoundedRoute)
_HERE = "/v1/federations/{federation}"

Name = Annotated[str, Path(description="The name of the federation at the hub.", max_length=63)]
Secret = Annotated[str, Field(max_length=64, description="The last part of the invitation.")]
Proof = Annotated[
    str,
    Field(
        max_length=PROOF_DIGITS,
        description="The key's signature of a `Statement` (fedbo.exchange.hub.proof), in "
        "hexadecimal digits: that the member has the private key.",
    ),
]
PublicKey = Annotated[
    str | None,
    Field(
        max_length=64,
        description="The public key that signs the member's messages, as fedbo identity show "
        "prints it; null: they are not signed.",
    ),
]


class Question(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid")


# The hub itself


class Well(BaseModel):
    """That the hub and its database answer."""

    version: str = __version__


@router.get("/healthz", tags=["hub"])
def healthz(service: Running) -> Well:
    """Tell that the hub answers, and its database too."""
    try:
        with service.reading() as connection:
            store.check_version(connection, "the database")
    except SQLAlchemyError:
        raise Refused("not-ready", "the database does not answer", 5) from None
    except store.HubError as error:
        raise Refused("not-ready", str(error), 60) from None
    return Well()


# Federations


class FederationFile(BaseModel):
    """What the agents of a federation agree on."""

    federation: str
    file: str = Field(description="The federation file (TOML).")


@router.get(_HERE, tags=["federations"])
def federation(service: Running, caller: AnyMember, federation: Name) -> FederationFile:
    """Return the file of a federation."""
    with service.reading() as connection:
        row = store.find_federation(connection, federation)
    return FederationFile(federation=row.name, file=row.file)


# Invitations


class Secrets(Question):
    """What proves that one is invited."""

    secret: Secret
    name: str | None = Field(default=None, description="The federation of the invitation.")


@router.post("/v1/invitations/open", tags=["invitations"])
def open_invitation(service: Running, body: Secrets) -> FederationFile:
    """Tell what an invitation is for; it is not used up by this."""
    row = _invited(service, body.secret)
    if body.name is not None and body.name != row.name:
        raise Refused("not-invited", "the invitation is for another federation of this hub")
    return FederationFile(federation=row.name, file=row.file)


# Members


class NewMember(Question):
    """Who wants to enrol."""

    secret: Secret
    name: str = Field(max_length=64, description="The name of the member.")
    key: PublicKey = None
    proof: Proof = ""


class Token(BaseModel):
    """A new token, shown once."""

    token: str


class NewKey(Question):
    """Another public key, and the proofs that the member has its private key, and the old one."""

    key: PublicKey
    proof: Proof = ""
    old_proof: Proof = ""


@router.post("/v1/members", tags=["members"], status_code=201)
def enrol(service: Running, body: NewMember) -> Enrolled:
    """Become a member of the federation that an invitation is for."""
    row = _invited(service, body.secret)
    shared = row.name, row.agreed.fingerprint, body.name, hashed(body.secret)
    key = _proved(body.key, body.proof, Statement("enrol", *shared))
    with service.writing() as connection:
        return store.enrol(connection, body.secret, body.name, key)


@router.delete(_HERE + "/member", tags=["member"], status_code=204)
def leave(service: Running, caller: AnyMember, federation: Name) -> None:
    """Leave the federation: everything that the hub has of the member is deleted."""
    with service.writing() as connection:
        store.leave(connection, caller)


@router.post(_HERE + "/member/token", tags=["member"], status_code=201)
def rotate(service: Running, caller: AnyMember, federation: Name) -> Token:
    """Get a new token, which is shown once; the old one is no longer valid."""
    with service.writing() as connection:
        return Token(token=store.rotate(connection, caller))


@router.put(_HERE + "/member/key", tags=["member"], status_code=204)
def rekey(service: Running, caller: AnyMember, federation: Name, body: NewKey) -> None:
    """Use another key. Messages signed with the old one are taken back.

    A member with a key signs this with it too: who has only the token cannot take its place.
    """
    fingerprint = service.agreed(caller.federation).fingerprint
    shared = federation, fingerprint, caller.name, caller.token
    statement = Statement("rekey", *shared)
    key = _proved(body.key, body.proof, statement)
    if caller.key:
        _proved(key_text(caller.key), body.old_proof, statement)
    with service.writing() as connection:
        store.rekey(connection, caller, key)


def _invited(service: Service, secret: str) -> store.FederationRow:
    """Return the federation that an invitation is for."""
    with service.reading() as connection:
        return store.open_invitation(connection, secret).federation


def _proved(text: str | None, proof: str, statement: Statement) -> bytes | None:
    """Return a member's key; `Refused` unless the member has proved that it has it."""
    if text is None:
        return None
    try:
        key = parse_key(text)
    except ValueError as error:
        raise Refused("wrong-key", str(error)) from None
    if not statement.is_signed(key, proof):
        given = "is wrong" if proof else "is missing"
        raise Refused(
            "wrong-signature",
            f"the proof that you have the private key of {key_text(key)} {given}: enrol with fedbo "
            "join, or change the key with fedbo hub rekey, on the machine that has this key. If it "
            "is lost, ask the operator to remove the member, and join again",
        )
    return key


# The audit log

_LINES: dict[int | str, dict[str, Any]] = {
    200: {"description": "One JSON object in each line.", "content": {LINES_TYPE: {}}}
}


@router.get(_HERE + "/audit", tags=["audit"], responses=_LINES, response_class=Response)
def audit(service: Running, caller: AnyMember, federation: Name) -> Response:
    """Export what the audit log says of the member, in the federation's latest 5,000 lines."""
    with service.reading() as connection:
        own = store.latest_lines(connection, federation, LOOKED_AT, member_id=caller.id)
    lines = map(as_json, reversed(own))
    headers = {"content-disposition": f'attachment; filename="{federation}-audit.jsonl"'}
    return StreamingResponse(lines, media_type=LINES_TYPE, headers=headers)
