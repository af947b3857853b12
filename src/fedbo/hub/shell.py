"""What every request to a hub passes through: it gets an id, and leaves a line in the log.

Whatever happens inside, the answer is complete: what was refused is a problem (RFC 9457), and so is
a failure of the hub itself. Nothing of what the caller sent is in the log: only the template of the
route, never the path or the query.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Hashable
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedbo.hub.limits import AtOnce, network
from fedbo.hub.log import Log
from fedbo.hub.metrics import Metrics
from fedbo.hub.problems import MEDIA_TYPE, Refused, no_database

if TYPE_CHECKING:
    from fedbo.hub.auth import Caller

#: How many requests one worker handles at the same time; more are told to try again.
MOST_AT_ONCE = 1000
#: How many of them may come from one address, which many members may share.
MOST_OF_ADDRESS = 128
#: Larger answers are sent in pieces of so many bytes, as fast as they are taken.
PIECE = 64 * 1024
_HEALTH = ("/healthz", "/readyz")  # whoever asks would restart a hub that is only busy
_GONE = 499  # the status in the log if the caller hung up
_ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_API = [*_ALWAYS, (b"cache-control", b"no-store")]
_HTTPS = (b"strict-transport-security", b"max-age=86400")
_UNKNOWN = "(none)"
_TOKEN = re.compile(r"fedbo-[mo]-[A-Za-z0-9_-]{20,}")  # someone may have put one in a wrong place


class Record:
    """What is known of one request, for its line in the log. Handlers fill it in."""

    __slots__ = (
        "address", "allowed", "caller", "federation", "id", "problem", "received", "running",
        "sent", "started", "status", "subject",
    )  # fmt: skip

    def __init__(self, address: str) -> None:
        self.id = secrets.token_hex(8)
        self.address = address
        self.started = time.perf_counter()
        self.status = self.sent = self.received = 0
        self.federation = self.problem = ""
        self.subject = ""  # what it is about, for the audit log if it is refused
        self.caller: Caller | None = None
        self.allowed = ""  # methods that an address takes, if it does not take this one
        self.running: list[Hashable] = []  # what it counts as in `AtOnce`


class Shell:
    """The outermost part of the application.

    Args:
        app: The rest of it.
        log: Where lines go.
        metrics: Where requests are counted.
        at_once: Counts the requests that run.
    """

    def __init__(self, app: ASGIApp, log: Log, metrics: Metrics, at_once: AtOnce) -> None:
        self._app, self._log, self._metrics, self._at_once = app, log, metrics, at_once

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        client = scope.get("client")
        record = scope["fedbo"] = Record(network(client[0]) if client else "")
        headers = [
            *(_API if scope["path"].startswith("/v1") else _ALWAYS),
            (b"x-request-id", record.id.encode()),
        ]
        if scope.get("scheme") == "https":
            headers.append(_HTTPS)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                given = list(message.get("headers", ()))
                names = {name for name, _ in given}
                message["headers"] = given + [one for one in headers if one[0] not in names]
            else:
                body = message.get("body", b"")
                record.sent += len(body)
                if len(body) > PIECE:
                    await _send_pieces(body, message.get("more_body", False), send)
                    return
            await send(message)

        try:
            if scope["path"] not in _HEALTH:
                self._enter(record)
            await self._app(scope, receive, answer)
        except Refused as refused:
            await send_problem(refused, record, answer)
        except ClientDisconnect:
            record.status = _GONE
        except (OperationalError, InterfaceError, PoolTimeout) as error:
            self._log.error("database", error, request=record.id)
            if record.status:
                raise _Broken from None
            await send_problem(no_database(), record, answer)
        except Exception as error:
            self._log.error("failed", error, request=record.id)
            if not record.status:
                failed = Refused(
                    "failed",
                    "the hub failed, and nothing was changed by this request unless it says so: "
                    "try again, and tell its operator the number of the request if it stays so",
                )
                await send_problem(failed, record, answer)
            else:
                raise _Broken from None
        finally:
            for key in record.running:
                self._at_once.leave(key)
            self._finish(scope, record)

    def _enter(self, record: Record) -> None:
        """Count a request as long as it runs; `Refused` if too many run."""
        if not self._at_once.enter(record.address, MOST_OF_ADDRESS):
            text = f"{MOST_OF_ADDRESS} requests from this address are not answered yet"
            raise Refused("too-many-requests", f"{text}: try again in 1 s", 1)
        record.running.append(record.address)
        if not self._at_once.enter(None, MOST_AT_ONCE):
            raise Refused("not-ready", "the hub has too much to do: try again soon", 1)
        record.running.append(None)

    def _finish(self, scope: Scope, record: Record) -> None:
        seconds = time.perf_counter() - record.started
        route = getattr(scope.get("route"), "path", _UNKNOWN)
        method = scope["method"]
        self._metrics.request(route, method, record.status, seconds, record.received, record.sent)
        if record.problem:
            self._metrics.refused(record.problem)
        self._log.write(
            "request",
            request=record.id,
            method=method,
            route=route,
            status=record.status,
            ms=round(seconds * 1e3, 1),
            received=record.received,
            sent=record.sent,
            federation=record.federation,
            who="" if record.caller is None else record.caller.actor,
            problem=record.problem,
            address=record.address,
        )


async def _send_pieces(body: bytes, is_more: bool, send: Send) -> None:
    """Send a part of an answer as fast as it is taken.

    A connection would keep all of it until it is taken, after the request was counted as finished.
    """
    for start in range(0, len(body), PIECE):
        piece = body[start : start + PIECE]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    if not is_more:  # when this was sent, at most one piece is left
        await send({"type": "http.response.body", "body": b""})


class _Broken(Exception):
    """An answer that had begun cannot be completed; the log has the reason."""


async def send_problem(problem: Refused, record: Record, send: Send) -> None:
    """Answer with a problem.

    Args:
        problem: What is the matter.
        record: The request.
        send: As ASGI defines it.
    """
    record.problem = problem.slug
    document = problem.document(record.id)
    document["detail"] = _TOKEN.sub("(a token)", document["detail"])
    body = msgspec.json.encode(document)
    headers = [
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
    ]
    if problem.retry_after is not None:
        headers.append((b"retry-after", str(problem.retry_after).encode()))
    if problem.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="fedbo hub"'))
    if record.allowed:
        headers.append((b"allow", record.allowed.encode()))
    if problem.slug == "too-slow":
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
