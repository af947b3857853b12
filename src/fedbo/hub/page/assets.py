"""The files that a browser loads: the page itself, and the documentation of the API (Swagger UI).

Swagger UI comes from the wheel of fastapi-offline, so that the browser need not ask a CDN.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_SWAGGER = ("swagger-ui-bundle.js", "swagger-ui.css")

#: What a document from here may load: nothing from anywhere else, and nothing inline.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)


class _Asset(NamedTuple):
    """A file that a browser loads."""

    data: bytes
    headers: dict[str, str]


@cache
def _assets() -> dict[str, _Asset]:
    """Read all files; they are found by the path under which a browser asks for them."""
    own = resources.files(__package__) / "static"
    swagger = resources.files("fastapi_offline") / "static"
    paths = {f"/static/{path.name}": path for path in own.iterdir() if path.is_file()}
    paths |= {f"/static/{name}": swagger / name for name in _SWAGGER}
    paths |= {"/": own / "index.html", "/docs": own / "docs.html"}
    assets = {}
    for place, path in paths.items():
        data = path.read_bytes()
        headers = {
            "Content-Type": _TYPES[path.name.rpartition(".")[2]],
            "ETag": tag(data),
            "Cache-Control": "no-cache",
            "Content-Security-Policy": _POLICY,
        }
        assets[place] = _Asset(data, headers)
    return assets


def tag(data: bytes) -> str:
    """Return the entity tag of what a browser may keep."""
    return f'"{hashlib.sha256(data).hexdigest()[:32]}"'


def is_known(request: Request, tag: str) -> bool:
    """Tell whether the caller has what this tag stands for.

    A proxy that compresses may have made it a weak one.
    """
    given = request.headers.get("if-none-match", "")
    return tag in (each.strip().removeprefix("W/") for each in given.split(","))


def _answer(request: Request) -> Response:
    if (asset := _assets().get(request.scope["path"])) is None:
        raise HTTPException(404)
    if is_known(request, asset.headers["ETag"]):
        return Response(status_code=304, headers=asset.headers)
    return Response(asset.data, headers=asset.headers)


def mount(router: APIRouter) -> None:
    """Add the files to the routes of the page."""
    for path in ("/", "/docs", "/static/{name}"):
        router.add_api_route(path, _answer, methods=["GET", "HEAD"], include_in_schema=False)
