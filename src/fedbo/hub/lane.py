"""A short way to the endpoints that are used most.

To find the route of a request, and to pass the layers of FastAPI on the way there, takes as long as
everything else that a fetch does.
"""

from __future__ import annotations

import re
from functools import cached_property

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

_PATH = re.compile(r"(/v1/federations/)([^/]+)(/messages|/fetch)")


class Lane:
    """Passes requests to plain endpoints of a federation to their routes, and all others on.

    Args:
        app: The rest of the application.
        main: The application that has the routes.
    """

    def __init__(self, app: ASGIApp, main: FastAPI) -> None:
        self._app, self._main = app, main

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (found := _PATH.fullmatch(scope["path"])) is not None:
            start, federation, end = found.groups()
            route = self._routes.get((scope["method"], f"{start}{{federation}}{end}"))
            if route is not None:
                scope["app"], scope["route"] = self._main, route
                scope["path_params"] = {"federation": federation}
                await route.handle(scope, receive, send)
                return
        await self._app(scope, receive, send)

    @cached_property
    def _routes(self) -> dict[tuple[str, str], Route]:
        """The routes of plain endpoints, by method and template of the path."""
        plain = (one for one in self._main.routes if getattr(one, "is_plain", False))
        routes = (one for one in plain if isinstance(one, Route))
        return {(method, one.path): one for one in routes for method in one.methods or ()}
