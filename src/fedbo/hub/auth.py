"""Who makes a request: a member or an operator, by a token or by the cookie of the page.

A token that was found is believed for a second without another look, so a revoked one stops working
within a second, in every worker. What a member changes looks again in its own transaction.

An address with too many failures may still use a valid token: others behind the same address would
suffer from one agent with a wrong token, and a token is too long to be guessed. So only the number
of looks at the database is limited.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal

import msgspec
from sqlalchemy import Connection, Engine, delete, insert, select
from starlette.requests import Request
from starlette.responses import Response

from fedbo.hub import schema
from fedbo.hub.limits import BURST, Buckets, refuse_for
from fedbo.hub.problems import Refused
from fedbo.hub.settings import Settings
from fedbo.hub.shell import Record
from fedbo.hub.tokens import digest, new_secret
from fedbo.hub.writer import Writer

COOKIE = "fedbo-session"
#: Its name if it came through HTTPS: browsers let only this hub itself set it.
SECURE_COOKIE = "__Host-" + COOKIE
#: The header that a page of another site cannot send along with the cookie.
HEADER = "x-fedbo"
_BELIEVED = 1.0  # seconds
_LOOKS = 20.0  # tokens a second that are looked up for an address with too many failures
_REMEMBERED = 20_000  # tokens and cookies
_MOST_SESSIONS = 20  # of one member or operator
_TOKEN = re.compile(r"fedbo-[mo]-[A-Za-z0-9_-]{43}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{32}")
_SAFE = ("GET", "HEAD", "OPTIONS")
_MEMBER = select(
    schema.member.c.id,
    schema.member.c.name,
    schema.member.c.federation,
    schema.member.c.key,
    schema.member.c.token,
    schema.federation.c.name.label("federation_name"),
).join(schema.federation, schema.federation.c.id == schema.member.c.federation)
_OPERATOR = select(schema.operator.c.id, schema.operator.c.name, schema.operator.c.token)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """A member or an operator.

    Args:
        role: Which of the two.
        id: The number of its row.
        name: Its name.
        federation: The number of a member's federation; 0 for an operator.
        federation_name: The name of a member's federation; empty for an operator.
        key: A member's public key; empty if its messages are not signed.
        token: The hash of its token.
    """

    role: Literal["member", "operator"]
    id: int
    name: str
    federation: int = 0
    federation_name: str = ""
    key: bytes = b""
    token: bytes = b""

    @property
    def is_operator(self) -> bool:
        return self.role == "operator"

    @property
    def actor(self) -> str:
        """Its name in the audit log."""
        return f"operator {self.name}" if self.is_operator else self.name


class Session(msgspec.Struct, frozen=True):
    """A log-in at the page: what its cookie holds, who it is, and until when."""

    secret: str
    caller: Caller
    expires: float


class Auth:
    """Finds out who makes a request.

    Args:
        settings: How many failures are allowed, and how long a session lasts.
        engine: The database.
        writer: What changes it.
    """

    def __init__(self, settings: Settings, engine: Engine, writer: Writer) -> None:
        self._settings, self._engine, self._writer = settings, engine, writer
        self._failures = Buckets(settings.failures / 60.0, settings.failures)
        self._looks = Buckets(_LOOKS, BURST * _LOOKS)
        self._known: OrderedDict[tuple[bool, bytes], tuple[float, Caller]] = OrderedDict()

    async def caller(self, request: Request) -> Caller | None:
        """Return who makes a request; None if it does not say.

        Args:
            request: The request.

        Raises:
            Refused: If its token or cookie is not valid, or if there were too many failures.
        """
        header = request.headers.get("authorization")
        if header is not None:
            scheme, _, token = header.partition(" ")
            token = token.strip() if scheme.lower() == "bearer" else ""
            return await self.by_token(request, token)
        secret = request.cookies.get(self._cookie(request))
        if secret is None:
            return None
        if request.method not in _SAFE and request.headers.get(HEADER) != "1":
            raise Refused(
                "not-allowed",
                "a request with the page's cookie that changes something needs the header "
                "X-Fedbo: 1",
            )
        return await self._found(request, secret, is_session=True)

    async def by_token(self, request: Request, token: str) -> Caller:
        """Return whose token this is.

        Args:
            request: The request that it came with.
            token: What it says is a token.
        """
        return await self._found(request, token, is_session=False)

    async def open_session(self, request: Request, token: str) -> Session:
        """Log in at the page.

        Args:
            request: The request; its failures count.
            token: The token of a member or an operator.
        """
        caller = await self.by_token(request, token)
        secret, expires = new_secret(), time.time() + 3600.0 * self._settings.session_hours
        await self._writer.submit(
            lambda connection: _insert_session(connection, caller, secret, expires)
        )
        return Session(secret, caller, expires)

    async def close_session(self, request: Request) -> None:
        """Log out: the cookie of this request, if it has one, is not valid any more.

        Args:
            request: The request.
        """
        secret = request.cookies.get(self._cookie(request))
        if secret is None or _SECRET.fullmatch(secret) is None:
            return
        hashed, row = digest(secret), schema.session.c
        self._known.pop((True, hashed), None)
        await self._writer.submit(
            lambda connection: (
                connection.execute(delete(schema.session).where(row.secret == hashed)).rowcount
            )
        )

    def set_cookie(self, request: Request, response: Response, session: Session) -> None:
        """Give the cookie of a session to the page.

        Args:
            request: The request to log in.
            response: Its answer.
            session: What `open_session` returned.
        """
        response.set_cookie(
            self._cookie(request),
            session.secret,
            max_age=max(0, int(session.expires - time.time())),
            path="/",
            secure=self._is_https(request),
            httponly=True,
            samesite="strict",
        )

    def remove_cookie(self, request: Request, response: Response) -> None:
        """Take the cookie away from the page.

        Args:
            request: The request to log out.
            response: Its answer.
        """
        response.delete_cookie(
            self._cookie(request),
            path="/",
            secure=self._is_https(request),
            httponly=True,
            samesite="strict",
        )

    def forget(self, hashed: bytes) -> None:
        """Look up a token again the next time, because it was changed.

        Args:
            hashed: Its hash.
        """
        self._known.pop((False, hashed), None)

    def failed(self, request: Request) -> None:
        """Count a failure of this address: a wrong token, cookie or invitation.

        Args:
            request: The request that failed.
        """
        self._failures.take(_record(request).address)

    def check_failures(self, request: Request) -> None:
        """Raise `Refused` if this address has failed too often.

        Args:
            request: A request that has something secret to check.
        """
        wait = self._failures.wait(_record(request).address)
        if wait > 0.0:
            raise _too_many(wait)

    def _cookie(self, request: Request) -> str:
        return SECURE_COOKIE if self._is_https(request) else COOKIE

    def _is_https(self, request: Request) -> bool:
        is_https = self._settings.public_url.startswith("https:")
        return is_https or request.url.scheme == "https"

    async def _found(self, request: Request, secret: str, *, is_session: bool) -> Caller:
        hashed = digest(secret)
        key = is_session, hashed
        when, known = self._known.get(key, (0.0, None))
        if known is not None and time.monotonic() - when < _BELIEVED:
            return known
        address = _record(request).address
        wait = self._failures.wait(address) if known is None else 0.0
        if wait > 0.0 and self._looks.take(address) > 0.0:
            raise _too_many(wait)
        expected = _SECRET if is_session else _TOKEN
        found = None
        if expected.fullmatch(secret):
            lookup = _by_session if is_session else _by_token
            found = await asyncio.to_thread(self._read, lookup, hashed)
        if found is None:
            self._known.pop(key, None)
            self.failed(request)
            if wait > 0.0:
                raise _too_many(wait)
            raise Refused(
                "wrong-token",
                "the log-in has ended: log in again"
                if is_session
                else "the token is unknown or was revoked, expected one as fedbo join keeps it or "
                "fedbo hub operator add printed it",
            )
        self._known[key] = time.monotonic(), found
        self._known.move_to_end(key)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return found

    def _read(self, lookup: Lookup, hashed: bytes) -> Caller | None:
        with self._engine.connect() as connection:
            return lookup(connection, hashed)


def _too_many(wait: float) -> Refused:
    return refuse_for(wait, "there were too many wrong tokens from this address")


def token_required() -> Refused:
    """Return the problem of a request that does not say who makes it."""
    return Refused("wrong-token", "a token is required: send Authorization: Bearer TOKEN")


def _record(request: Request) -> Record:
    record: Record = request.scope["fedbo"]
    return record


Lookup = Callable[[Connection, bytes], Caller | None]


def _by_token(connection: Connection, hashed: bytes) -> Caller | None:
    member = connection.execute(_MEMBER.where(schema.member.c.token == hashed)).first()
    if member is not None:
        return _member(*member)
    operator = connection.execute(_OPERATOR.where(schema.operator.c.token == hashed)).first()
    return None if operator is None else _operator(*operator)


def _by_session(connection: Connection, hashed: bytes) -> Caller | None:
    row, now = schema.session.c, time.time()
    found = connection.execute(
        select(row.operator, row.member).where(row.secret == hashed, row.expires > now)
    ).first()
    if found is None:
        return None
    if found.member is not None:
        is_it = schema.member.c.id == found.member, schema.member.c.token.is_not(None)
        member = connection.execute(_MEMBER.where(*is_it)).first()
        return None if member is None else _member(*member)
    operator = connection.execute(_OPERATOR.where(schema.operator.c.id == found.operator)).first()
    return None if operator is None else _operator(*operator)


def _member(
    number: int, name: str, federation: int, key: bytes | None, token: bytes, federation_name: str
) -> Caller:
    return Caller(
        role="member",
        id=number,
        name=name,
        federation=federation,
        federation_name=federation_name,
        key=bytes(key or b""),
        token=bytes(token),
    )


def _operator(number: int, name: str, token: bytes) -> Caller:
    return Caller(role="operator", id=number, name=name, token=bytes(token))


def _insert_session(connection: Connection, caller: Caller, secret: str, expires: float) -> None:
    row, whose = schema.session.c, schema.operator if caller.is_operator else schema.member
    valid = select(whose.c.token).where(whose.c.id == caller.id).with_for_update()
    if connection.scalar(valid) != caller.token:
        raise Refused("wrong-token", "the token was revoked or replaced meanwhile")
    connection.execute(delete(schema.session).where(row.expires < time.time()))
    own = row.operator if caller.is_operator else row.member
    ids = select(row.id).where(own == caller.id).order_by(row.id.desc())
    oldest = connection.execute(ids.offset(_MOST_SESSIONS - 1)).scalars().all()
    if oldest:
        connection.execute(delete(schema.session).where(row.id.in_(oldest)))
    values = {"secret": digest(secret), "expires": expires, own.name: caller.id}
    connection.execute(insert(schema.session).values(values))
