"""Who makes a request: a member, by its token, or by the session that its browser has begun.

Endpoints for members have an argument of the type `AnyMember`. What a request changes is checked
again in its own transaction, because the token may have been revoked since. The page shows and
changes nothing, so a cookie is only good for reading.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from fastapi.security import APIKeyCookie, HTTPBearer
from starlette.requests import ClientDisconnect
from starlette.types import Message

from fedbo.hub import store
from fedbo.hub.problems import Refused
from fedbo.hub.service import Service
from fedbo.hub.store import Caller

COOKIE = "fedbo-session"
#: Its name if it came through HTTPS: browsers let only this hub itself set it.
SECURE_COOKIE = "__Host-" + COOKIE
_READING = ("GET", "HEAD")
#: The largest body of a request in JSON.
JSON_BYTES = 64 * 1024
#: In how many seconds a body must be there.
BODY_SECONDS = 20.0

#: What is said about a federation that is not there, and about one that is not the caller's.
NO_FEDERATION = "there is no such federation, or it is not yours"


class Entry:
    """What is known of one request, for its line in the log."""

    __slots__ = ("caller", "federation", "id", "problem", "started", "status")

    def __init__(self) -> None:
        self.id = secrets.token_hex(8)
        self.started = time.perf_counter()
        self.status = 0
        self.federation = self.problem = ""
        self.caller: Caller | None = None


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Running = Annotated[Service, Depends(_service)]


def possible_caller(request: Request, service: Running) -> Caller | None:
    """Return who makes a request; None if it does not say, `Refused` if its token is not valid."""
    if (header := request.headers.get("authorization")) is not None:
        scheme, _, token = header.partition(" ")
        return caller_of(request, service, token.strip() if scheme.lower() == "bearer" else "")
    kept = session_of(request)
    if kept is None or request.method not in _READING:
        return None
    with service.reading() as connection:
        return _counted(request, service, store.by_session(connection, kept))


def caller_of(request: Request, service: Service, token: str) -> Caller:
    """Return whose token this is; `Refused` if it is nobody's."""
    with service.reading() as connection:
        return _counted(request, service, store.by_token(connection, token))


def _counted(request: Request, service: Service, caller: Caller | None) -> Caller:
    """Return a caller, whose requests are counted; `Refused` if there is none."""
    if caller is None:
        raise Refused(
            "wrong-token",
            "the token is unknown or was revoked, or the session is over: expected a token as "
            "fedbo join keeps it; log in again, or ask the operator for an invitation",
        )
    request.scope["fedbo"].caller = caller
    service.count_request(caller.id)
    return caller


_token = HTTPBearer(auto_error=False, scheme_name="token")
_cookie = APIKeyCookie(
    name=COOKIE,
    auto_error=False,
    scheme_name="cookie",
    description=f"Through HTTPS, its name is {SECURE_COOKIE}.",
)


async def _documented(
    _: Annotated[object, Depends(_token)], __: Annotated[object, Depends(_cookie)]
) -> None:
    """Let the documentation say what an endpoint needs; `possible_caller` reads both."""


def _member(
    request: Request,
    caller: Annotated[Caller | None, Depends(possible_caller)],
    _: Annotated[None, Depends(_documented)],
) -> Caller:
    if caller is None:
        raise Refused("wrong-token", "a token is required: send Authorization: Bearer TOKEN")
    federation = request.path_params.get("federation", "")
    if federation and federation != caller.federation_name:
        raise Refused("no-such-federation", NO_FEDERATION)
    request.scope["fedbo"].federation = caller.federation_name
    if caller.is_suspended:
        raise Refused(
            "suspended",
            f"the hub was restored from a backup, and {caller.name!r} waits until its operator has "
            f"said who is still a member: fedbo hub admit {caller.federation_name}",
            60,
        )
    return caller


AnyMember = Annotated[Caller, Depends(_member)]


def session_of(request: Request) -> str | None:
    """Return the session that the browser has kept."""
    return request.cookies.get(_cookie_name(request))


def set_cookie(request: Request, response: Response, session: str) -> None:
    """Let the browser keep a session where no script can read it; an empty one takes it away."""
    response.set_cookie(
        _cookie_name(request),
        session,
        max_age=store.VALID if session else 0,
        path="/",
        secure=_is_https(request),
        httponly=True,
        samesite="strict",
    )


def _cookie_name(request: Request) -> str:
    return SECURE_COOKIE if _is_https(request) else COOKIE


def _is_https(request: Request) -> bool:
    is_https = _service(request).settings.public_url.startswith("https:")
    return is_https or request.url.scheme == "https"


async def read_body(request: Request, most: int) -> bytes:
    """Return the body of a request, which has a limit in bytes and one in time."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _read(request, most)
    except TimeoutError:
        text = f"the body did not come within {BODY_SECONDS:g} seconds: send it again"
        raise Refused("too-slow", text) from None


async def _read(request: Request, most: int) -> bytes:
    body = bytearray()
    is_more = True
    while is_more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        is_more = message.get("more_body", False)
        if len(body) > most:
            text = f"the body has more than {most:,} bytes, which are allowed here"
            raise Refused("too-large", text)
    return bytes(body)


class BoundedRoute(APIRoute):
    """A route that reads no more of a body than a request in JSON may have."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:  # what has no body, or reads its own
            return handle

        async def bounded(request: Request) -> Response:
            with _service(request).unfinished.hold():
                body = await read_body(request, JSON_BYTES)

            async def receive() -> Message:
                return {"type": "http.request", "body": body, "more_body": False}

            return await handle(Request(request.scope, receive))

        return bounded
