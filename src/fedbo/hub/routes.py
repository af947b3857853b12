"""The API of a hub, beside its messages: federations, invitations, members, releases, the log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import Response, StreamingResponse

from fedbo.exchange.hub.proof import PROOF_DIGITS, Statement, hashed
from fedbo.federation.federation import Federation
from fedbo.hub import store
from fedbo.hub.access import (
    FILE_BYTES,
    AnyMember,
    Anyone,
    AnyOperator,
    BoundedRoute,
    Noted,
    Running,
)
from fedbo.hub.names import wanted_subject
from fedbo.hub.problems import Refused
from fedbo.hub.records import (
    Enrolled,
    FederationFile,
    FederationInfo,
    Member,
    NewInvitation,
    OpenInvitation,
    ReleaseInfo,
    ReleaseLedger,
)
from fedbo.hub.store.federations import MOST_DAYS, MOST_USES
from fedbo.hub.telemetry import METRICS_TYPE
from fedbo.message.signed import key_text, parse_key

LINES_TYPE = "application/x-ndjson"
_PAGE = 1000  # members at once
_LARGEST = 2**31 - 1

router = APIRouter(route_class=BoundedRoute)
_HERE = "/v1/federations/{federation}"

Name = Annotated[str, Path(description="The name of the federation at the hub.", max_length=63)]
Secret = Annotated[str, Field(max_length=64, description="The last part of the invitation.")]
File = Annotated[str, Field(max_length=FILE_BYTES, description="The federation file (TOML).")]
Number = Annotated[int, Query(ge=1, le=_LARGEST)]
Proof = Annotated[
    str,
    Field(
        max_length=PROOF_DIGITS,
        description="The key's signature of a `Statement` (fedbo.exchange.hub.proof), in "
        "hexadecimal digits: that the member has the private key.",
    ),
]


class Question(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid")


# The hub itself


class HubInfo(BaseModel):
    """What a hub says about itself."""

    name: Literal["fedbo hub"] = "fedbo hub"
    version: str
    time: float


class Well(BaseModel):
    """That all is well."""

    status: Literal["ok"] = "ok"


@router.get("/v1/hub", tags=["hub"])
async def hub() -> HubInfo:
    """Tell that this is a hub, its version and its time."""
    from fedbo.version import __version__

    return HubInfo(version=__version__, time=time.time())


@router.get("/healthz", tags=["hub"])
async def healthz() -> Well:
    """Tell that the process answers."""
    return Well()


@router.get("/readyz", tags=["hub"])
def readyz(service: Running) -> Well:
    """Tell that the database answers too."""
    try:
        with service.reading() as connection:
            store.check_version(connection, "the database")
    except SQLAlchemyError:
        raise Refused("not-ready", "the database does not answer", 5) from None
    except store.HubError as error:
        raise Refused("not-ready", str(error), 60) from None
    return Well()


@router.get("/metrics", tags=["hub"], response_class=Response)
def metrics(service: Running, caller: AnyOperator) -> Response:
    """Return numbers for Prometheus."""
    with service.reading() as connection:
        counts = store.counts(connection)
    headers = {"cache-control": "no-store"}
    return Response(service.metrics.render(counts), media_type=METRICS_TYPE, headers=headers)


# Federations


class NewFederation(Question):
    """A federation to create."""

    name: str = Field(description="1 to 63 small letters, digits and hyphens.", max_length=63)
    file: File


class NewFile(Question):
    """A federation file with another list of members."""

    file: File


@router.get("/v1/federations", tags=["federations"])
def federations(service: Running, caller: Anyone) -> list[FederationInfo]:
    """List the federations: all for an operator, its own for a member."""
    with service.reading() as connection:
        rows = store.federations(connection)
    return [row for row in rows if caller.is_operator or row.name == caller.federation_name]


@router.post(
    "/v1/federations",
    tags=["federations"],
    status_code=201,
)
def create_federation(service: Running, caller: AnyOperator, body: NewFederation) -> FederationFile:
    """Create a federation."""
    agreed = _parsed(body.file)
    with service.writing(caller) as connection:
        return store.create_federation(connection, body.name, agreed, actor=caller.actor)


@router.get(_HERE, tags=["federations"])
def federation(service: Running, caller: Anyone, federation: Name) -> FederationFile:
    """Return a federation with its file."""
    with service.reading() as connection:
        return store.federation_file(connection, federation)


@router.put(_HERE, tags=["federations"])
def update_federation(
    service: Running, caller: AnyOperator, federation: Name, body: NewFile
) -> FederationFile:
    """Replace the file of a federation by one with another list of members."""
    agreed = _parsed(body.file)
    with service.writing(caller) as connection:
        return store.update_federation(connection, federation, agreed, actor=caller.actor)


def _parsed(file: str) -> Federation:
    try:
        return Federation.from_toml(file)
    except (ValueError, TypeError, RecursionError) as error:
        raise Refused("wrong-federation", f"the federation file: {error}") from None


# Invitations


class Secrets(Question):
    """What proves that one is invited."""

    secret: Secret
    name: str | None = Field(default=None, description="The federation of the invitation.")


class Opened(BaseModel):
    """What an invitation is for."""

    federation: str
    file: str = Field(description="The federation file (TOML).")


class Uses(Question):
    """An invitation to make."""

    uses: int = Field(default=10, ge=1, le=MOST_USES, description="How many members can enrol.")
    days: float = Field(default=14.0, gt=0.0, le=MOST_DAYS, description="For how many days.")


class Dropped(BaseModel):
    """An invitation that was taken back."""

    id: int


@router.post("/v1/invitations/open", tags=["invitations"])
def open_invitation(service: Running, entry: Noted, body: Secrets) -> Opened:
    """Tell what an invitation is for; it is not used up by this."""
    with _counting(service, entry), service.reading() as connection:
        row = store.open_invitation(connection, body.secret).federation
        entry.federation = row.name
        if body.name is not None and body.name != row.name:
            raise Refused("not-invited", "the invitation is for another federation of this hub")
        return Opened(federation=row.name, file=row.file)


@router.post(_HERE + "/invitations", tags=["invitations"], status_code=201)
def invite(service: Running, caller: AnyOperator, federation: Name, body: Uses) -> NewInvitation:
    """Make an invitation, which is shown once."""
    with service.writing(caller) as connection:
        return store.invite(
            connection, federation, uses=body.uses, days=body.days, actor=caller.actor
        )


@router.get(_HERE + "/invitations", tags=["invitations"])
def invitations(service: Running, caller: AnyOperator, federation: Name) -> list[OpenInvitation]:
    """List the invitations that can still be used, without their secrets."""
    with service.reading() as connection:
        return store.invitations(connection, federation)


@router.delete(_HERE + "/invitations", tags=["invitations"])
def drop_invitation(service: Running, caller: AnyOperator, federation: Name, id: Number) -> Dropped:
    """Take an invitation back. Members that enrolled with it stay."""
    with service.writing(caller) as connection:
        store.drop_invitation(connection, federation, id, actor=caller.actor)
    return Dropped(id=id)


@contextmanager
def _counting(service: Running, entry: Noted) -> Iterator[None]:
    """Count a wrong invitation as a failure of the address."""
    try:
        yield
    except Refused as refused:
        if refused.slug == "not-invited":
            service.count_failure(entry.address)
        raise


# Members


class NewMember(Question):
    """Who wants to enrol."""

    secret: Secret
    name: str = Field(max_length=64, description="The name of the member.")
    key: str | None = Field(
        default=None,
        max_length=64,
        description="The public key that signs its messages, as fedbo identity show prints it.",
    )
    proof: Proof = ""


class MemberName(Question):
    """The name of a member."""

    name: str = Field(max_length=64)


class Token(BaseModel):
    """A new token, shown once."""

    token: str


class Key(BaseModel):
    """The public key of a member."""

    key: str | None = Field(
        max_length=64, description="As fedbo identity show prints it; null: messages are unsigned."
    )


class NewKey(Key, Question):
    """Another public key, and the proof that the member has its private key."""

    proof: Proof = ""


@router.post(
    "/v1/members",
    tags=["members"],
    status_code=201,
)
def enrol(service: Running, entry: Noted, body: NewMember) -> Enrolled:
    """Become a member of the federation that an invitation is for."""
    entry.subject = wanted_subject(body.name)
    with _counting(service, entry):
        with service.reading() as connection:
            row = store.open_invitation(connection, body.secret).federation
        entry.federation = row.name
        key = None if body.key is None else _public_key(body.key)
        if key is not None:
            shared = row.name, row.agreed.fingerprint, body.name, hashed(body.secret)
            _check_proof(Statement("enrol", *shared), key, body.proof)
        with service.writing() as connection:
            return store.enrol(connection, body.secret, body.name, key)


@router.get(_HERE + "/members", tags=["members"])
def members(
    service: Running,
    caller: Anyone,
    federation: Name,
    after: Annotated[int, Query(ge=0, le=2**62, description="Only larger ids.")] = 0,
    most: Annotated[int, Query(ge=1, le=_PAGE, description="At most so many.")] = _PAGE,
) -> list[Member]:
    """List the members in the order in which they joined."""
    with service.reading() as connection:
        return store.members(connection, federation, after=after, most=most).rows


@router.delete(_HERE + "/members", tags=["members"])
def remove_member(
    service: Running,
    caller: AnyOperator,
    federation: Name,
    name: Annotated[str, Query(max_length=64)],
) -> MemberName:
    """Remove a member: what the hub has of it is deleted, and its name is free."""
    with service.writing(caller) as connection:
        store.remove(connection, federation, name, actor=caller.actor)
    return MemberName(name=name)


@router.post(_HERE + "/members/revoke", tags=["members"])
def revoke_member(
    service: Running, caller: AnyOperator, federation: Name, body: MemberName
) -> MemberName:
    """Revoke a member's token and delete what the hub has of it. Its name stays taken."""
    with service.writing(caller) as connection:
        store.revoke(connection, federation, body.name, actor=caller.actor)
    return body


