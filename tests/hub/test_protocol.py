"""HTTP below the application: what one connection may send, and how its answer is taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from fedbo.hub import protocol
from fedbo.hub.limits import AtOnce

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
HEAD = b"POST / HTTP/1.1\r\nhost: x\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
LARGE = 20_000_000


async def count(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the size of the body; to a GET with much; to a DELETE late; to a PATCH early."""
    size, is_more = 0, scope["method"] != "PATCH"
    while is_more:
        message = await receive()
        size += len(message.get("body", b""))
        is_more = message.get("more_body", False)
    if scope["method"] == "DELETE":
        await asyncio.sleep(0.2)
    names = b",".join(name for name, _ in scope["headers"])
    body = bytes(LARGE) if scope["method"] == "GET" else b"%d %b" % (size, names)
    length = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(autouse=True)
def nothing_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the connections of earlier tests, whose event loops have ended."""
    monkeypatch.setattr(protocol, "_of_address", AtOnce())
    monkeypatch.setattr(protocol, "_idle", {})


@asynccontextmanager
async def server() -> AsyncIterator[Connect]:
    config = uvicorn.Config(
        count, lifespan="off", http=protocol.Protocol, log_config=None, ws="none"
    )
    config.load()
    state, loop = ServerState(), asyncio.get_running_loop()
    listening = await loop.create_server(
        lambda: protocol.Protocol(config, state, {}), "127.0.0.1", 0
    )
    port = listening.sockets[0].getsockname()[1]
    writers: list[asyncio.StreamWriter] = []

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        return reader, writer

    yield connect
    for transport in [*writers, *(one.transport for one in state.connections)]:
        transport.close()
    await asyncio.gather(*(one.wait_closed() for one in writers), return_exceptions=True)
    listening.close()


def sent(*pieces: bytes) -> bytes:
    """Return all that is answered to what is sent in pieces, until the connection is closed."""

    async def run() -> bytes:
        async with server() as connect:
            reader, writer = await connect()
            found: list[bytes] = []

            async def read() -> None:
                with suppress(ConnectionError):
                    while part := await reader.read(65536):
                        found.append(part)

            reading = asyncio.ensure_future(read())
            with suppress(ConnectionError):
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.02)
                    if reading.done():
                        break
            await reading
            writer.close()
            return b"".join(found)

    return asyncio.run(asyncio.wait_for(run(), 60.0))


def body(size: int, head: bytes = b"") -> bytes:
    return HEAD + b"content-length: %d\r\n" % size + head + b"\r\n" + bytes(size)


@pytest.mark.parametrize("size", [10, 40_000, 200_000])
def test_a_body_in_one_piece_with_its_head_is_not_the_head(size: int) -> None:
    answer = sent(body(size), body(size), body(size, b"connection: close\r\n"))
    assert answer.count(b"HTTP/1.1 200") == 3 and b"413" not in answer
    assert answer.count(b"%d host,content-length" % size) == 3


@pytest.mark.parametrize(
    "pieces",
    [
        [HEAD + b"".join(b"x%d: y\r\n" % i for i in range(7000)) + b"\r\n"],
        [HEAD + b"x: " + bytes(40_000).replace(b"\0", b"a") + b"\r\n\r\n"],
        [HEAD + b"x: ", *[b"a" * 10_000] * 5],
        [b"GET /", *[b"a" * 10_000] * 5],
        [b"\r\n" * 5_000] * 5,
    ],
)
def test_a_large_head_is_refused(pieces: list[bytes]) -> None:
    assert sent(*pieces).startswith(b"HTTP/1.1 413")


def test_many_small_headers_count_for_what_they_take() -> None:
    assert sent(HEAD + b"a:b\r\n" * 2000 + b"\r\n").startswith(b"HTTP/1.1 413")


def test_what_follows_a_body_is_left_out_and_counts_as_head() -> None:
    few = CHUNKED.replace(b"host", b"connection: close\r\nhost")
    answer = sent(few + b"3\r\nabc\r\n0\r\nauthorization: Bearer x\r\n\r\n")
    assert answer.endswith(b"3 connection,host,transfer-encoding")
    for endless in ([b"a:b\r\n" * 1000] * 10, [b"a: ", *[b"b" * 10_000] * 10]):
        assert sent(CHUNKED + b"3\r\nabc\r\n0\r\n", *endless).startswith(b"HTTP/1.1 413")


def test_only_so_many_requests_wait_on_one_connection() -> None:
    small = b"DELETE / HTTP/1.1\r\nhost: x\r\n\r\n"
    last = small.replace(b"host", b"connection: close\r\nhost")
    assert sent(small * 4 + last).count(b"HTTP/1.1 200") == 5
    assert sent(small * 5000) == b""


def test_a_request_that_is_being_answered_does_not_get_the_answer_to_the_next() -> None:
    small = b"DELETE / HTTP/1.1\r\nhost: x\r\n\r\n"
    assert sent(small + b"nonsense\r\n\r\n") == b""
    assert sent(b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert sent(CHUNKED + b"zzz\r\n").startswith(b"HTTP/1.1 400")


def test_an_answer_may_be_taken_slowly_but_it_must_be_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "ANSWER_SECONDS", 1.0)

    async def take(wait: float, pause: float) -> int:
        async with server() as connect:
            reader, writer = await connect()
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await asyncio.sleep(wait)
            taken = 0
            with suppress(ConnectionError):
                while taken < LARGE and (part := await reader.read(2**18)):
                    taken += len(part)
                    await asyncio.sleep(pause)
            writer.close()
            return taken

    assert asyncio.run(take(wait=0.0, pause=0.015)) >= LARGE
    assert asyncio.run(take(wait=3.0, pause=0.0)) < LARGE


# How many connections there may be.

SMALL = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"


async def asked(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bytes:
    """Send a request, and return the first line of the answer; empty if there is none."""
    reader, writer = connection
    with suppress(ConnectionError):
        writer.write(SMALL)
        return (await reader.readuntil(b"host,content-length")).split(b"\r\n")[0]
    return b""


def test_one_address_has_a_share_of_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "most_connections", 16)

    async def run() -> None:
        async with server() as connect:
            made = [await connect() for _ in range(4)]
            for _, writer in made:
                writer.write(SMALL[:10])  # they are busy
            await asyncio.sleep(0.05)
            refused = await (await connect())[0].read()
            assert refused.startswith(b"HTTP/1.1 429") and b"retry-after: 1\r\n" in refused
            assert b"4 connections from this address" in refused
            for reader, writer in made:
                writer.write(SMALL[10:])
                assert (await reader.read(12)).endswith(b" 200")
            made[0][1].close()
            await made[0][1].wait_closed()
            await asyncio.sleep(0.05)
            assert await asked(await connect()) == b"HTTP/1.1 200 OK"

    asyncio.run(asyncio.wait_for(run(), 60.0))


@pytest.mark.parametrize("proxies", [("127.0.0.1",), ("127.0.0.0/8", "::1"), ("*",)])
def test_connections_of_a_proxy_are_limited_only_together_with_all_others(
    proxies: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there are too many, the one that has been idle longest is closed."""
    monkeypatch.setattr(protocol, "most_connections", 4)
    monkeypatch.setattr(protocol, "proxies", proxies)

    async def run() -> None:
        async with server() as connect:
            made = [await connect() for _ in range(4)]
            for i in (2, 3, 0):
                assert await asked(made[i]) == b"HTTP/1.1 200 OK"
            made[1][1].write(SMALL[:10])  # it is busy
            await asyncio.sleep(0.05)
            made += [await connect() for _ in range(2)]
            assert [await asked(made[i]) for i in (4, 5)] == [b"HTTP/1.1 200 OK"] * 2
            assert [await made[i][0].read() for i in (2, 3)] == [b"", b""]
            made[1][1].write(SMALL[10:])
            assert (await made[1][0].read(12)).endswith(b" 200")
            assert await asked(made[0]) == b"HTTP/1.1 200 OK"

    asyncio.run(asyncio.wait_for(run(), 60.0))


