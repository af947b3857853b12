"""What the documentation of the API promises, tried with data made from it (schemathesis)."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from contracts.hub import HubProcess
from contracts.hub_rows import message
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from fedbo.exchange.hub.wire import MEDIA_TYPE, Wanted
from fedbo.hub.app import create_app
from fedbo.hub.settings import Settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what schemathesis imports
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

EXAMPLES = 25  # right ones, and as many wrong ones, for each operation
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.allow_header_conformance,
]
SCHEMA = schemathesis.openapi.from_dict(create_app(Settings()).openapi())
OPERATIONS = [result.ok() for result in SCHEMA.get_all_operations()]

_numbers = itertools.count()


@schemathesis.serializer(MEDIA_TYPE)
def _bytes(_: Any, value: Any) -> bytes:
    """Return any body as bytes."""
    content = getattr(value, "data", value)
    return content if isinstance(content, bytes) else repr(content).encode()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(f"sqlite:///{tmp_path_factory.mktemp('hub')}/hub.db") as hub:
        hub.federation()
        yield hub
        assert hub.stop() == 0
        assert '"traceback"' not in hub.log


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_every_answer_is_documented_and_no_failure(
    hub: HubProcess, operation: Any, mode: GenerationMode
) -> None:
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
        name, secret = f"site {next(_numbers)}", hub.invite()
        member = hub.enrol(secret, name)
        sensible = {"federation": "liver", "sender": name, "secret": secret}
        for place in (case.path_parameters, case.query, case.body):
            for field in sensible.keys() & place.keys() if isinstance(place, dict) else ():
                if data.draw(st.booleans()):
                    place[field] = sensible[field]
        if case.media_type == MEDIA_TYPE:
            bodies = [message(name).encode(), msgspec.msgpack.encode(Wanted()), b"\x91\0"]
            case.body = data.draw(st.sampled_from(bodies))
        token = data.draw(st.sampled_from([None, member]))
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        case.headers.pop("Authorization", None)
        case.cookies.clear()
        case.call_and_validate(base_url=hub.address, headers=headers, checks=CHECKS)

    try:
        run()
    except Unsatisfiable:  # without parameters, nothing can be wrong
        assert mode is GenerationMode.NEGATIVE
