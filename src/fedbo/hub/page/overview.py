"""The overview of a federation: all that the page shows, in one answer.

The page asks every few seconds. Mostly nothing has changed, and one small query finds that out.
What all viewers see is computed for all of them at once, and not too often.
"""

from __future__ import annotations

import gzip
import hashlib
import time
from collections import OrderedDict
from typing import Annotated, NamedTuple

import msgspec
from fastapi import Query
from sqlalchemy import Connection, select
from starlette.requests import Request
from starlette.responses import Response

from fedbo.federation import Federation
from fedbo.federation.likeness import Likeness
from fedbo.hub import schema
from fedbo.hub.api.endpoint import Called, Resource
from fedbo.hub.api.federations import Name
from fedbo.hub.page.activity import Activity, Hours
from fedbo.hub.page.assets import is_known
from fedbo.hub.page.kept import Kept, Latest
from fedbo.hub.page.map import Map, draw
from fedbo.hub.page.people import (
    Event,
    Invited,
    People,
    Sort,
    View,
    events,
    invitations,
    people,
)
from fedbo.hub.page.summary import Figures, Health, Progress, Releases, Summary, summarise
from fedbo.hub.problems import Refused
from fedbo.hub.service import Service

resource = Resource("page")

#: How many members one answer lists.
MOST_MEMBERS = 200
_BUCKET = 20  # seconds after which times are looked at again, though nothing has happened
_SUMMARY_PAUSE, _MAP_PAUSE = 2.0, 10.0  # seconds
_MOST_KEPT = 50  # federations
_SMALL = 2000  # bytes that are not worth compressing


class FederationShown(msgspec.Struct, frozen=True):
    """The head of the page."""

    name: str
    epoch: int
    fingerprint: str
    created: float
    direction: str


class Overview(msgspec.Struct, frozen=True):
    """All that the page shows of a federation."""

    federation: FederationShown
    figures: Figures
    health: Health
    members: People
    map: Map
    activity: Activity
    progress: Progress
    releases: Releases | None
    feed: list[Event]
    invitations: list[Invited]


class Head(NamedTuple):
    """What changes when anything in a federation changes."""

    generation: str
    name: str
    epoch: int
    cursor: int
    created: float
    last: int  # line of the audit log
    bucket: int


class _Shown:
    """What is kept of one federation."""

    def __init__(self) -> None:
        self.summary: Kept[Summary] = Kept(_SUMMARY_PAUSE)
        self.map: Kept[Map] = Kept(_MAP_PAUSE)
        self.hours = Hours()
        self.likeness: tuple[int, Likeness] | None = None  # and its epoch


class Overviews:
    """What is kept of all federations that are looked at. It belongs to one event loop."""

    def __init__(self) -> None:
        self._shown: OrderedDict[tuple[str, int], _Shown] = OrderedDict()

    def _of(self, head: Head, federation: int) -> _Shown:
        key = head.generation, federation
        shown = self._shown.setdefault(key, _Shown())
        self._shown.move_to_end(key)
        if len(self._shown) > _MOST_KEPT:
            self._shown.popitem(last=False)
        return shown

    async def summary(self, service: Service, head: Head, federation: int) -> Latest[Summary]:
        """Return what every viewer sees.

        Args:
            service: The hub.
            head: The federation.
            federation: Its id.
        """
        shown = self._of(head, federation)
        state = head.epoch, head.cursor, head.last, head.bucket
        return await shown.summary.latest(
            state,
            lambda: service.read(
                lambda there: summarise(there, federation, head.name, head.epoch, shown.hours)
            ),
        )

    async def map(
        self, service: Service, head: Head, federation: int, agreed: Federation
    ) -> Latest[Map]:
        """Return the map of who resembles whom; an empty one if contributions are private.

        Args:
            service: The hub.
            head: The federation.
            federation: Its id.
            agreed: What its agents agree on.
        """
        shown = self._of(head, federation)

        def drawn(connection: Connection) -> Map:
            if agreed.privacy is not None:
                return Map(head.generation, head.cursor, 0, [])
            if shown.likeness is None or shown.likeness[0] != agreed.epoch:
                shown.likeness = agreed.epoch, Likeness(agreed)
            likeness = shown.likeness[1]
            return draw(connection, federation, agreed, likeness, head.generation, head.cursor)

        return await shown.map.latest((head.epoch, head.cursor), lambda: service.read(drawn))


@resource.endpoint(
    "GET",
    "/v1/federations/{federation}/overview",
    "both",
    answers={
        "description": "All that the page shows. Its ETag changes when something has changed.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    },
    cost=10,
)
async def overview(
    call: Called,
    request: Request,
    federation: Name,
    search: Annotated[str, Query(max_length=64, description="A text in members' names.")] = "",
    sort: Annotated[Sort, Query(description="The order of the members.")] = "name",
    offset: Annotated[int, Query(ge=0, le=10**9, description="How many members to skip.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_MEMBERS, description="How many members.")] = 50,
) -> Response:
    """Return all that the page shows of a federation."""
    if not search.isprintable():
        raise Refused("wrong-request", "search has characters that cannot be printed")
    service, number, caller = call.service, call.federation_id, call.known
    view = View(search, sort, offset, limit)
    overviews: Overviews = request.app.state.overviews
    head = await service.read(lambda connection: _head(connection, number))
    agreed = await service.agreed(number, head.epoch)
    summary = await overviews.summary(service, head, number)
    map_ = await overviews.map(service, head, number, agreed)
    tag = _tag(head, summary.state, map_.state, caller.role, caller.id, view)
    headers = {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
    if is_known(request, tag):
        return Response(status_code=304, headers=headers)

    def assembled(connection: Connection) -> bytes:
        found = Overview(
            federation=FederationShown(
                head.name,
                head.epoch,
                str(agreed.fingerprint),
                head.created,
                agreed.space.direction,
            ),
            figures=summary.value.figures,
            health=summary.value.health,
            activity=summary.value.activity,
            progress=summary.value.progress,
            releases=summary.value.releases,
            map=map_.value,
            members=people(
                connection, number, view, is_larger_best=agreed.space.direction == "maximize"
            ),
            feed=events(connection, head.name, caller),
            invitations=invitations(connection, head.name) if caller.is_operator else [],
        )
        return msgspec.json.encode(found)

    body = await service.read(assembled)
    if len(body) > _SMALL and "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["Content-Encoding"] = gzip.compress(body, 4), "gzip"
    return Response(body, headers=headers, media_type="application/json")


def _head(connection: Connection, federation: int) -> Head:
    audit, here = schema.audit.c, schema.federation.c
    last = (
        select(audit.id)
        .where(audit.federation == here.name)
        .order_by(audit.time.desc(), audit.id.desc())
        .limit(1)
        .correlate(schema.federation)
        .scalar_subquery()
    )
    hub = select(schema.hub.c.generation).where(schema.hub.c.id == 1).scalar_subquery()
    query = select(hub, here.name, here.epoch, here.cursor, here.created, last)
    found = connection.execute(query.where(here.id == federation)).first()
    if found is None:
        raise Refused("no-such-federation", "there is no such federation, or it is not yours")
    generation, name, epoch, cursor, created, line = found
    bucket = int(time.time() // _BUCKET)
    return Head(generation, name, epoch, cursor, created, line or 0, bucket)


def _tag(*parts: object) -> str:
    return f'"{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}"'
