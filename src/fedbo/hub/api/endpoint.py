"""How an endpoint is declared: who may use it, how large its body may be, and what can go wrong.

Who it is, is found out before the body is read, and the body is read before anything else happens.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from fedbo.hub.auth import Caller, token_required
from fedbo.hub.limits import JSON_BYTES, read_body, refuse_for
from fedbo.hub.problems import MEDIA_TYPE, PROBLEMS, Refused
from fedbo.hub.service import NO_FEDERATION, Service
from fedbo.hub.shell import Record

#: Who may use an endpoint: anyone; whoever has an invitation; a member of the federation; an
#: operator; a member or an operator.
Who = Literal["anyone", "invited", "member", "operator", "both"]

F = TypeVar("F", bound=Callable[..., Any])

_ROLES: dict[Who, str] = {
    "anyone": "Anyone may ask.",
    "invited": "Needs the secret of an invitation.",
    "member": "Needs the token of a member of the federation.",
    "operator": "Needs the token of an operator.",
    "both": "Needs the token of a member of the federation, or of an operator.",
}
_MOST_OF_MEMBER = 32  # requests that run at the same time
_SECURITY: list[dict[str, list[str]]] = [{"token": []}, {"session": []}]
_ALWAYS = ("too-many-requests", "failed", "not-ready")
_IDENTIFIED = ("wrong-token", "not-allowed", *_ALWAYS)


class Problem(BaseModel):
    """Why something was refused (RFC 9457)."""

    type: str = Field(examples=["/problems/wrong-token"])
    title: str
    status: int
    detail: str = Field(description="What was given, what was expected, and what to do.")
    instance: str = Field(description="The number of the request, as the log has it.")


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was let in.

    Args:
        service: The hub.
        record: Its line in the log.
        caller: Who makes it; None if that does not matter.
        federation: The name of the federation that it is about; empty if it is about none.
        federation_id: The id of that federation.
    """

    service: Service
    record: Record
    caller: Caller | None
    federation: str = ""
    federation_id: int = 0

    @property
    def known(self) -> Caller:
        """Who makes it, where that matters."""
        assert self.caller is not None
        return self.caller


def _call(request: Request) -> Call:
    call: Call = request.scope["fedbo.call"]
    return call


Called = Annotated[Call, Depends(_call)]


class Resource:
    """Endpoints that belong together.

    Args:
        tag: What they are about.
    """

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._added: list[Callable[[FastAPI], None]] = []

    def endpoint(
        self,
        method: Literal["GET", "PUT", "POST", "DELETE"],
        path: str,
        who: Who,
        *problems: str,
        status: int = 200,
        most: int = JSON_BYTES,
        extra: dict[str, Any] | None = None,
        answers: dict[str, Any] | None = None,
        is_plain: bool = False,
        cost: int = 1,
    ) -> Callable[[F], F]:
        """Declare an endpoint.

        Args:
            method: Its method.
            path: The template of its path.
            who: Who may use it.
            *problems: What can go wrong, beside what can go wrong everywhere.
            status: The status if all goes well.
            most: How many bytes its body may have.
            extra: More about it for the documentation.
            answers: What the documentation says about its answer, if it is not JSON.
            is_plain: Whether it gets the call and the request, and reads the body itself: faster.
            cost: How many requests it counts as, for the limit of a member.
        """

        def declare(function: F) -> F:
            self._added.append(lambda app: add(app, function))
            return function

        def add(app: FastAPI, function: Callable[..., Any]) -> None:
            everywhere = _ALWAYS if who in ("anyone", "invited") else _IDENTIFIED
            scoped = ("no-such-federation",) if "{federation}" in path else ()
            bodied = () if method in ("GET", "DELETE") else ("too-large", "too-slow")
            slugs = (*problems, *everywhere, *scoped, *bodied, "wrong-request")
            secured = {} if who in ("anyone", "invited") else {"security": _SECURITY}
            responses = problem_responses(slugs)
            shown: dict[str, Any] = {}
            if answers is not None:
                responses[status] = answers
                shown = {"response_model": None, "response_class": Response}
            app.router.add_api_route(
                path,
                function,
                methods=[method],
                status_code=status,
                responses=responses,
                **shown,
                tags=[self._tag],
                description=f"{inspect.cleandoc(function.__doc__ or '')}\n\n{_ROLES[who]}",
                operation_id=function.__name__,
                openapi_extra={**secured, **(extra or {})},
                route_class_override=_plain(who, cost) if is_plain else _guarded(who, most, cost),
            )

        return declare

    def mount(self, app: FastAPI) -> None:
        """Add the endpoints to an application.

        Args:
            app: The application.
        """
        for add in self._added:
            add(app)


