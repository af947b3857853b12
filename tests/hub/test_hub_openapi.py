"""What the documentation of the API promises, tried with data made from it (schemathesis)."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import requests
from contracts.hub import HubProcess
from hub.world import ACTOR, AGREED, message
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from fedbo.exchange.hub.memberships import Invitation
from fedbo.exchange.hub.wire import MEDIA_TYPE, Publication, Wanted
from fedbo.hub import store
from fedbo.hub.app import create_app
from fedbo.hub.settings import Settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what schemathesis imports
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        allow_header_conformance,
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

EXAMPLES = 25  # right ones, and as many wrong ones, for each operation
ROLES = ("member", "operator", "none")
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    allow_header_conformance,
]
#: A member that does this is not the same afterwards.
FINAL = {("DELETE", "/v1/federations/{federation}/member")}
FINAL |= {("POST", "/v1/federations/{federation}/member/token")}
FINAL |= {("PUT", "/v1/federations/{federation}/member/key")}

_numbers = itertools.count()


@schemathesis.serializer(MEDIA_TYPE)
def _bytes(_: Any, value: Any) -> bytes:
    """Return any body as bytes."""
    content = getattr(value, "data", value)
    return content if isinstance(content, bytes) else repr(content).encode()


def _operations() -> list[Any]:
    described = create_app(Settings()).openapi()
    schema = schemathesis.openapi.from_dict(described)
    return [result.ok() for result in schema.get_all_operations()]


OPERATIONS = _operations()


class Tried:
    """A hub that is tried by an operator and by members."""

    def __init__(self, hub: HubProcess) -> None:
        self.hub, self.session = hub, requests.Session()
        self.session.trust_env = False
        with store.begin(hub.engine) as connection:
            self.operator = store.new_operator(connection, "ann", actor=ACTOR)
            store.create_federation(connection, "liver", AGREED, actor=ACTOR)
        self.name, self.member = self.enrol()

    def secret(self) -> str:
        """Return the secret of a new invitation: the operator may take any earlier one back."""
        with store.begin(self.hub.engine) as connection:
            invited = store.invite(connection, "liver", uses=100, actor=ACTOR).invitation
        return Invitation.parse(invited).secret

    def enrol(self) -> tuple[str, str]:
        name, secret = f"site {next(_numbers)}", self.secret()
        with store.begin(self.hub.engine) as connection:
            return name, store.enrol(connection, secret, name).token

    def token(self, role: str, case: Any) -> str | None:
        if role == "member" and (case.operation.method.upper(), case.operation.path) in FINAL:
            return self.enrol()[1]
        return {"none": None, "member": self.member, "operator": self.operator}[role]

    def meant(self, name: str) -> Any:
        """Return what makes sense for a parameter or a field of this name."""
        if name == "secret":
            return self.secret()
        return {"federation": "liver", "sender": self.name}.get(name)

    def content(self) -> list[bytes]:
        sent = Publication(message(self.name, next(_numbers)).encode())
        return [msgspec.msgpack.encode(sent), msgspec.msgpack.encode(Wanted()), b"\x91\0"]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tried]:
    with HubProcess(f"sqlite:///{tmp_path_factory.mktemp('hub')}/hub.db") as hub:
        trying = Tried(hub)
        yield trying
        trying.session.close()
        assert hub.stop() == 0
        assert '"traceback"' not in hub.log


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_every_answer_is_documented_and_no_failure(tried: Tried, operation: Any) -> None:
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
        def run(case: Any, data: Any) -> None:
            _make_sense(tried, case, lambda: data.draw(st.booleans()))
            token = tried.token(data.draw(st.sampled_from(ROLES)), case)
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            case.headers.pop("Authorization", None)
            case.cookies.clear()
            case.call_and_validate(
                base_url=tried.hub.address, session=tried.session, headers=headers, checks=CHECKS
            )

        try:
            run()
        except Unsatisfiable:  # without parameters, nothing can be wrong
            assert mode is GenerationMode.NEGATIVE


def _make_sense(tried: Tried, case: Any, is_wanted: Callable[[], bool]) -> None:
    """Put what makes sense into a case, half of the time."""
    for place in (case.path_parameters, case.query, case.body):
        if isinstance(place, dict):
            for name in place:
                if tried.meant(name) is not None and is_wanted():
                    place[name] = tried.meant(name)
    if case.media_type == MEDIA_TYPE and is_wanted():
        case.body = next(one for one in itertools.cycle(tried.content()) if is_wanted())
