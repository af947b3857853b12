"""The hub itself: its version, its health, its numbers."""

from __future__ import annotations

import time
from typing import Literal

from pydantic import BaseModel
from sqlalchemy import func, select
from starlette.responses import Response

from fedbo.hub import schema
from fedbo.hub.api.endpoint import Called, Resource
from fedbo.hub.metrics import MEDIA_TYPE

resource = Resource("hub")


class HubInfo(BaseModel):
    """What a hub says about itself."""

    name: Literal["fedbo hub"] = "fedbo hub"
    version: str
    time: float


class Health(BaseModel):
    """That all is well."""

    status: Literal["ok"] = "ok"


@resource.endpoint("GET", "/v1/hub", "anyone")
async def hub(call: Called) -> HubInfo:
    """Tell that this is a hub, its version and its time."""
    from fedbo.version import __version__

    return HubInfo(version=__version__, time=time.time())


@resource.endpoint("GET", "/healthz", "anyone")
async def healthz() -> Health:
    """Tell that the process answers."""
    return Health()


@resource.endpoint("GET", "/readyz", "anyone")
async def readyz(call: Called) -> Health:
    """Tell that the database answers too."""
    await call.service.check_ready()
    return Health()


@resource.endpoint(
    "GET",
    "/metrics",
    "operator",
    answers={"description": "Numbers for Prometheus.", "content": {"text/plain": {}}},
)
async def metrics(call: Called) -> Response:
    """Return numbers for Prometheus."""
    federations = select(func.count()).select_from(schema.federation)
    members = select(func.count()).where(schema.member.c.token.is_not(None))
    releases = select(func.count()).select_from(schema.release)
    counts = await call.service.read(
        lambda there: [there.scalar(one) or 0 for one in (federations, members, releases)]
    )
    return Response(
        call.service.metrics.render(*counts),
        media_type=MEDIA_TYPE,
        headers={"cache-control": "no-store"},
    )