def problem_responses(slugs: tuple[str, ...]) -> dict[int | str, dict[str, Any]]:
    """Return what the documentation says about problems.

    Args:
        slugs: The problems.
    """
    found: dict[int, list[str]] = {}
    for slug in dict.fromkeys(slugs):
        status, title = PROBLEMS[slug]
        found.setdefault(status, []).append(f"{title} (`{slug}`).")
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {"description": " ".join(titles), "content": content}
        for status, titles in sorted(found.items())
    }


async def admit(request: Request, who: Who, cost: int = 1) -> Call:
    """Find out who makes a request, and let it in if it may.

    Args:
        request: The request.
        who: Who may make it.
        cost: How many requests it counts as.

    Raises:
        Refused: If it may not.
    """
    service: Service = request.app.state.service
    record: Record = request.scope["fedbo"]
    if who in ("anyone", "invited"):
        if who == "invited":
            service.auth.check_failures(request)
        if request.method != "GET":
            _take(service, record.address)
        return Call(service, record, None)
    caller = await service.auth.caller(request)
    if caller is None:
        raise token_required()
    record.caller = caller
    if not caller.is_operator:
        _take(service, caller.id, cost)
        _enter(service, record, caller.id)
        service.writer.note_seen(caller.id)
    name = request.path_params.get("federation", "")
    if not name:
        _check_role(caller, who)
        return Call(service, record, caller)
    if not caller.is_operator and name != caller.federation_name:
        raise Refused("no-such-federation", NO_FEDERATION)
    number = caller.federation or await service.federation_id(name)
    record.federation = name
    _check_role(caller, who)
    return Call(service, record, caller, name, number)


def _check_role(caller: Caller, who: Who) -> None:
    if who not in ("both", caller.role):
        needed, yours = ("an operator", "a member") if who == "operator" else (
            "a member", "an operator"
        )  # fmt: skip
        raise Refused("not-allowed", f"this needs the token of {needed}, and yours is {yours}'s")


def _take(service: Service, key: int | str, cost: int = 1) -> None:
    if wait := service.requests.take(key, cost=cost):
        raise refuse_for(wait, f"more than {service.settings.rate:g} requests a second")


def _enter(service: Service, record: Record, member: int) -> None:
    """Count a request of a member as long as it runs."""
    if not service.at_once.enter(member, _MOST_OF_MEMBER):
        text = f"{_MOST_OF_MEMBER} requests of this member are not answered yet"
        raise Refused("too-many-requests", f"{text}: try again in 1 s", 1)
    record.running.append(member)


def _guarded(who: Who, most: int, cost: int) -> type[APIRoute]:
    """Make the class of a route that lets in whom it may, and reads a body of at most so much."""

    class Guarded(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def admitted(request: Request) -> Response:
                try:
                    call = request.scope["fedbo.call"] = await admit(request, who, cost)
                    body = b""
                    if request.method not in ("GET", "DELETE"):
                        body = await read_body(request, most)
                        call.record.received = len(body)
                    return await handle(Request(request.scope, _replayed(body)))
                except Refused as refused:
                    await _note(request, refused)
                    raise

            return admitted

    return Guarded


def _plain(who: Who, cost: int) -> type[APIRoute]:
    """Make the class of a route whose function gets the call and the request, and nothing else."""

    class Plain(APIRoute):
        is_plain = True

        async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
            if scope["method"] not in (self.methods or ()):
                await super().handle(scope, receive, send)
                return
            request = Request(scope, receive, send)
            try:
                call = await admit(request, who, cost)
                response = await self.endpoint(call, request)
            except Refused as refused:
                await _note(request, refused)
                raise
            await response(scope, receive, send)

    return Plain


async def _note(request: Request, refused: Refused) -> None:
    if request.method != "GET":
        record: Record = request.scope["fedbo"]
        service: Service = request.app.state.service
        federation = record.federation or refused.federation
        await service.note_refused(refused, record.caller, federation, record.subject)


def _replayed(body: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
