"""The audit log, as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.responses import Response, StreamingResponse

from fedbo.hub import admin
from fedbo.hub.api.endpoint import Called, Resource
from fedbo.hub.api.federations import Name

resource = Resource("audit")

MEDIA_TYPE = "application/x-ndjson"
_PIECE = 2**16  # characters that are sent at once
_LINES = {"description": "One JSON object in each line.", "content": {MEDIA_TYPE: {}}}


@resource.endpoint("GET", "/v1/federations/{federation}/audit", "both", answers=_LINES, cost=10)
async def federation_audit(call: Called, federation: Name) -> Response:
    """Export the audit log of a federation; a member gets only the lines about itself."""
    caller = call.known
    if caller.is_operator:
        lines = admin.audit_lines(call.service.engine, federation)
    else:
        own = await call.service.read(
            lambda there: admin.find_member(there, federation, caller.name)
        )
        lines = admin.audit_lines(
            call.service.engine, federation, member=caller.name, since=own.joined
        )
    return _streamed(lines, f"{federation}-audit.jsonl")


@resource.endpoint("GET", "/v1/audit", "operator", answers=_LINES)
async def hub_audit(call: Called) -> Response:
    """Export the audit log of the whole hub."""
    return _streamed(admin.audit_lines(call.service.engine), "hub-audit.jsonl")


def _streamed(lines: Iterator[str], name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(_pieces(lines), media_type=MEDIA_TYPE, headers=headers)


def _pieces(lines: Iterator[str]) -> Iterator[str]:
    gathered: list[str] = []
    size = 0
    for line in lines:
        gathered.append(line)
        if (size := size + len(line)) >= _PIECE:
            yield "".join(gathered)
            gathered, size = [], 0
    yield "".join(gathered)