@router.get(_HERE + "/member", tags=["member"])
def member(service: Running, caller: AnyMember, federation: Name) -> Member:
    """Return what the hub has of the member that asks."""
    with service.reading() as connection:
        found = store.members(connection, federation, after=caller.id - 1, most=1).rows
    if not found or found[0].id != caller.id:
        raise Refused("wrong-token", "the member has left, or was removed")
    return found[0]


@router.delete(_HERE + "/member", tags=["member"])
def leave(service: Running, caller: AnyMember, federation: Name) -> MemberName:
    """Leave the federation: everything that the hub has of the member is deleted."""
    with service.writing() as connection:
        store.leave(connection, caller)
    return MemberName(name=caller.name)


@router.post(_HERE + "/member/token", tags=["member"], status_code=201)
def rotate(service: Running, caller: AnyMember, federation: Name) -> Token:
    """Get a new token, which is shown once; the old one is no longer valid."""
    with service.writing() as connection:
        return Token(token=store.rotate(connection, caller))


@router.put(_HERE + "/member/key", tags=["member"])
def rekey(service: Running, caller: AnyMember, federation: Name, body: NewKey) -> Key:
    """Use another key. Messages signed with the old one are taken back."""
    key = None if body.key is None else _public_key(body.key)
    if key is not None:
        fingerprint = service.agreed(caller.federation).fingerprint
        shared = federation, fingerprint, caller.name, caller.token
        _check_proof(Statement("rekey", *shared), key, body.proof)
    with service.writing() as connection:
        store.rekey(connection, caller, key)
    return Key(key=None if key is None else key_text(key))


