"""The files that a browser loads: the page itself, and the documentation of the API (Swagger UI).

Swagger UI comes from the wheel of fastapi-offline, so that the browser need not ask a CDN.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache, cached_property
from importlib import resources
from importlib.resources.abc import Traversable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_STATIC = (".css", ".js", ".svg")
_SWAGGER = ("swagger-ui-bundle.js", "swagger-ui.css")

#: What a document from here may load: nothing from anywhere else, and nothing inline.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)


class Asset:
    """A file that a browser loads.

    Args:
        path: Where it is.
    """

    def __init__(self, path: Traversable) -> None:
        self._path = path

    @cached_property
    def _data(self) -> bytes:
        return self._path.read_bytes()

    @cached_property
    def _packed(self) -> bytes:
        return gzip.compress(self._data, 6, mtime=0)

    @cached_property
    def _headers(self) -> dict[str, str]:
        suffix = "." + self._path.name.rpartition(".")[2]
        return {
            "Content-Type": _TYPES[suffix],
            "ETag": f'"{hashlib.sha256(self._data).hexdigest()[:24]}"',
            "Cache-Control": "no-cache",
            "Vary": "Accept-Encoding",
            "Content-Security-Policy": _POLICY,
        }

    def answer(self, request: Request) -> Response:
        """Return the file, or say that the browser has it already.

        Args:
            request: The request.
        """
        headers = self._headers
        if is_known(request, headers["ETag"]):
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(self._packed, headers={**headers, "Content-Encoding": "gzip"})
        return Response(self._data, headers=headers)


def is_known(request: Request, tag: str) -> bool:
    """Tell whether the caller has what this tag stands for.

    Args:
        request: The request.
        tag: An entity tag. A proxy that compresses may have made it a weak one.
    """
    given = request.headers.get("if-none-match", "")
    return tag in (one.strip().removeprefix("W/") for one in given.split(","))


@cache
def _assets() -> dict[str, Asset]:
    """All files, by the path under which a browser finds them."""
    own = resources.files(__package__) / "static"
    found = {
        f"/static/{path.name}": Asset(path) for path in own.iterdir() if path.name.endswith(_STATIC)
    }
    swagger = resources.files("fastapi_offline") / "static"
    found |= {f"/static/{name}": Asset(swagger / name) for name in _SWAGGER}
    found["/"] = Asset(own / "index.html")
    found["/docs"] = Asset(own / "docs.html")
    return found


def _answer(request: Request) -> Response:
    if (asset := _assets().get(request.scope["path"])) is None:
        raise HTTPException(404)
    return asset.answer(request)


def mount(app: FastAPI) -> None:
    """Add the files to an application.

    Args:
        app: The application.
    """
    for path in ("/", "/docs", "/static/{name}"):
        app.router.add_api_route(
            path,
            _answer,
            methods=["GET", "HEAD"],
            include_in_schema=False,
            response_model=None,
        )
