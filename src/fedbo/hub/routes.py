"""The API of a hub, beside its messages: what members and those who are invited may do.

Whoever runs the hub works on its database, with `fedbo hub` on its machine.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import Response, StreamingResponse

from fedbo.exchange.hub.proof import Statement, change, hashed
from fedbo.exchange.hub.wire import (
    Enrolled,
    FederationFile,
    NewKey,
    NewMember,
    NewToken,
    Nonce,
    Secrets,
)
from fedbo.hub import store
from fedbo.hub.access import AnyMember, BoundedRoute, Running
from fedbo.hub.problems import Refused
from fedbo.hub.service import Service
from fedbo.hub.store.audit import LOOKED_AT, as_json
from fedbo.message.signed import key_text, parse_key
from fedbo.version import __version__

LINES_TYPE = "application/x-ndjson"

router = APIRouter(route_class=BoundedRoute)
_HERE = "/v1/federations/{federation}"

Name = Annotated[str, Path(description="The name of the federation at the hub.", max_length=63)]


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


@router.get(_HERE, tags=["federations"])
def federation(service: Running, caller: AnyMember, federation: Name) -> FederationFile:
    """Return the file of a federation."""
    with service.reading() as connection:
        row = store.find_federation(connection, federation)
    return FederationFile(row.name, row.file)


# Invitations


@router.post("/v1/invitations/open", tags=["invitations"])
def open_invitation(service: Running, body: Secrets) -> FederationFile:
    """Tell what an invitation is for; it is not used up by this."""
    row = _invited(service, body.secret)
    if body.name is not None and body.name != row.name:
        raise Refused("not-invited", "the invitation is for another federation of this hub")
    return FederationFile(row.name, row.file)


# Members


@router.post("/v1/members", tags=["members"], status_code=201)
def enrol(service: Running, body: NewMember) -> Enrolled:
    """Become a member of the federation that an invitation is for."""
    row = _invited(service, body.secret)
    shared = row.name, row.agreed.fingerprint, body.name, hashed(body.secret)
    key = _parsed(body.key)
    _check_proof(key, body.proof, Statement("enrol", *shared))
    with service.writing() as connection:
        return store.enrol(connection, body.secret, body.name, key)


@router.delete(_HERE + "/member", tags=["member"], status_code=204)
def leave(service: Running, caller: AnyMember, federation: Name) -> None:
    """Leave the federation: everything that the hub has of the member is deleted."""
    with service.writing() as connection:
        store.leave(connection, caller)


@router.post(_HERE + "/member/token", tags=["member"], status_code=201)
def rotate(service: Running, caller: AnyMember, federation: Name) -> NewToken:
    """Get a new token, which is shown once; the old one is no longer valid."""
    with service.writing() as connection:
        return NewToken(store.rotate(connection, caller))


@router.post(_HERE + "/member/key", tags=["member"], status_code=201)
def begin_rekey(service: Running, caller: AnyMember, federation: Name) -> Nonce:
    """Get a nonce for a change of the key, in place of an earlier one."""
    with service.writing() as connection:
        return Nonce(store.new_nonce(connection, caller).hex())


@router.put(_HERE + "/member/key", tags=["member"], status_code=204)
def rekey(service: Running, caller: AnyMember, federation: Name, body: NewKey) -> None:
    """Use another key. Messages signed with the old one are taken back.

    The old key signs this too, over both keys and the nonce: neither who has only the token nor who
    has seen an earlier change can take the member's place.
    """
    fingerprint = service.agreed(caller.federation).fingerprint
    new = _parsed(body.key)

    def prove(nonce: bytes) -> None:
        shared = federation, fingerprint, caller.name, change(caller.key, new, nonce)
        for key, proof in ((new, body.proof), (caller.key, body.old_proof)):
            _check_proof(key, proof, Statement("rekey", *shared))

    with service.writing() as connection:
        store.rekey(connection, caller, new, prove)


def _invited(service: Service, secret: str) -> store.FederationRow:
    """Return the federation that an invitation is for."""
    with service.reading() as connection:
        return store.open_invitation(connection, secret).federation


def _parsed(text: str) -> bytes:
    try:
        return parse_key(text)
    except ValueError as error:
        raise Refused("wrong-key", str(error)) from None


def _check_proof(key: bytes, proof: str, statement: Statement) -> None:
    """Raise `Refused` unless a member has proved that it has the private key of a key."""
    if not statement.is_signed(key, proof):
        given = "is wrong" if proof else "is missing"
        raise Refused(
            "wrong-signature",
            f"the proof that you have the private key of {key_text(key)} {given}: enrol with fedbo "
            "join, or change the key with fedbo hub rekey, on the machine that has this key. If it "
            "is lost, ask the operator to remove the member, and join again",
        )


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
