"""HTTP as uvicorn and httptools speak it, with limits that these do not have.

A connection is closed if the head of a request is too large or too slow, if a body takes so long
that whoever reads it must have given up, or if the other side does not take its answer.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fedbo.hub.limits import network
from fedbo.hub.problems import MEDIA_TYPE, Refused

HEAD_BYTES = 32 * 1024
HEAD_SECONDS = 10.0
REQUEST_SECONDS = 30.0  # for the whole request; what reads a body gives up earlier
ANSWER_SECONDS = 30.0  # without taking anything of the answer
#: How many connections one worker keeps; `fedbo.hub.serve` lowers it if there are fewer files.
most_connections = 10_000


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._is_head, self._head_bytes, self._heads = True, 0, 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect(HEAD_SECONDS)
        if len(self.connections) > most_connections:
            self._refuse(503, Refused("not-ready", "there are too many connections", 1))

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._deadline, self._stalled):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.parser is None or self.transport.is_closing():
            return
        if self._deadline is None:
            self._expect(HEAD_SECONDS)
        self._unset_keepalive_if_required()
        is_head, heads = self._is_head, self._heads
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.cycle.keep_alive = False  # it is answered as if it had not asked for one
        except httptools.HttpParserError:
            self._refuse(400, Refused("wrong-request", "this is not a request of HTTP/1.1"))
            return
        if is_head and self._is_head and self._heads == heads:  # all of the data is part of it
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
                given = f"the head of the request has more than {HEAD_BYTES:,} bytes"
                self._refuse(413, Refused("too-large", given))

    def on_headers_complete(self) -> None:
        self._is_head, self._head_bytes, self._heads = False, 0, self._heads + 1
        self._expect(REQUEST_SECONDS)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_head = True
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        super().on_message_complete()

    def pause_writing(self) -> None:
        self._stalled = self.loop.call_later(ANSWER_SECONDS, self._abort, "the answer is not taken")
        super().pause_writing()

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def _expect(self, seconds: float) -> None:
        """Give what is to arrive so many seconds."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        self._deadline = None
        if self._is_head and self._head_bytes:
            given = f"the head of the request did not arrive within {HEAD_SECONDS:g} s"
            self._refuse(408, Refused("too-slow", given))
        elif self._is_head:
            self.transport.close()
        else:
            self._abort("the body does not arrive")

    def _abort(self, why: str) -> None:
        self.logger.warning("A connection was closed: %s.", why)
        self.transport.abort()

    def _refuse(self, status: int, refused: Refused) -> None:
        """Answer without the application, and close the connection."""
        request = secrets.token_hex(8)
        body = msgspec.json.encode({**refused.document(request), "status": status})
        line = {
            "request": request,
            "route": "(none)",
            "status": status,
            "problem": refused.slug,
            "address": network(self.client[0]) if self.client else "",
        }
        self.logger.warning("A request was refused.", extra={"fedbo": line})
        lines = [
            f"HTTP/1.1 {status} {refused.title}",
            f"content-type: {MEDIA_TYPE}",
            f"content-length: {len(body)}",
            f"x-request-id: {request}",
            "connection: close",
        ]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.close()
