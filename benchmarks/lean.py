"""Agents of hub.py: a client of HTTP/1.1 that does little, so that the server is what is measured.

Each agent has one connection and sends a request as soon as the last one is answered. The requests
of a phase are made before it begins.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from typing import Protocol, cast

import msgspec
import zstandard

from fedbo.exchange.hub.wire import MEDIA_TYPE, News, Wanted

_decompressor = zstandard.ZstdDecompressor()
_news = msgspec.msgpack.Decoder(News)


def request(method: str, path: str, token: str, body: bytes) -> bytes:
    """Return the bytes of a request."""
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {token}\r\n"
        f"accept-encoding: zstd\r\ncontent-type: {MEDIA_TYPE}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Script(Protocol):
    """What an agent sends."""

    def next(self) -> bytes: ...
    def answered(self, status: int, head: bytes, body: bytes) -> None: ...


class Exchange:
    """Publishes and fetches in turn.

    Args:
        federation: The name of the federation at the hub.
        token: Of the member.
        messages: What it publishes, one after the other.
        cursor: What its last fetch gave.
    """

    def __init__(
        self, federation: str, token: str, messages: Iterator[bytes], cursor: str = ""
    ) -> None:
        self._path, self._token = f"/v1/federations/{federation}", token
        self._messages = messages
        self.cursor = cursor
        self.published, self.last, self.received = 0, b"", 0
        self._is_fetch = True

    def next(self) -> bytes:
        self._is_fetch = not self._is_fetch
        if self._is_fetch:
            body = msgspec.msgpack.encode(Wanted(0, self.cursor))
            return request("POST", f"{self._path}/fetch", self._token, body)
        self._sent = next(self._messages)
        return request("PUT", f"{self._path}/messages", self._token, self._sent)

    def answered(self, status: int, head: bytes, body: bytes) -> None:
        if status != 200:
            raise RuntimeError(f"the hub answered {status}: {body[:500]!r}")
        if not self._is_fetch:
            if body != b'{"out":true}':
                raise RuntimeError(f"the hub did not take a message: {body!r}")
            self.published += 1
            self.last = self._sent
            return
        if b"content-encoding: zstd" in head:
            body = _decompressor.decompress(body)
        self.received += len(body)
        length = body[1] & 0x1F if body[1] < 0xC0 else body[2]  # of the cursor, the first field
        start = 2 if body[1] < 0xC0 else 3
        self.cursor = body[start : start + length].decode()


class Echo:
    """Sends the same bodies to an endpoint that returns them.

    Args:
        path: The endpoint.
        token: Sent along, as to the hub.
        messages: The bodies of every other request.
        wanted: The body of the others.
    """

    def __init__(self, path: str, token: str, messages: Iterator[bytes], wanted: Wanted) -> None:
        self._path, self._token, self._messages = path, token, messages
        self._wanted = msgspec.msgpack.encode(wanted)
        self._is_fetch = True

    def next(self) -> bytes:
        self._is_fetch = not self._is_fetch
        self._sent = self._wanted if self._is_fetch else next(self._messages)
        return request("POST", self._path, self._token, self._sent)

    def answered(self, status: int, head: bytes, body: bytes) -> None:
        if status != 200 or body != self._sent:
            raise RuntimeError(f"the echo answered {status}: {body[:500]!r}")


class Connection(asyncio.Protocol):
    """The connection of an agent, over many phases."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._buffer, self._needed, self._body = b"", 0, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self, script: Script, end: float) -> asyncio.Future[None]:
        """Follow a script until a time of `time.perf_counter`."""
        self._script, self._end, self.times = script, end, []
        self._done = asyncio.get_running_loop().create_future()
        self._send()
        return self._done

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        if not self._needed:
            at = self._buffer.find(b"\r\n\r\n")
            if at < 0:
                return
            head = self._buffer[:at]
            _, _, rest = head.partition(b"content-length: ")
            self._body = at + 4
            self._needed = self._body + int(rest.partition(b"\r\n")[0])
        if len(self._buffer) < self._needed:
            return
        self.times.append(time.perf_counter() - self._sent)
        head, body = self._buffer[: self._body], self._buffer[self._body : self._needed]
        self._buffer, self._needed = b"", 0
        try:
            self._script.answered(int(head[9:12]), head, body)
        except Exception as error:
            self._done.set_exception(error)
            return
        if time.perf_counter() < self._end:
            self._send()
        else:
            self._done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(error or ConnectionError("the hub closed the connection"))

    def _send(self) -> None:
        data = self._script.next()
        self._sent = time.perf_counter()
        self._transport.write(data)


class Caller:
    """One connection that waits for each answer.

    Args:
        port: Of the hub on this machine.
        token: Of a member.
    """

    def __init__(self, port: int, token: str) -> None:
        self._token = token
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, method: str, path: str, body: bytes) -> tuple[float, bytes]:
        """Return the seconds until the whole answer was there, and the answer."""
        data = request(method, path, self._token, body)
        start = time.perf_counter()
        self._socket.sendall(data)
        parts, size, needed, at = [], 0, 1 << 60, -1
        while size < needed:
            parts.append(self._socket.recv(1 << 18))
            size += len(parts[-1])
            if not parts[-1]:
                raise ConnectionError("the hub closed the connection")
            if at < 0:
                parts = [b"".join(parts)]
                at = parts[0].find(b"\r\n\r\n")
                if at >= 0:
                    rest = parts[0][:at].partition(b"content-length: ")[2]
                    needed = at + 4 + int(rest.partition(b"\r\n")[0])
        seconds = time.perf_counter() - start
        answer = b"".join(parts)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the hub answered {answer[:500]!r}")
        is_packed = b"content-encoding: zstd" in answer[:at]
        found = answer[at + 4 :]
        return seconds, _decompressor.decompress(found) if is_packed else found

    def fetch(self, federation: str, wanted: Wanted) -> tuple[float, News]:
        """Return the seconds that a fetch took, and what it gave.

        Args:
            federation: The path of the federation in the API.
            wanted: The question.
        """
        body = msgspec.msgpack.encode(wanted)
        seconds, answer = self.call("POST", f"{federation}/fetch", body)
        return seconds, _news.decode(answer)
