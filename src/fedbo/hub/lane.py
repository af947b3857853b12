"""A short way to the endpoints that are used most.

Finding the route of a request, and the layers of FastAPI on the way to it, take as long as a fetch.
"""

from __future__ import annotations

import re

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

_PATH = re.compile(r"/v1/federations/([^/]+)/(messages|fetch)")


class Lane:
    """Passes requests to publish and to fetch to their routes, and all others on.

    Args:
        app: The rest of the application.
        main: The application that has the routes.
    """

    def __init__(self, app: ASGIApp, main: FastAPI) -> None:
        self._app, self._main = app, main
        self._routes: dict[tuple[str, str], Route] = {}

    def add(self, route: Route) -> None:
        pass

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (found := _PATH.fullmatch(scope["path"])) is not None:
            federation, last = found.groups()
            route = self._route(scope["method"], last)
            if route is not None:
                scope["app"] = self._main
                scope["route"] = route
                scope["endpoint"] = route.endpoint
                scope["path_params"] = {"federation": federation}
                await route.handle(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _route(self, method: str, last: str) -> Route | None:
        if not self._routes:
            for route in self._main.routes:
                if isinstance(route, Route) and getattr(route, "is_plain", False):
                    for one in route.methods or ():
                        self._routes[one, route.path.rpartition("/")[2]] = route
        return self._routes.get((method, last))
