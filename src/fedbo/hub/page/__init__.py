"""The page of a hub: who is logged in, what it shows, and the files that a browser loads.

Everything comes from the hub itself; the page asks no other address for anything.
"""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from fedbo.hub import store
from fedbo.hub.access import (
    Anyone,
    BoundedRoute,
    Running,
    caller_of,
    cookie_name,
    possible_caller,
    set_cookie,
)
from fedbo.hub.page import assets
from fedbo.hub.problems import Refused
from fedbo.hub.records import (
    Activity,
    AuditLine,
    Figures,
    Health,
    Members,
    OpenInvitation,
    Progress,
    ReleaseLedger,
)
from fedbo.hub.routes import Name

#: How many members one answer lists.
MOST_MEMBERS = 200
_EVENTS = 40  # that are shown

router = APIRouter(route_class=BoundedRoute)
assets.mount(router)


class LogIn(BaseModel):
    """What is needed to log in."""

    model_config = ConfigDict(extra="forbid")

    token: str = Field(description="The token of a member or an operator.", max_length=200)


class Who(BaseModel):
    """Who is logged in."""

    role: Literal["member", "operator"] | None = Field(description="null: nobody.")
    name: str = ""
    federation: str = Field(default="", description="The federation of a member.")


@router.post("/v1/session", tags=["page"])
def log_in(request: Request, response: Response, service: Running, body: LogIn) -> Who:
    """Log in at the page: the answer sets a cookie."""
    caller = caller_of(request, service, body.token)
    seconds = 3600.0 * service.settings.session_hours
    with service.writing() as connection:
        secret = store.open_session(connection, caller, time.time() + seconds)
    set_cookie(request, response, secret, seconds)
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
def log_out(request: Request, service: Running) -> Response:
    """Log out: the cookie is not valid any more."""
    response = Response(status_code=204)
    if secret := request.cookies.get(cookie_name(request)):
        with service.writing() as connection:
            store.close_session(connection, secret)
    set_cookie(request, response, "", 0)
    return response


class FederationShown(BaseModel):
    """The head of the page."""

    name: str
    fingerprint: str
    created: float
    direction: str


class MembersShown(Members):
    """A page of the table of members, and which one."""

    search: str
    sort: Literal["name", "seen"]
    offset: int
    limit: int


class Overview(BaseModel):
    """All that the page shows of a federation."""

    federation: FederationShown
    figures: Figures
    health: Health
    members: MembersShown
    activity: Activity
    progress: Progress
    releases: ReleaseLedger | None = Field(description="null: there is no privacy plan.")
    feed: list[AuditLine]
    invitations: list[OpenInvitation]


@router.get(
    "/v1/federations/{federation}/overview",
    tags=["page"],
    response_model=Overview,
)
def overview(
    request: Request,
    response: Response,
    service: Running,
    caller: Anyone,
    federation: Name,
    search: Annotated[str, Query(max_length=64, description="A text in members' names.")] = "",
    sort: Annotated[
        Literal["name", "seen"], Query(description="The order of the members.")
    ] = "name",
    offset: Annotated[int, Query(ge=0, le=10**9, description="How many members to skip.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_MEMBERS, description="How many members.")] = 50,
) -> Overview | Response:
    """Return all that the page shows of a federation. Its ETag changes when something has."""
    if not search.isprintable():
        raise Refused("wrong-request", "search has characters that cannot be printed")
    with service.reading() as connection:
        row = store.find_federation(connection, federation)
        state = store.state_of(connection, row)
        view = f"{state} {caller.role} {caller.id} {search} {sort} {offset} {limit}"
        headers = {"etag": assets.tag(view.encode()), "cache-control": "private, no-cache"}
        if assets.is_known(request, headers["etag"]):
            return Response(status_code=304, headers=headers)
        response.headers.update(headers)
        agreed, activity = row.agreed, store.activity_of(connection, row.name)
        figures = store.figures_of(connection, row, activity)
        members = store.members(
            connection, row.name, search=search, order=sort, offset=offset, most=limit
        )
        return Overview(
            federation=FederationShown(
                name=row.name,
                fingerprint=str(agreed.fingerprint),
                created=row.created,
                direction=agreed.space.direction,
            ),
            figures=figures,
            health=store.health_of(connection, row, figures, activity),
            members=MembersShown(
                matching=members.matching,
                rows=members.rows,
                search=search,
                sort=sort,
                offset=offset,
                limit=limit,
            ),
            activity=activity,
            progress=store.progress_of(connection, row),
            releases=store.ledger(connection, row.name) if row.is_private else None,
            feed=store.latest_lines(
                connection,
                row.name,
                _EVENTS,
                member_id=None if caller.is_operator else caller.id,
            ),
            invitations=store.invitations(connection, row.name) if caller.is_operator else [],
        )
