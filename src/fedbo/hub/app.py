"""The application: all endpoints of a hub, what starts and stops with it, and how it answers.

Whatever happens inside, the answer is complete: what was refused is a problem (RFC 9457), and so is
a failure of the hub itself. Every request has a number, and leaves a line in the log. No secret is
in it: tokens, invitations and cookies are never logged, and of a path only the route's template.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedbo.hub import mailbox, page, routes
from fedbo.hub.access import Entry
from fedbo.hub.problems import MEDIA_TYPE, PROBLEMS, Refused
from fedbo.hub.service import Service
from fedbo.hub.settings import Settings
from fedbo.outside import shortened, without_password
from fedbo.version import __version__

_GONE = 499  # the status in the log if the caller hung up
_UNREAD = ("busy", "too-large", "too-slow")  # after these, the body may not have been read
_SHOWN = 5  # faults of a request
_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"x-frame-options": b"DENY",
    b"cross-origin-resource-policy": b"same-origin",
    # what a document from here may load: nothing from anywhere else, and nothing inline
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; "
    b"img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    b"base-uri 'none'",
}
_TRACE = 20_000  # characters
log = logging.getLogger(__name__)
#: Tokens, invitations, cookies and their hashes are all at least this long.
_SECRET = re.compile(r"[A-Za-z0-9_+/=-]{24,}")
_TOKEN = re.compile(r"fedbo-m-[A-Za-z0-9_-]{20,}")  # someone may have put one in a wrong place


def create_app(settings: Settings) -> FastAPI:
    """Return the application of a hub with these settings.

    Its ``state.service`` is the running `Service` once the application has started.
    """
    service = Service(settings)
    process = {"process": os.getpid()}

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            await run_in_threadpool(service.start)
        except BaseException:
            log.exception("not-started", extra={"fields": process})
            raise
        about = {"version": __version__, **process, "db": without_password(settings.db)}
        log.info("started", extra={"fields": about})
        upkeep = asyncio.create_task(service.look_after())
        try:
            yield
        finally:
            upkeep.cancel()
            # A thread goes on when its task is cancelled, and must give its connection back first.
            await asyncio.get_running_loop().shutdown_default_executor()
            service.stop()
            log.info("stopped", extra={"fields": process})

    app = FastAPI(
        title="fedbo hub",
        version=__version__,
        description="A mailbox for the messages of federations.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: _from_http, RequestValidationError: _from_validation},
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.service = service
    app.add_middleware(Shell, service=service)
    for module in (mailbox, routes, page):
        app.include_router(module.router, responses={"4XX": _problems(), "5XX": _problems()})
    app.mount("/static", page.files)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def log_as_json() -> None:
    """Let this program write what the hub and libraries log to standard error, as JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("fedbo.hub").setLevel(logging.INFO)


class JsonLines(logging.Formatter):
    """Writes what the hub and libraries log as one JSON object in each line.

    >>> fields = {"status": 200, "problem": ""}
    >>> line = {"name": "fedbo.hub", "msg": "request", "created": 0.0, "fields": fields}
    >>> JsonLines().format(logging.makeLogRecord(line))
    '{"time":"1970-01-01T00:00:00.000Z","event":"request","status":200}'
    """

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {"time": when.replace("+00:00", "Z"), "event": record.msg}
        if not record.name.startswith("fedbo.hub"):
            text = scrubbed(record.getMessage(), 500)
            line |= {"event": "library", "logger": record.name, "text": text}
        line |= {k: v for k, v in vars(record).get("fields", {}).items() if v not in ("", None)}
        if record.exc_info:
            line["traceback"] = scrubbed(self.formatException(record.exc_info), _TRACE)
        return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def scrubbed(text: str, most: int) -> str:
    """Leave out what may be a secret, and what is longer than so many characters.

    >>> scrubbed("the token fedbo-m-0123456789012345678901234567890123456789012 is wrong", 50)
    'the token (hidden) is wrong'
    """
    return shortened(_SECRET.sub("(hidden)", text), most)


class Problem(BaseModel):
    """Why something was refused (RFC 9457)."""

    type: str = Field(examples=["/problems/wrong-token"])
    title: str
    status: int
    detail: str = Field(description="What was given, what was expected, and what to do.")
    instance: str = Field(description="The number of the request, as the log has it.")


