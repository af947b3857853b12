"""The API of a hub for messages: what agents publish and fetch."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fedbo.errors import MessageRefused
from fedbo.exchange.hub.wire import MEDIA_TYPE, Outcome, Wanted
from fedbo.federation.federation import Federation
from fedbo.hub import store
from fedbo.hub.access import AnyMember, BoundedRoute, Running, read_body
from fedbo.hub.problems import Refused
from fedbo.hub.routes import Name
from fedbo.hub.service import Service
from fedbo.hub.store import Caller
from fedbo.message import Message, Release, Withdrawal
from fedbo.message.signed import SENDER_BYTES, key_text, member
from fedbo.outside import shortened
from fedbo.trust import verify

router = APIRouter(prefix="/v1/federations/{federation}", route_class=BoundedRoute)

SenderName = Annotated[
    str, Query(max_length=SENDER_BYTES, description="The agent: MEMBER or MEMBER/ANYTHING.")
]
_WANTED_BYTES = 1024
_PIECE = 2**16  # bytes of a large answer that are sent at once
_READ = 60.0  # seconds in which a large answer must be read
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_BODY = {"requestBody": {"required": True, "content": {MEDIA_TYPE: _BINARY}}}
_PACKED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "`News`, or a `Listing`, in MessagePack.",
        "content": {MEDIA_TYPE: _BINARY},
    }
}
_wanted = msgspec.msgpack.Decoder(Wanted)


async def _published(request: Request, service: Running, caller: AnyMember) -> bytes:
    agreed = await run_in_threadpool(service.agreed, caller.federation)
    return await read_body(request, agreed.most_bytes)


async def _asked(request: Request, caller: AnyMember) -> bytes:
    return await read_body(request, _WANTED_BYTES)


@router.put("/messages", tags=["messages"], openapi_extra=_BODY)
def publish(
    service: Running,
    caller: AnyMember,
    federation: Name,
    body: Annotated[bytes, Depends(_published)],
) -> Outcome:
    """Publish a message of an agent, or its signed withdrawal, as its sender encoded it.

    An older message never replaces a newer one; the same message again changes nothing. In a
    federation with a privacy plan, messages are contributions, which nobody else can fetch.
    """
    signed = _signed(caller, service.agreed(caller.federation), body)
    with service.writing() as connection:
        return Outcome(store.publish(connection, caller, signed, body))


@router.post(
    "/fetch",
    tags=["messages"],
    responses=_PACKED,
    response_class=Response,
    openapi_extra=_BODY,
)
async def fetch(
    service: Running,
    caller: AnyMember,
    federation: Name,
    body: Annotated[bytes, Depends(_asked)],
) -> Response:
    """Return what has changed since the member last asked (`Wanted` in MessagePack).

    Of more than 1,024 messages, the latest are handed out. In a federation with a privacy plan, its
    latest release is handed out, and nothing else.
    """
    try:
        wanted = _wanted.decode(body)
    except (ValueError, RecursionError) as error:
        reason = shortened(str(error), 200)
        raise Refused("wrong-request", f"the body is not what a fetch asks for: {reason}") from None

    def compose() -> Packed:
        if store.is_seen_anew(caller):
            with service.writing() as connection:
                store.note_seen(connection, caller)
        with service.reading() as connection:
            return Packed(
                service, caller, store.fetch(connection, caller.federation, wanted.cursor)
            )

    return await service.compose(compose)


@router.get("/messages", tags=["messages"], responses=_PACKED, response_class=Response)
async def messages(
    service: Running, caller: AnyMember, federation: Name, sender: SenderName | None = None
) -> Response:
    """List the messages that are handed out: of one's own agent, or of anyone.

    Of anyone, at most 1,024: one's own, and those that were changed last. In a federation with a
    privacy plan: one's own contributions, and the latest release.
    """
    if sender is not None:
        _check_sender(caller, sender)

    def compose() -> Packed:
        with service.reading() as connection:
            return Packed(service, caller, store.listed(connection, caller, sender))

    return await service.compose(compose)


def _signed(caller: Caller, agreed: Federation, content: bytes) -> Message | Withdrawal:
    """Read what a member publishes, and check that it is the member's and fits the federation."""
    try:
        signed = agreed.read(content)
        if isinstance(signed, Release):
            raise MessageRefused("it is a private release, which only the hub itself makes")
        _check_sender(caller, signed.sender)
        _check_key(caller, signed)
        if agreed.privacy is not None:  # this hub hears the contributions
            from fedbo.federation.shared import Shared  # loads the models, for releases only

            Shared.of(agreed).check(signed)
        return signed
    except MessageRefused as error:
        raise Refused("wrong-message", shortened(str(error), 500)) from None


def _check_key(caller: Caller, signed: Message | Withdrawal) -> None:
    if signed.key != caller.key:
        given = f"signed with {signed.signer}" if signed.key else "not signed"
        raise Refused(
            "wrong-key",
            f"it is {given}, but {caller.name!r} is enrolled with another key: sign it with "
            f"{key_text(caller.key)}, or change the member's key at the hub",
        )
    try:
        verify(signed)
    except MessageRefused as error:
        raise Refused("wrong-signature", str(error)) from None


def _check_sender(caller: Caller, sender: str) -> None:
    if member(sender) != caller.name:
        raise Refused(
            "wrong-sender",
            f"the sender is {shortened(sender)!r}, expected {caller.name!r} or a name that starts "
            f"with {caller.name + '/'!r}",
        )


class Packed(Response):
    """An answer in MessagePack. A large one is sent in pieces, as fast as the member reads them.

    Of large answers there is room for only so much, and a member reads one at a time.
    """

    media_type = MEDIA_TYPE

    def __init__(self, service: Service, caller: Caller, answer: object) -> None:
        super().__init__(msgspec.msgpack.encode(answer))
        self._room, self._member = service.answers, caller.id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = len(self.body)
        if size <= _PIECE:
            await super().__call__(scope, receive, send)
            return
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        with self._room.hold(size, self._member):
            try:
                async with asyncio.timeout(_READ):
                    await send(start)
                    for begin in range(0, size, _PIECE):
                        piece = self.body[begin : begin + _PIECE]
                        is_last = begin + _PIECE >= size
                        await send(
                            {"type": "http.response.body", "body": piece, "more_body": not is_last}
                        )
            except TimeoutError:  # the server closes the connection
                raise ClientDisconnect from None
