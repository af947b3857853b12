"""The page of a hub: who is logged in, what it shows, and the files that a browser loads.

Everything comes from the hub itself; the page asks no other address for anything. Swagger UI, the
documentation of the API, comes from the wheel of fastapi-offline.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from fedbo.hub import store
from fedbo.hub.access import Anyone, BoundedRoute, Running, caller_of, possible_caller, set_cookie
from fedbo.hub.problems import Refused
from fedbo.hub.records import (
    AuditLine,
    FederationInfo,
    Figures,
    Members,
    OpenInvitation,
    ReleaseLedger,
)
from fedbo.hub.routes import Name, Question

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


class LogIn(Question):
    """What is needed to log in."""

    token: str = Field(description="The token of a member or an operator.", max_length=200)


class Who(BaseModel):
    """Who is logged in."""

    role: Literal["member", "operator"] | None = Field(description="null: nobody.")
    name: str = ""
    federation: str = Field(default="", description="The federation of a member.")


@router.post("/v1/session", tags=["page"])
def log_in(request: Request, response: Response, service: Running, body: LogIn) -> Who:
    """Log in at the page: the answer sets a cookie, from which no script can read the token."""
    caller = caller_of(request, service, body.token)
    set_cookie(request, response, body.token)
    return Who(role=caller.role, name=caller.name, federation=caller.federation_name)


@router.get("/v1/session", tags=["page"])
def who_is_logged_in(request: Request, service: Running) -> Who:
    """Tell whose token or cookie this is."""
    try:
        caller = possible_caller(request, service)
    except Refused as refused:
        if refused.slug != "wrong-token":
            raise
        caller = None
    if caller is None:
        return Who(role=None)
    return Who(role=caller.role, name=caller.name, federation=caller.federation_name)


@router.delete("/v1/session", tags=["page"], status_code=204)
def log_out(request: Request, response: Response) -> None:
    """Log out: the browser forgets the cookie."""
    set_cookie(request, response, "")


class Overview(BaseModel):
    """All that the page shows of a federation."""

    federation: FederationInfo
    is_reconciled: bool = Field(description="false: the hub was restored, and it is closed.")
    figures: Figures
    members: Members
    releases: ReleaseLedger | None = Field(description="null: there is no privacy plan.")
    feed: list[AuditLine]
    invitations: list[OpenInvitation]


@router.get("/v1/federations/{federation}/overview", tags=["page"])
def overview(
    service: Running,
    caller: Anyone,
    federation: Name,
    search: Annotated[str, Query(max_length=64, description="A text in members' names.")] = "",
    sort: Annotated[store.Order, Query(description="The order of the members.")] = "name",
    offset: Annotated[int, Query(ge=0, le=10**9, description="How many members to skip.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_MEMBERS, description="How many members.")] = 50,
) -> Overview:
    """Return all that the page shows of a federation."""
    if not search.isprintable():
        raise Refused("wrong-request", "search has characters that cannot be printed")
    own = None if caller.is_operator else caller.id
    with service.reading() as connection:
        row = store.find_federation(connection, federation)
        (info,) = store.federations(connection, row.name)
        return Overview(
            federation=info,
            is_reconciled=not row.is_unreconciled,
            figures=store.figures_of(connection, row),
            members=store.members(
                connection, row.name, search=search, order=sort, offset=offset, most=limit
            ),
            releases=store.ledger(connection, row.name) if row.is_private else None,
            feed=store.latest_lines(connection, row.name, _EVENTS, member_id=own),
            invitations=store.invitations(connection, row.name) if caller.is_operator else [],
        )