def _problems() -> dict[str, Any]:
    """Return what the documentation says about what can go wrong with any endpoint."""
    rows = [f"- `{slug}` ({status}): {title}." for slug, (status, title) in PROBLEMS.items()]
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": "A problem:\n\n" + "\n".join(rows), "content": content}


class Shell:
    """The outermost part of the application, through which every request passes."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        entry = scope["fedbo"] = Entry()
        added = {**_HEADERS, b"x-request-id": entry.id.encode()}
        is_file = not scope["path"].startswith("/v1")  # for a browser
        added[b"cache-control"] = b"no-cache" if is_file else b"no-store"
        if scope.get("scheme") == "https":
            added[b"strict-transport-security"] = b"max-age=86400"

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                entry.status = message["status"]
                headers = [*message.get("headers", ())]
                names = {name for name, _ in headers}
                headers += [item for item in added.items() if item[0] not in names]
                message["headers"] = headers
            await send(message)

        try:
            with self._service.under_way.hold():
                await self._app(scope, receive, answer)
        except ClientDisconnect:
            entry.status = _GONE
        except Exception as error:
            if entry.status:  # the answer has begun: only the server can break it off
                raise
            await _problem(_refused(error, entry), entry)(scope, receive, answer)
        finally:
            self._finish(scope, entry)

    def _finish(self, scope: Scope, entry: Entry) -> None:
        seconds = time.perf_counter() - entry.started
        route, method = getattr(scope.get("route"), "path", "(none)"), scope["method"]
        self._service.metrics.request(route, method, entry.status, seconds)
        fields = {
            "request": entry.id,
            "method": method,
            "route": route,
            "status": entry.status,
            "ms": round(seconds * 1e3, 1),
            "federation": entry.federation,
            "who": "" if entry.caller is None else entry.caller.name,
            "problem": entry.problem,
            "address": (scope.get("client") or ("",))[0],
        }
        log.info("request", extra={"fields": fields})


def _refused(error: Exception, entry: Entry) -> Refused:
    """Return the problem to answer with."""
    if isinstance(error, Refused):
        return error
    fields: dict[str, object] = {"request": entry.id}
    if isinstance(error, OperationalError | InterfaceError | PoolTimeout):  # as of a full disk
        fields["text"] = scrubbed(str(getattr(error, "orig", error)), 200)
        log.error("database", extra={"fields": fields})
        return Refused("not-ready", "the database does not answer; try again soon", 1)
    log.exception("failed", extra={"fields": fields})
    return Refused(
        "failed",
        "the hub failed, and nothing was changed by this request: try again, and tell its operator "
        "the number of the request if it stays so",
    )


def _problem(refused: Refused, entry: Entry) -> Response:
    """Return the answer that says why something was refused."""
    entry.problem = refused.slug
    document = refused.document(entry.id)
    document["detail"] = _TOKEN.sub("(a token)", document["detail"])
    headers = dict(refused.headers)
    if refused.retry_after is not None:
        headers["retry-after"] = str(refused.retry_after)
    if refused.slug in _UNREAD:
        headers["connection"] = "close"
    if refused.status == 401:
        headers["www-authenticate"] = 'Bearer realm="fedbo hub"'
    content = msgspec.json.encode(document)
    return Response(content, refused.status, headers, media_type=MEDIA_TYPE)


async def _from_http(request: Request, error: Exception) -> Response:
    """Turn what Starlette raises into a problem."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        refused = Refused("wrong-method", f"this address does not take {request.method}")
        refused.headers = error.headers or {}
        raise refused from None
    if error.status_code == 404:
        raise Refused("not-found", "there is nothing at this address: see /docs") from None
    raise Refused("wrong-request", shortened(str(error.detail), 200)) from None


async def _from_validation(_: Request, error: Exception) -> Response:
    """Turn what FastAPI finds wrong into a problem that does not repeat what was given."""
    assert isinstance(error, RequestValidationError)
    faults = [
        f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
        for fault in error.errors()[:_SHOWN]
    ]
    raise Refused("wrong-request", shortened("; ".join(faults), 500)) from None


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Return the description of the API, with what FastAPI does not know."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        schemas = document["components"].setdefault("schemas", {})
        schemas["Problem"] = Problem.model_json_schema()
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        app.openapi_schema = document
    return app.openapi_schema
