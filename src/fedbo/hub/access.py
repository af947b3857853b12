"""Who makes a request: a member or an operator, by a token or by the cookie of the page.

Endpoints name whom they are for by the type of an argument: `AnyMember`, `AnyOperator` or `Anyone`
with a token. What a request changes is checked again in its own transaction, because the token may
have been revoked since.
"""

from __future__ import annotations

import ipaddress
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from fastapi.security import APIKeyCookie, HTTPBearer
from sqlalchemy import Connection
from starlette.requests import ClientDisconnect
from starlette.types import Message

from fedbo.hub import store
from fedbo.hub.problems import Refused
from fedbo.hub.service import Service
from fedbo.hub.store import Caller

COOKIE = "fedbo-session"
#: Its name if it came through HTTPS: browsers let only this hub itself set it.
SECURE_COOKIE = "__Host-" + COOKIE
#: The header that a page of another site cannot send along with the cookie.
HEADER = "x-fedbo"
_SAFE = ("GET", "HEAD", "OPTIONS")
#: The largest federation file, in bytes.
FILE_BYTES = 1024 * 1024
#: The largest body of a request in JSON; a federation file grows when it is escaped.
JSON_BYTES = 2 * FILE_BYTES

#: What is said about a federation that is not there, and about one that is not the caller's.
NO_FEDERATION = "there is no such federation, or it is not yours"


class Entry:
    """What is known of one request, for its line in the log. Endpoints fill it in."""

    __slots__ = ("address", "caller", "federation", "id", "problem", "started", "status", "subject")

    def __init__(self, address: str) -> None:
        self.id = secrets.token_hex(8)
        self.address = network(address)
        self.started = time.perf_counter()
        self.status = 0
        self.federation = self.problem = ""
        self.subject = ""  # what it is about, for the audit log if it is refused
        self.caller: Caller | None = None


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def entry_of(request: Request) -> Entry:
    """Return what is known of a request."""
    entry: Entry = request.scope["fedbo"]
    return entry


Running = Annotated[Service, Depends(_service)]
Noted = Annotated[Entry, Depends(entry_of)]


def possible_caller(request: Request, service: Running) -> Caller | None:
    """Return who makes a request; None if it does not say.

    Raises:
        Refused: If its token or cookie is not valid, or if there were too many such failures.
    """
    if (header := request.headers.get("authorization")) is not None:
        scheme, _, token = header.partition(" ")
        return caller_of(request, service, token.strip() if scheme.lower() == "bearer" else "")
    secret = request.cookies.get(cookie_name(request))
    if secret is None:
        return None
    if request.method not in _SAFE and request.headers.get(HEADER) != "1":
        raise Refused(
            "not-allowed",
            "a request with the page's cookie that changes something needs the header X-Fedbo: 1",
        )
    ended = "the log-in has ended: log in again"
    return _found(request, service, store.by_session, secret, ended)


def caller_of(request: Request, service: Service, token: str) -> Caller:
    """Return whose token this is; `Refused` if it is nobody's."""
    unknown = (
        "the token is unknown or was revoked, expected one as fedbo join keeps it or fedbo hub "
        "operator add printed it"
    )
    return _found(request, service, store.by_token, token, unknown)


def _found(
    request: Request,
    service: Service,
    look_up: Callable[[Connection, str], Caller | None],
    secret: str,
    fault: str,
) -> Caller:
    with service.reading() as connection:
        caller = look_up(connection, secret)
    if caller is None:
        service.count_failure(entry_of(request).address)
        raise Refused("wrong-token", fault)
    entry_of(request).caller = caller
    if not caller.is_operator:
        service.count_request(caller.id)
    return caller


_token = HTTPBearer(auto_error=False, scheme_name="token")
_cookie = APIKeyCookie(
    name=COOKIE,
    auto_error=False,
    scheme_name="session",
    description=f"Through HTTPS, its name is {SECURE_COOKIE}.",
)


async def _documented(
    _: Annotated[object, Depends(_token)], __: Annotated[object, Depends(_cookie)]
) -> None:
    """Let the documentation say what an endpoint needs; `possible_caller` reads both."""


def _anyone(
    request: Request,
    caller: Annotated[Caller | None, Depends(possible_caller)],
    _: Annotated[None, Depends(_documented)],
) -> Caller:
    if caller is None:
        raise Refused("wrong-token", "a token is required: send Authorization: Bearer TOKEN")
    federation = request.path_params.get("federation", "")
    if federation and not caller.is_operator and federation != caller.federation_name:
        raise Refused("no-such-federation", NO_FEDERATION)
    if not caller.is_operator:
        entry_of(request).federation = caller.federation_name
    return caller


Anyone = Annotated[Caller, Depends(_anyone)]


def _member(caller: Anyone) -> Caller:
    if caller.is_operator:
        text = "this needs the token of a member, and yours is an operator's"
        raise Refused("not-allowed", text)
    return caller


def _operator(caller: Anyone) -> Caller:
    if not caller.is_operator:
        text = "this needs the token of an operator, and yours is a member's"
        raise Refused("not-allowed", text)
    return caller


AnyMember = Annotated[Caller, Depends(_member)]
AnyOperator = Annotated[Caller, Depends(_operator)]


def cookie_name(request: Request) -> str:
    """Return the name of the cookie of this request."""
    return SECURE_COOKIE if _is_https(request) else COOKIE


def set_cookie(request: Request, response: Response, secret: str, seconds: float) -> None:
    """Give the cookie of a session to the page, for so long; 0 takes it away."""
    response.set_cookie(
        cookie_name(request),
        secret,
        max_age=int(seconds),
        path="/",
        secure=_is_https(request),
        httponly=True,
        samesite="strict",
    )


def _is_https(request: Request) -> bool:
    is_https = _service(request).settings.public_url.startswith("https:")
    return is_https or request.url.scheme == "https"


def network(address: str) -> str:
    """Return what counts as one address: an IPv6 network of 64 bits has one owner.

    >>> network("192.0.2.7"), network("2001:db8::1:2:3:4"), network("testclient")
    ('192.0.2.7', '2001:db8::/64', 'testclient')
    """
    try:
        given = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if given.version == 4:
        return str(given)
    return str(given.ipv4_mapped or ipaddress.ip_network((int(given) >> 64 << 64, 64)))


async def read_body(request: Request, most: int) -> bytes:
    """Return the body of a request, which is not read further than it may be.

    Args:
        request: The request.
        most: How many bytes it may have.

    Raises:
        Refused: If it is too large.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most:
        raise _too_large(most)
    body = bytearray()
    is_more = True
    while is_more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        is_more = message.get("more_body", False)
        if len(body) > most:
            raise _too_large(most)
    return bytes(body)


def _too_large(most: int) -> Refused:
    return Refused("too-large", f"the body has more than {most:,} bytes, which are allowed here")


class BoundedRoute(APIRoute):
    """A route that reads no more of a body than a request in JSON may have."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:  # what has no body, or reads its own
            return handle

        async def bounded(request: Request) -> Response:
            body = await read_body(request, JSON_BYTES)

            async def receive() -> Message:
                return {"type": "http.request", "body": body, "more_body": False}

            return await handle(Request(request.scope, receive))

        return bounded
