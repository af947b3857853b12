"""Messages: what agents publish and fetch. These endpoints are used most, so they are plain."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import zstandard
from fastapi import Query
from pydantic import BaseModel, Field
from sqlalchemy import Connection, Engine, func, select, update
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fedbo.exchange.choice import most_bytes
from fedbo.exchange.hub.wire import ANSWER_BYTES, MEDIA_TYPE, MOST_PEERS, Wanted
from fedbo.hub import admin, schema
from fedbo.hub.api.endpoint import Call, Called, Resource
from fedbo.hub.api.federations import EpochNumber, Name
from fedbo.hub.api.member import check_token
from fedbo.hub.auth import Caller
from fedbo.hub.limits import read_body
from fedbo.hub.problems import Refused
from fedbo.hub.shell import PIECE
from fedbo.identity import verify
from fedbo.message import Message, MessageRefused, Release, Withdrawal, read
from fedbo.message.signed import SENDER_BYTES, key_text, member
from fedbo.outside import shortened

resource = Resource("messages")

SenderName = Annotated[
    str, Query(max_length=SENDER_BYTES, description="The agent: MEMBER or MEMBER/ANYTHING.")
]
_LARGE = 2**18  # bytes: from here on, work is done in a thread
_WANTED_BYTES = 1024
_PATIENCE, _SLOWEST = 30.0, 128 * 1024  # seconds, and bytes a second, to take a large answer
_WORTH = 512  # bytes: smaller answers are not compressed
_JSON = "application/json"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_wanted = msgspec.msgpack.Decoder(Wanted)
_msgpack = msgspec.msgpack.Encoder()
#: Weights are random numbers: four times the work would save another 6 %.
_quick = zstandard.ZstdCompressor(level=-5)
_OUT, _NOT_OUT = b'{"out":true}', b'{"out":false}'


class Withdrawn(BaseModel):
    """That an agent's messages are not handed out."""

    out: bool = False
    was_out: bool = Field(description="Whether there was a message to withdraw.")


@resource.endpoint(
    "PUT",
    "/v1/federations/{federation}/messages",
    "member",
    "wrong-message",
    "wrong-sender",
    "wrong-key",
    "wrong-signature",
    "wrong-epoch",
    "too-many-agents",
    extra={"requestBody": {"required": True, "content": {MEDIA_TYPE: _BINARY}}},
    answers={
        "description": "Whether the hub now hands out exactly this message.",
        "content": {
            _JSON: {
                "schema": {
                    "type": "object",
                    "properties": {"out": {"type": "boolean"}, "was_out": {"type": "boolean"}},
                    "required": ["out"],
                }
            }
        },
    },
    is_plain=True,
)
async def publish(call: Called, request: Request) -> Response:
    """Publish a message of an agent, or its signed withdrawal, as fedbo encodes them.

    An older message never replaces a newer one; the same message again changes nothing. In a
    federation with a privacy plan, messages are contributions, which nobody else can fetch.
    """
    agreed = await call.service.agreed(call.federation_id)
    most = most_bytes(agreed.sent_bytes)  # members send no releases
    with call.service.room.hold(call.known.id) as hold:
        content = await read_body(request, most, hold)
        call.record.received = len(content)
        return await _publish(call, content)


async def _publish(call: Call, content: bytes) -> Response:
    service, caller = call.service, call.known
    if len(content) < _LARGE:
        signed = decoded(caller, content)
    else:
        signed = await asyncio.to_thread(decoded, caller, content)
    agreed = await service.agreed(call.federation_id, signed.epoch)
    if len(content) < _LARGE:
        check(agreed, signed)
    else:
        await asyncio.to_thread(check, agreed, signed)
    is_out = await service.writer.publish(caller, signed, content)
    if isinstance(signed, Withdrawal):
        return Response(Withdrawn(was_out=is_out).model_dump_json(), media_type=_JSON)
    if is_out:
        service.metrics.published()
    return Response(_OUT if is_out else _NOT_OUT, media_type=_JSON)