def test_if_no_connection_is_idle_a_new_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "most_connections", 4)
    monkeypatch.setattr(protocol, "proxies", ("*",))

    async def run() -> None:
        async with server() as connect:
            made = [await connect() for _ in range(4)]
            for _, writer in made:
                writer.write(SMALL[:10])
            await asyncio.sleep(0.05)
            assert (await (await connect())[0].read()).startswith(b"HTTP/1.1 503")

    asyncio.run(asyncio.wait_for(run(), 60.0))


def test_a_body_after_the_answer_does_not_keep_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        async with server() as connect:
            reader, writer = await connect()
            writer.write(HEAD.replace(b"POST", b"PATCH") + b"content-length: 3\r\n\r\n")
            await reader.readuntil(b"0 host")
            writer.write(b"abc")
            await asyncio.sleep(0.1)
            assert len(protocol._idle) == 1
            (idle,) = protocol._idle
            idle.timeout_keep_alive_handler()
            assert await asyncio.wait_for(reader.read(), 5) == b",content-length"

    asyncio.run(run())


def test_an_idle_connection_of_the_same_address_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "most_connections", 8)  # of one address 2

    async def run() -> None:
        async with server() as connect:
            readers = []
            for _ in range(3):
                reader, writer = await connect()
                writer.write(HEAD + b"content-length: 0\r\n\r\n")
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")
                readers.append(reader)
            with suppress(ConnectionError):
                await asyncio.wait_for(readers[0].read(), 5)
            assert readers[0].at_eof() or readers[0].exception() is not None

    asyncio.run(run())
