"""The application: all endpoints of a hub, and what starts and stops with it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import anyio.to_thread
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Match

from fedbo.hub import page, schedule
from fedbo.hub.api import (
    audit,
    federations,
    hub,
    invitations,
    member,
    members,
    messages,
    progress,
    releases,
    scalars,
)
from fedbo.hub.api.endpoint import Problem
from fedbo.hub.auth import COOKIE, SECURE_COOKIE
from fedbo.hub.lane import Lane
from fedbo.hub.log import Handler, Log
from fedbo.hub.metrics import Metrics
from fedbo.hub.problems import Refused
from fedbo.hub.service import Service
from fedbo.hub.settings import Settings
from fedbo.hub.shell import Shell
from fedbo.outside import shortened

_MODULES = (
    messages,
    hub,
    federations,
    invitations,
    members,
    member,
    scalars,
    progress,
    releases,
    audit,
)
_METHODS = ("GET", "PUT", "POST", "DELETE")
_SHOWN = 5  # faults of a request


def create_app(settings: Settings, log: Log | None = None) -> FastAPI:
    """Return the application of a hub.

    Its ``state.service`` is the running `Service` once the application has started.

    Args:
        settings: The settings of the hub.
        log: Where lines go; by default to standard error.
    """
    from fedbo.version import __version__

    log, metrics = log or Log(settings.log), Metrics()
    service = Service(settings, log, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            await anyio.to_thread.run_sync(service.start)
        except BaseException as error:
            log.error("not-started", error, process=os.getpid())
            log.close()
            raise
        log.write("started", version=__version__, process=os.getpid(), db=settings.shown_db())
        tasks = [
            asyncio.create_task(service.prune_daily()),
            asyncio.create_task(schedule.run(service)),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            # A read goes on in its thread when its task is cancelled, and must give its connection
            # back before the database is closed.
            await asyncio.get_running_loop().shutdown_default_executor()
            await anyio.to_thread.run_sync(service.stop)
            log.write("stopped", process=os.getpid())
            log.close()

    app = FastAPI(
        title="fedbo hub",
        version=__version__,
        description="A mailbox for the messages of federations.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            HTTPException: _from_http,
            RequestValidationError: _from_validation,
        },
    )
    app.state.service = service
    app.add_middleware(Lane, main=app)
    app.add_middleware(Shell, log=log, metrics=metrics, at_once=service.at_once)
    for module in _MODULES:
        module.resource.mount(app)
    page.mount(app)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def from_environ() -> FastAPI:
    """Return the application of a hub whose settings are in the environment.

    What libraries log goes to the log of the hub.
    """
    settings = Settings.from_environ(os.environ)
    log = Log(settings.log)
    logging.getLogger().addHandler(Handler(log))
    return create_app(settings, log)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Return the description of the API, with what FastAPI does not know."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
        )
        components = made.setdefault("components", {})
        components["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer"},
            "session": {
                "type": "apiKey",
                "in": "cookie",
                "name": COOKIE,
                "description": f"Through HTTPS, its name is {SECURE_COOKIE}.",
            },
        }
        schemas = components.setdefault("schemas", {})
        schemas["Problem"] = Problem.model_json_schema()
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        app.openapi_schema = made
    return app.openapi_schema


async def _from_http(request: Request, error: Exception) -> NoReturn:
    """Turn what Starlette raises into a problem."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        request.scope["fedbo"].allowed = ", ".join(_allowed(request))
        raise Refused("wrong-method", f"this address does not take {request.method}") from None
    if error.status_code == 404:
        raise Refused("not-found", "there is nothing at this address: see /docs") from None
    raise Refused("wrong-request", shortened(str(error.detail), 200)) from None


async def _from_validation(_: Request, error: Exception) -> NoReturn:
    """Turn what FastAPI finds wrong into a problem that does not repeat what was given."""
    assert isinstance(error, RequestValidationError)
    faults = [
        f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}"
        for one in error.errors()[:_SHOWN]
    ]
    raise Refused("wrong-request", shortened("; ".join(faults), 500)) from None


def _allowed(request: Request) -> list[str]:
    scope = request.scope
    found = []
    for method in _METHODS:
        asked = {"type": "http", "path": scope["path"], "method": method}
        routes = request.app.router.routes
        if any(route.matches(dict(asked))[0] == Match.FULL for route in routes):
            found.append(method)
    return found