@resource.endpoint(
    "POST",
    "/v1/federations/{federation}/fetch",
    "member",
    "wrong-epoch",
    extra={"requestBody": {"required": True, "content": {MEDIA_TYPE: _BINARY}}},
    answers={
        "description": "What has changed: `News` in MessagePack, compressed with zstd if accepted.",
        "content": {MEDIA_TYPE: _BINARY},
    },
    is_plain=True,
)
async def fetch(call: Called, request: Request) -> Response:
    """Return what has changed since the member last asked (`Wanted` in MessagePack).

    Of more than 1,024 messages, the member's own and a random sample of the others are handed out.
    In a federation with a privacy plan, its latest release is handed out, and nothing else.
    """
    caller = call.known
    body = await read_body(request, _WANTED_BYTES)
    call.record.received = len(body)
    try:
        wanted = _wanted.decode(body)
    except (ValueError, RecursionError) as error:
        raise Refused(
            "wrong-request", f"the body is not what a fetch asks for: {shortened(str(error), 200)}"
        ) from None
    news = await call.service.feeds.news(call.federation_id, caller.id, wanted)
    size = sum(len(one.content) for one in news.handed)
    if size < PIECE:
        return packed(request, news)
    return Large(call, request, size, lambda: news)


@resource.endpoint(
    "GET",
    "/v1/federations/{federation}/messages",
    "member",
    "wrong-sender",
    answers={
        "description": "When each was published, and the message: MessagePack arrays.",
        "content": {MEDIA_TYPE: _BINARY},
    },
    cost=5,
)
async def messages(
    call: Called, request: Request, federation: Name, sender: SenderName | None = None
) -> Response:
    """List the messages that are handed out, in all epochs: of one's own agent, or of anyone.

    Of anyone, at most 1,024: one's own, and those that were changed last. In any case at most
    128 MiB. In a federation with a privacy plan: one's own contributions, and the latest release.
    """
    row = schema.message.c
    is_private = (await call.service.agreed(call.federation_id)).privacy is not None
    found = select(row.id, func.length(row.content)).where(row.is_out)
    if sender is None:
        here = row.federation == call.federation_id
        is_own = row.member == call.known.id
        found = found.where(here & is_own if is_private else here)
        found = found.order_by(is_own.desc(), row.cursor.desc()).limit(MOST_PEERS)
    else:
        check_sender(call.known, sender)
        own = row.member == call.known.id, row.sender == sender
        found = found.where(*own).order_by(row.epoch.desc())
    numbers, size = [], 0
    for number, length in await call.service.read(lambda there: there.execute(found).all()):
        if (size := size + length) > ANSWER_BYTES:
            break
        numbers.append(number)
    engine, number = call.service.engine, call.federation_id

    def find() -> list[tuple[float, bytes]]:
        released = _released(engine, number) if is_private and sender is None else []
        return [*_listed(engine, numbers), *released]

    return Large(call, request, min(size, ANSWER_BYTES), find)


def _released(engine: Engine, federation: int) -> list[tuple[float, bytes]]:
    """Return when the latest release was made, and the release; nothing if there is none."""
    row = schema.release.c
    query = select(row.time, row.content).where(
        row.federation == federation, row.content.is_not(None)
    )
    with engine.connect() as connection:
        found = connection.execute(query.order_by(row.sequence.desc()).limit(1)).all()
    return [(one.time, bytes(one.content)) for one in found]


def _listed(engine: Engine, numbers: list[int]) -> list[tuple[float, bytes]]:
    """Return when messages were published, and the messages."""
    row = schema.message.c
    query = select(row.id, row.changed, row.content).where(row.id.in_(numbers), row.is_out)
    with engine.connect() as connection:
        found = {one.id: (one.changed, bytes(one.content)) for one in connection.execute(query)}
    return [found[number] for number in numbers if number in found]


@resource.endpoint(
    "DELETE", "/v1/federations/{federation}/messages", "member", "wrong-sender", "wrong-key"
)
async def withdraw(
    call: Called, federation: Name, sender: SenderName, epoch: EpochNumber | None = None
) -> Withdrawn:
    """Withdraw the messages of an agent, in one epoch or in all of them.

    Only if they are not signed: signed messages are withdrawn by a signed withdrawal.
    """
    caller = call.known
    check_sender(caller, sender)
    if caller.key:
        raise Refused(
            "wrong-key",
            f"the messages of {caller.name!r} are signed with {key_text(caller.key)}: publish a "
            "withdrawal that is signed with it",
        )

    def take_back(connection: Connection) -> bool:
        check_token(connection, caller)
        row = schema.message.c
        own = [row.member == caller.id, row.sender == sender, row.is_out]
        own += [] if epoch is None else [row.epoch == epoch]
        rows = connection.execute(select(row.id, row.epoch, row.sequence).where(*own)).all()
        if not rows:
            return False
        cursors = admin.take_cursors(connection, caller.federation, len(rows))
        for found, cursor in zip(rows, cursors, strict=True):
            gone = {"is_out": False, "content": b"", "t_n": 0, "cursor": cursor}
            change = update(schema.message).where(row.id == found.id)
            connection.execute(change.values(gone | {"changed": time.time()}))
            admin.record(
                connection,
                "withdrew",
                actor=caller.actor,
                federation=federation,
                subject=sender,
                detail={"epoch": found.epoch, "sequence": found.sequence},
            )
        return True

    return Withdrawn(was_out=await call.service.change(take_back, call.federation_id))


