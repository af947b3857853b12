"""Logging in at the page, with a token, and logging out."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from fedbo.hub.api.endpoint import Called, Resource
from fedbo.hub.auth import Caller
from fedbo.hub.problems import Refused

resource = Resource("page")


class LogIn(BaseModel):
    """What is needed to log in."""

    model_config = ConfigDict(extra="forbid")

    token: str = Field(description="The token of a member or an operator.", max_length=200)


class Who(BaseModel):
    """Who is logged in."""

    role: Literal["member", "operator"] | None = Field(description="null: nobody.")
    name: str = ""
    federation: str = Field(default="", description="The federation of a member.")


@resource.endpoint("POST", "/v1/session", "anyone", "wrong-token")
async def log_in(call: Called, request: Request, response: Response, body: LogIn) -> Who:
    """Log in at the page: the answer sets a cookie."""
    opened = await call.service.auth.open_session(request, body.token)
    call.service.auth.set_cookie(request, response, opened)
    return _who(opened.caller)


@resource.endpoint("GET", "/v1/session", "anyone")
async def who_is_logged_in(call: Called, request: Request) -> Who:
    """Tell whose token or cookie this is."""
    try:
        caller = await call.service.auth.caller(request)
    except Refused as refused:
        if refused.slug != "wrong-token":
            raise
        caller = None
    return Who(role=None) if caller is None else _who(caller)


@resource.endpoint("DELETE", "/v1/session", "anyone", status=204)
async def log_out(call: Called, request: Request) -> Response:
    """Log out: the cookie is not valid any more."""
    await call.service.auth.close_session(request)
    response = Response(status_code=204)
    call.service.auth.remove_cookie(request, response)
    return response


def _who(caller: Caller) -> Who:
    return Who(role=caller.role, name=caller.name, federation=caller.federation_name)
