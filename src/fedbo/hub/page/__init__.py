"""The page of a hub: who is logged in, what it shows, and the files that a browser loads.

Everything comes from the hub itself; the page asks no other address for anything. Swagger UI, the
documentation of the API, comes from the wheel of fastapi-offline.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from fedbo.hub import store
from fedbo.hub.access import (
    AnyMember,
    BoundedRoute,
    Running,
    caller_of,
    possible_caller,
    session_of,
    set_cookie,
)
from fedbo.hub.problems import Refused
from fedbo.hub.records import (
    AuditLine,
    FederationInfo,
    Figures,
    Members,
    ReleaseLedger,
)
from fedbo.hub.routes import Name

#: How many members one answer lists.
MOST_MEMBERS = 200
_EVENTS = 40  # that are shown
_FOLDER = Path(__file__).parent / "static"

router = APIRouter(route_class=BoundedRoute)
files = StaticFiles(packages=[(__name__, "static"), ("fastapi_offline", "static")])


@router.get("/", include_in_schema=False)
@router.head("/", include_in_schema=False)
def index() -> Response:
    """Return the page."""
    return FileResponse(_FOLDER / "index.html")


@router.get("/docs", include_in_schema=False)
def docs() -> Response:
    """Return the documentation of the API."""
    return FileResponse(_FOLDER / "docs.html")


class LogIn(BaseModel, extra="forbid"):
    """What is needed to log in."""

    token: str = Field(description="The token of a member.", max_length=200)


class Who(BaseModel):
    """Who is logged in."""

    member: str | None = Field(description="null: nobody.")
    federation: str = ""


@router.post("/v1/session", tags=["page"])
def log_in(request: Request, response: Response, service: Running, body: LogIn) -> Who:
    """Log in at the page: the answer sets a cookie with a session of 12 hours, and no token."""
    caller = caller_of(request, service, body.token)
    with service.writing() as connection:
        set_cookie(request, response, store.log_in(connection, caller))
    return Who(member=caller.name, federation=caller.federation_name)


@router.get("/v1/session", tags=["page"])
def who_is_logged_in(request: Request, service: Running) -> Who:
    """Tell whose token or session this is."""
    try:
        caller = possible_caller(request, service)
    except Refused as refused:
        if refused.slug != "wrong-token":
            raise
        caller = None
    if caller is None:
        return Who(member=None)
    return Who(member=caller.name, federation=caller.federation_name)


@router.delete("/v1/session", tags=["page"], status_code=204)
def log_out(request: Request, response: Response, service: Running) -> None:
    """Log out: the session is over, and the browser forgets it."""
    if (session := session_of(request)) is not None:
        with service.writing() as connection:
            store.log_out(connection, session)
    set_cookie(request, response, "")


class Overview(BaseModel):
    """All that the page shows of a federation."""

    federation: FederationInfo
    figures: Figures
    members: Members
    releases: ReleaseLedger | None = Field(description="null: there is no privacy plan.")
    feed: list[AuditLine]


@router.get("/v1/federations/{federation}/overview", tags=["page"])
def overview(
    service: Running,
    caller: AnyMember,
    federation: Name,
    search: Annotated[str, Query(max_length=64, description="A text in members' names.")] = "",
    offset: Annotated[int, Query(ge=0, le=10**9, description="How many members to skip.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_MEMBERS, description="How many members.")] = 50,
) -> Overview:
    """Return all that the page shows of a federation."""
    if not search.isprintable():
        raise Refused("wrong-request", "search has characters that cannot be printed")
    with service.reading() as connection:
        row = store.find_federation(connection, federation)
        (info,) = store.federations(connection, row.name)
        return Overview(
            federation=info,
            figures=store.figures_of(connection, row),
            members=store.members(connection, row.name, search=search, offset=offset, most=limit),
            releases=store.ledger(connection, row.name) if row.is_private else None,
            feed=store.latest_lines(connection, row.name, _EVENTS, member_id=caller.id),
        )