def decoded(caller: Caller, content: bytes) -> Message | Withdrawal:
    """Read what a member publishes, and check that it is the member's.

    Args:
        caller: The member.
        content: What it sent.

    Raises:
        Refused: If it is not a message or a withdrawal, or not from this member.
    """
    try:
        signed = read(content)
    except MessageRefused as error:
        raise Refused("wrong-message", shortened(str(error), 500)) from None
    if isinstance(signed, Release):
        raise Refused("wrong-message", "it is a private release, which only the hub itself makes")
    check_sender(caller, signed.sender)
    if signed.key != caller.key:
        given = f"signed with {signed.signer}" if signed.key else "not signed"
        expected = f"sign it with {key_text(caller.key)}" if caller.key else "do not sign it"
        raise Refused(
            "wrong-key",
            f"it is {given}, but {caller.name!r} is enrolled "
            f"{'with another key' if caller.key else 'without a key'}: {expected}, or change the "
            "member's key at the hub",
        )
    if signed.key:
        try:
            verify(signed)
        except MessageRefused as error:
            raise Refused("wrong-signature", str(error)) from None
    return signed


def check(agreed: Any, signed: Message | Withdrawal) -> None:
    """Check that a message or a withdrawal fits its federation.

    Args:
        agreed: The federation in its epoch.
        signed: What was published.

    Raises:
        Refused: If it does not fit; the text says why.
    """
    try:
        if isinstance(signed, Message):
            agreed.check(signed)
        elif fault := agreed.fingerprint.mismatch(signed.fingerprint, same_epoch=True):
            raise MessageRefused(f"withdrawal {signed.sequence} of {signed.sender!r}: {fault}")
    except MessageRefused as error:
        raise Refused("wrong-message", shortened(str(error), 500)) from None


def check_sender(caller: Caller, sender: str) -> None:
    """Raise `Refused` unless this is an agent of the member.

    Args:
        caller: The member.
        sender: The name of an agent.
    """
    if member(sender) != caller.name:
        raise Refused(
            "wrong-sender",
            f"the sender is {shortened(sender)!r}, expected {caller.name!r} or a name that starts "
            f"with {caller.name + '/'!r}",
        )


class Large(Response):
    """A large answer: it is made when there is room for it, which it keeps until it is taken.

    Args:
        call: Whose it is.
        request: What it is the answer to.
        size: How many bytes it has, about.
        find: Returns what it says, in a thread.
    """

    def __init__(self, call: Call, request: Request, size: int, find: Callable[[], object]) -> None:
        super().__init__()
        self._call, self._request, self._size, self._find = call, request, size, find

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._call.service.answers.hold(self._call.known.id) as hold:
            hold.take(self._size)
            made = await asyncio.to_thread(self._make)
            del self._find  # the hub may have other messages before these are taken
            try:
                async with asyncio.timeout(_PATIENCE + self._size / _SLOWEST):
                    await made(scope, receive, send)
            except TimeoutError:  # it keeps others waiting
                raise ClientDisconnect from None

    def _make(self) -> Response:
        compressor = zstandard.ZstdCompressor(level=1)  # one for each thread
        return packed(self._request, self._find(), compressor)


def packed(
    request: Request, answer: object, compressor: zstandard.ZstdCompressor = _quick
) -> Response:
    """Return an answer in MessagePack, compressed if that is accepted and worth it.

    Args:
        request: What it is the answer to.
        answer: What it says.
        compressor: What compresses it.
    """
    data = _msgpack.encode(answer)
    headers = {"vary": "accept-encoding"}
    if len(data) >= _WORTH and accepts_zstd(request.headers.get("accept-encoding", "")):
        data = compressor.compress(data)
        headers["content-encoding"] = "zstd"
    return Response(data, media_type=MEDIA_TYPE, headers=headers)


def accepts_zstd(header: str) -> bool:
    """Tell whether a client accepts answers that are compressed with zstd.

    >>> accepts_zstd("gzip, zstd;q=0.5"), accepts_zstd("gzip, zstd;q=0"), accepts_zstd("")
    (True, False, False)
    """
    for one in header.lower().split(","):
        coding, *parameters = (part.strip() for part in one.split(";"))
        if coding == "zstd":
            return not any(part.replace(" ", "") in _NEVER for part in parameters)
    return False


_NEVER = ("q=0", "q=0.0", "q=0.00", "q=0.000")