def _public_key(text: str) -> bytes:
    try:
        return parse_key(text)
    except ValueError as error:
        raise Refused("wrong-key", str(error)) from None


def _check_proof(statement: Statement, key: bytes, proof: str) -> None:
    """Raise `Refused` unless a member has proved that it has a private key."""
    if not statement.is_signed(key, proof):
        given = "is wrong" if proof else "is missing"
        raise Refused(
            "wrong-signature",
            f"the proof that you have the private key of {key_text(key)} {given}: enrol with fedbo "
            "join, or change the key with fedbo hub rekey, on the machine that has this key",
        )


# Private releases


class NewRelease(Question):
    """Which release to make."""

    number: int | None = Field(
        default=None,
        ge=1,
        le=_LARGEST,
        description="The number that it should have; asking twice for one number makes one "
        "release. By default the next number.",
    )


class Reconciled(Question):
    """How many releases are recorded."""

    releases: int = Field(
        ge=0,
        le=_LARGEST,
        description="The number of the last release that any member's ledger shows; 0: none.",
    )


@router.get(_HERE + "/releases", tags=["releases"])
def releases(service: Running, caller: Anyone, federation: Name) -> ReleaseLedger:
    """Return the releases that were made, and what they cost each member."""
    with service.reading() as connection:
        return store.ledger(connection, federation)


@router.post(
    _HERE + "/releases",
    tags=["releases"],
    status_code=201,
)
def make_release(
    service: Running, caller: AnyOperator, federation: Name, body: NewRelease
) -> ReleaseInfo:
    """Make a release from the contributions of the members, with secret noise.

    What it costs is spent, and cannot be taken back.
    """
    with service.reading() as connection:
        number = body.number or store.next_number(connection, federation)
        agreed = store.find_federation(connection, federation).agreed
    if agreed.privacy is not None:
        agreed.basis  # noqa: B018 (computed here, not while others wait)
    with service.writing(caller) as connection:
        return store.make_release(
            connection, federation, actor=caller.actor, number=number, keys=service.keys
        )


@router.post(_HERE + "/releases/reconcile", tags=["releases"])
def reconcile(
    service: Running, caller: AnyOperator, federation: Name, body: Reconciled
) -> Reconciled:
    """Record releases made after the backup from which this hub was restored.

    They count as spent. From then on, releases can be made again.
    """
    with service.writing(caller) as connection:
        store.reconcile(connection, federation, body.releases, actor=caller.actor)
    return body


# The audit log

_LINES: dict[int | str, dict[str, Any]] = {
    200: {"description": "One JSON object in each line.", "content": {LINES_TYPE: {}}}
}


@router.get(_HERE + "/audit", tags=["audit"], responses=_LINES, response_class=Response)
def federation_audit(service: Running, caller: Anyone, federation: Name) -> Response:
    """Export the audit log of a federation; a member gets only the lines about itself."""
    with service.reading() as connection:
        if caller.is_operator:
            store.find_federation(connection, federation)
            own: dict[str, Any] = {}
        else:
            joined = store.find_member(connection, federation, caller.name).joined
            own = {"member": caller.name, "since": joined}
    lines = store.audit_lines(service.engine, federation, **own)
    return _streamed(lines, f"{federation}-audit.jsonl")


@router.get("/v1/audit", tags=["audit"], responses=_LINES, response_class=Response)
def hub_audit(service: Running, caller: AnyOperator) -> Response:
    """Export the audit log of the whole hub."""
    return _streamed(store.audit_lines(service.engine), "hub-audit.jsonl")


def _streamed(lines: Iterator[str], name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(lines, media_type=LINES_TYPE, headers=headers)
