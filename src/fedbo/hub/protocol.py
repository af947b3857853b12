"""HTTP as uvicorn and httptools speak it, with limits that these do not have.

A connection is closed if the head of a request is too large or too slow, if a body takes so long
that whoever reads it must have given up, if many requests are sent before the first is answered, or
if the other side does not take its answer. One address has a share of the connections; if there are
too many, the one that has been idle longest makes room.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fedbo.hub.limits import AtOnce, is_among, network
from fedbo.hub.problems import MEDIA_TYPE, Refused

HEAD_BYTES = 32 * 1024
HEAD_SECONDS = 10.0
REQUEST_SECONDS = 30.0  # for the whole request; what reads a body gives up earlier
ANSWER_SECONDS = 30.0  # in which some of the answer must be taken
ANSWER_BYTES = 64 * 1024  # how much of it
MOST_WAITING = 16  # requests on one connection that wait for the answers to earlier ones
_HEADER_BYTES = 32  # that a header takes beside its name and value, as HTTP/2 counts
#: How many connections one worker keeps; `fedbo.hub.serve` lowers it if there are fewer files.
most_connections = 10_000
#: Proxies that are trusted: for them, the connections of one address are not limited.
proxies: tuple[str, ...] = ()
_of_address = AtOnce()
_idle: dict[Protocol, None] = {}  # the one that has been idle longest is the first


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._is_head = True
        self._head_bytes = 0  # of the address and the headers, with those after the body
        self._loose_bytes = 0  # that have come since the parser last made something of them
        self._unsent = 0  # bytes of the answer, when the timer was set
        self.address, self._is_counted = "", False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=ANSWER_BYTES)  # with TLS it would be more
        self._expect(HEAD_SECONDS)
        self.address = network(self.client[0]) if self.client else ""
        if not is_among(self.client[0] if self.client else "", proxies):
            most = _share()
            self._is_counted = _of_address.enter(self.address, most)
            if not self._is_counted and _close_idle(self.address):
                self._is_counted = _of_address.enter(self.address, most + 1)  # it ends soon
            if not self._is_counted:
                given = f"there are {most:,} connections from this address"
                self._refuse(429, Refused("too-many-requests", f"{given}: close some of them", 1))
                return
        if len(self.connections) > most_connections and not _close_idle():
            self._refuse(503, Refused("not-ready", "there are too many connections", 1))
            return
        _idle[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        _idle.pop(self, None)
        if self._is_counted:
            _of_address.leave(self.address)
        for timer in (self._deadline, self._stalled):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.parser is None or self.transport.is_closing():
            return
        _idle.pop(self, None)
        if self._deadline is None:
            self._expect(HEAD_SECONDS)
        self._unset_keepalive_if_required()
        self._loose_bytes += len(data)
        try:
            self.parser.feed_data(data)
            self._check_head()
        except httptools.HttpParserUpgrade:
            self.cycle.keep_alive = False  # it is answered as if it had not asked for one
        except httptools.HttpParserError as error:
            self._stop(error.__context__)
        except _TooMuch as error:
            self._stop(error)
        else:
            if self._deadline is None and self.cycle is not None and self.cycle.response_complete:
                self._rest()  # this was the end of a body that was answered before it had arrived

    def on_message_begin(self) -> None:
        self._is_head, self._head_bytes, self._loose_bytes = True, 0, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url)
        self._loose_bytes = 0
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + _HEADER_BYTES
        self._loose_bytes = 0
        self._check_head()
        if self._is_head:  # what comes after the body is not needed
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MOST_WAITING:
            raise _TooMuch
        self._is_head, self._loose_bytes = False, 0
        self._expect(REQUEST_SECONDS)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._loose_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_head, self._head_bytes, self._loose_bytes = True, 0, 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.timeout_keep_alive_task is not None:
            _idle[self] = None

    def _rest(self) -> None:
        """Wait for another request, but not for ever."""
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )
        _idle[self] = None

    def pause_writing(self) -> None:
        self._expect_taken()
        super().pause_writing()

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.abort("the answer is not taken")
        else:
            super().timeout_keep_alive_handler()

    def _expect_taken(self) -> None:
        """Give the other side some seconds to take some of the answer."""
        self._unsent = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(ANSWER_SECONDS, self._check_taken)

    def _check_taken(self) -> None:
        if self._unsent - self.transport.get_write_buffer_size() < ANSWER_BYTES:
            self.abort("the answer is not taken")
        else:
            self._expect_taken()

    def _check_head(self) -> None:
        if self._head_bytes + self._loose_bytes > HEAD_BYTES:
            raise _TooMuch

    def _expect(self, seconds: float) -> None:
        """Give what is to arrive so many seconds."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        self._deadline = None
        if self.transport.is_closing():  # with TLS, that waits for the other side
            self.transport.abort()
        elif self._is_head and self._head_bytes + self._loose_bytes:
            given = f"the head of the request did not arrive within {HEAD_SECONDS:g} s"
            self._refuse(408, Refused("too-slow", given))
        elif self._is_head:
            self.transport.close()
        else:
            self.abort("the body does not arrive")

    def _stop(self, fault: BaseException | None) -> None:
        """Refuse a request; if an earlier one is not answered yet, only close the connection."""
        last = self.cycle
        is_open = last is not None and not last.response_complete
        if self.pipeline or (is_open and (last.response_started or not last.more_body)):
            self.abort("what follows a request cannot be used")
        elif isinstance(fault, _TooMuch):
            given = f"the head of the request has more than {HEAD_BYTES:,} bytes"
            self._refuse(413, Refused("too-large", given))
        else:
            self._refuse(400, Refused("wrong-request", "this is not a request of HTTP/1.1"))

    def abort(self, why: str) -> None:
        """Close the connection at once.

        Args:
            why: For the log.
        """
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
            "address": self.address,
        }
        self.logger.warning("A request was refused.", extra={"fedbo": line})
        lines = [
            f"HTTP/1.1 {status} {refused.title}",
            f"content-type: {MEDIA_TYPE}",
            f"content-length: {len(body)}",
            f"x-request-id: {request}",
            "connection: close",
        ]
        if refused.retry_after is not None:
            lines.append(f"retry-after: {refused.retry_after}")
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.close()


def _share() -> int:
    """How many connections one address may have."""
    return most_connections // 4


def _close_idle(address: str | None = None) -> bool:
    """Close the connection, of this address or any, that has been idle longest, if there is one."""
    longest = next((one for one in _idle if address in (None, one.address)), None)
    if longest is None:
        return False
    del _idle[longest]
    longest.abort("it is idle, and there are too many")
    return True


class _TooMuch(Exception):
    """Headers are too large, or too many requests wait."""
