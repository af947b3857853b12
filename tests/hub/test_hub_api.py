"""What a hub does over HTTP, whom it lets in, and what it refuses."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest
from hub.world import (
    ACTOR,
    AGREED,
    BINARY,
    HERE,
    Lung,
    World,
    contribution,
    key_given,
    message,
    private_federation,
    problem,
    withdrawal,
)
from sqlalchemy import update
from sqlalchemy.exc import OperationalError

from fedbo.exchange.hub.memberships import Invitation
from fedbo.exchange.hub.wire import Progress, Publication, Wanted
from fedbo.federation import Federation
from fedbo.hub import store
from fedbo.hub.access import COOKIE
from fedbo.hub.names import UNKNOWN
from fedbo.hub.problems import PROBLEMS
from fedbo.hub.store import schema
from fedbo.hub.store.credentials import new_secret, new_token
from fedbo.identity import KeyPair
from fedbo.message.signed import MOST_AGENTS
from fedbo.space import Float

GIVEN: dict[str, Any] = {"features": 8, "seed": 3, "kind": "weights"}
OTHER = Federation(AGREED.space, **{**GIVEN, "seed": 4})


class Site:
    """A member of the federation ``liver``."""

    def __init__(self, world: World, secret: str, name: str, keys: KeyPair | None = None) -> None:
        self.world, self.name, self.keys = world, name, keys
        self.token = world.enrol(secret, name, keys)

    def ask(self, method: str, path: str, **given: Any) -> Any:
        return self.world.ask(method, HERE + path, self.token, **given)

    def put(self, content: Any, **given: Any) -> Any:
        return self.world.put(content, self.token, **given)

    def fetch(self, cursor: str = "") -> Any:
        return self.world.fetch(self.token, cursor)


class Liver:
    """A hub with a federation, an operator and three sites, one of which signs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.operator = world.operator()
        self.secret = world.federation("liver")
        self.keys = KeyPair.generate()
        self.a, self.b = Site(world, self.secret, "a"), Site(world, self.secret, "b")
        self.signer = Site(world, self.secret, "signer", self.keys)

    def ask(self, method: str, path: str, **given: Any) -> Any:
        return self.world.ask(method, path, self.operator, **given)


@pytest.fixture
def liver(world: World) -> Liver:
    return Liver(world)


@pytest.fixture(params=["sqlite", "postgresql"])
def both(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> Iterator[Liver]:
    with World(new_database(request.param)) as running:
        yield Liver(running)


# What each problem of the hub looks like from outside.


def _enrol(liver: Liver, name: str, secret: str = "") -> Any:
    body = {"secret": secret or liver.secret, "name": name}
    return liver.world.ask("POST", "/v1/members", json=body)


def _too_many_agents(liver: Liver) -> Any:
    for number in range(MOST_AGENTS):
        assert liver.a.put(message(f"a/{number}")).is_success
    return liver.a.put(message("a/more"))


def _wrong_signature(liver: Liver) -> Any:
    signed = message("signer", keys=liver.keys)
    return liver.signer.put(msgspec.structs.replace(signed, signature=bytes(64)))


def _too_many_requests(liver: Liver) -> Any:
    liver.world.service.count_request = lambda _: _fail_with(liver)
    return liver.a.ask("GET", "/member")


def _fail_with(liver: Liver) -> None:
    from fedbo.hub.service import refuse_for

    raise refuse_for(1.5, "too many")


def _failed(liver: Liver) -> Any:
    def fail(*_: object) -> Any:
        raise RuntimeError(f"broken {liver.a.token}")

    liver.world.service.agreed = fail
    return liver.a.put(message("a"))


def _not_ready(liver: Liver) -> Any:
    def fail() -> Any:
        raise OperationalError("SELECT", {}, Exception("gone"))

    liver.world.service.reading = fail
    return liver.world.ask("GET", "/readyz")


def _private(liver: Liver, **settings: Any) -> Lung:
    with store.begin(liver.world.engine) as connection:
        store.drop_operator(connection, "ann", actor=ACTOR)
    return Lung(liver.world, private_federation(**settings), "a")


def _private_federation(liver: Liver) -> Any:
    lung = _private(liver)
    made = contribution(lung.agreed, "a")
    return liver.world.put(made, lung.tokens["a"], progress=Progress(3), here=lung.here)


def _budget_spent(liver: Liver) -> Any:
    lung = _private(liver)
    lung.contribute("a")
    assert lung.release().is_success and lung.release().is_success
    return lung.release()


def _not_reconciled(liver: Liver) -> Any:
    lung = _private(liver)
    with store.begin(liver.world.engine) as connection:
        connection.execute(update(schema.federation).values(is_unreconciled=True))
    return lung.release()


def _release_made(liver: Liver) -> Any:
    lung = _private(liver)
    lung.contribute("a")
    assert lung.release(number=1).is_success
    return lung.release(number=1)


def _no_release_key(liver: Liver) -> Any:
    keys = KeyPair.generate()
    with store.begin(liver.world.engine) as connection:
        store.drop_operator(connection, "ann", actor=ACTOR)
    agreed = private_federation(members={"a": str(keys), "hub": str(KeyPair.generate())})
    lung = Lung(liver.world, agreed)
    token = liver.world.enrol(lung.secret, "a", keys)
    signed = keys.sign(contribution(agreed, "a"))
    assert liver.world.put(signed, token, here=lung.here).is_success
    return lung.release()


EXAMPLES: dict[str, Callable[[Liver], Any]] = {
    "wrong-request": lambda liver: liver.ask("POST", HERE + "/invitations", json={"uses": "x"}),
    "wrong-token": lambda liver: liver.world.ask("GET", HERE, new_token("member")),
    "not-allowed": lambda liver: liver.a.ask("POST", "/invitations", json={}),
    "not-invited": lambda liver: _enrol(liver, "x", new_secret()),
    "no-such-federation": lambda liver: liver.ask("GET", "/v1/federations/heart"),
    "not-found": lambda liver: liver.ask("POST", HERE + "/members/revoke", json={"name": "x"}),
    "wrong-method": lambda liver: liver.ask("PATCH", "/v1/federations"),
    "name-taken": lambda liver: _enrol(liver, "a"),
    "too-many-agents": _too_many_agents,
    "too-large": lambda liver: liver.a.put(bytes(5000)),
    "wrong-name": lambda liver: _enrol(liver, "a/b"),
    "wrong-federation": lambda liver: liver.ask(
        "POST", "/v1/federations", json={"name": "heart", "file": "features = 0"}
    ),
    "wrong-message": lambda liver: liver.a.put(b"nonsense"),
    "wrong-signature": _wrong_signature,
    "wrong-sender": lambda liver: liver.a.put(message("b")),
    "wrong-key": lambda liver: liver.signer.put(message("signer")),
    "too-many-requests": _too_many_requests,
    "failed": _failed,
    "not-ready": _not_ready,
    "private-federation": _private_federation,
    "no-privacy-plan": lambda liver: liver.a.ask("GET", "/releases"),
    "nothing-to-release": lambda liver: _private(liver).release(),
    "release-made": _release_made,
    "budget-spent": _budget_spent,
    "not-reconciled": _not_reconciled,
    "no-release-key": _no_release_key,
}


def test_every_problem_has_an_example() -> None:
    assert EXAMPLES.keys() == PROBLEMS.keys()


@pytest.mark.parametrize("slug", sorted(PROBLEMS))
def test_every_problem_says_what_is_wrong(liver: Liver, slug: str) -> None:
    answer = EXAMPLES[slug](liver)
    assert problem(answer) == slug
    assert (answer.status_code, answer.json()["title"]) == PROBLEMS[slug]
    assert answer.headers["x-content-type-options"] == "nosniff"
    number = answer.json()["instance"]
    (line,) = [line for line in liver.world.log() if line.get("request") == number
               and line["event"] == "request"]  # fmt: skip
    assert (line["problem"], line["status"]) == (slug, answer.status_code)
    written = liver.world.lines.getvalue() + answer.text
    for secret in (liver.a.token, liver.operator, liver.secret):
        assert secret not in written


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xc1",
        message("a", fingerprint=bytes(16)).encode(),
        message("a", agreed=Federation({"x": Float(0, 1)}, **GIVEN)).encode(),
        message("a").encode() + b"\0",
        message("a").encode()[:-1],
        msgspec.msgpack.encode([1] * 100),
        b"\x91" * 500,
    ],
)
def test_a_bad_message_is_refused_and_changes_nothing(liver: Liver, content: bytes) -> None:
    assert liver.a.put(message("a", 1)).json() == {"out": True}
    before = liver.world.rows("audit", "activity")
    answer = liver.a.put(content)
    assert problem(answer) == "wrong-message"
    assert len(answer.text) < 1000
    assert liver.world.rows("audit", "activity") == before


def test_what_is_not_a_publication(liver: Liver) -> None:
    for body in (b"", b"\xc1", message("a").encode(), msgspec.msgpack.encode([b"x", [1, "x"]])):
        answer = liver.a.ask("PUT", "/messages", content=body, headers=BINARY)
        assert problem(answer) == "wrong-request"
    assert problem(liver.a.ask("POST", "/fetch", content=b"\xc1")) == "wrong-request"


def test_messages_are_published_fetched_listed_and_withdrawn(liver: Liver) -> None:
    assert liver.a.put(message("a", 1), progress=Progress(3, best=0.5)).json() == {"out": True}
    first = liver.b.fetch()
    assert [each.content for each in first.handed] == [message("a", 1).encode()]
    answer = liver.b.ask("GET", "/messages")
    ((when, content),) = msgspec.msgpack.decode(answer.content)
    assert when > 1.7e9 and content == message("a", 1).encode()
    assert problem(liver.b.ask("GET", "/messages", params={"sender": "a"})) == "wrong-sender"
    (member,) = liver.ask("GET", HERE + "/members", params={"most": 1}).json()
    assert member["progress"] == {"trials": 3, "best": 0.5, "saved": None}
    gone = liver.a.ask("DELETE", "/messages", params={"sender": "a"})
    assert gone.json() == {"out": False, "was_out": True}
    assert liver.b.fetch(first.cursor).gone == (first.handed[0].number,)


def test_it_is_noted_when_a_member_was_seen(liver: Liver) -> None:
    def seen() -> float:
        (row,) = liver.ask("GET", HERE + "/members", params={"most": 1}).json()
        return float(row["seen"])

    for ask in (lambda: liver.a.put(message("a")), liver.a.fetch):
        with store.begin(liver.world.engine) as connection:
            connection.execute(update(schema.member).values(seen=1.0))
        ask()
        assert seen() > 1e9


def test_signed_messages_are_withdrawn_by_a_signature(liver: Liver) -> None:
    assert liver.signer.put(message("signer/x", 4, keys=liver.keys)).json() == {"out": True}
    unsigned = liver.signer.ask("DELETE", "/messages", params={"sender": "signer/x"})
    assert problem(unsigned) == "wrong-key"
    foreign = withdrawal("signer/x", 4, KeyPair.generate())
    assert problem(liver.signer.put(foreign)) == "wrong-key"
    signed = withdrawal("signer/x", 4, liver.keys)
    assert liver.signer.put(signed).json() == {"out": False, "was_out": True}
    assert problem(liver.a.put(message("a", keys=liver.keys))) == "wrong-key"


def test_the_list_of_members_is_replaced(liver: Liver) -> None:
    keys = str(KeyPair.generate())
    listed = Federation(AGREED.space, **GIVEN, members={"a": keys})
    answer = liver.ask("PUT", HERE, json={"file": listed.to_toml()})
    assert answer.status_code == 200
    assert Federation.from_toml(liver.a.ask("GET", "").json()["file"]).members == listed.members
    other = liver.ask("PUT", HERE, json={"file": OTHER.to_toml()})
    assert problem(other) == "wrong-federation"
    assert [line["detail"] for line in liver.world.audit("updated")] == [{"members": 1}]
    assert problem(_enrol(liver, "b2")) == "wrong-name"


def test_invitations_are_made_opened_used_and_taken_back(both: Liver) -> None:
    world = both.world
    made = both.ask("POST", HERE + "/invitations", json={"uses": 1, "days": 2}).json()
    invitation = Invitation.parse(made["invitation"])
    opened = world.ask("POST", "/v1/invitations/open", json={"secret": invitation.secret}).json()
    assert opened["federation"] == "liver"
    assert Federation.from_toml(opened["file"]).fingerprint == invitation.fingerprint
    wrong = {"secret": invitation.secret, "name": "heart"}
    assert problem(world.ask("POST", "/v1/invitations/open", json=wrong)) == "not-invited"
    enrolled = _enrol(both, "c", invitation.secret)
    assert enrolled.status_code == 201
    token = enrolled.json()["token"]
    assert world.ask("GET", HERE + "/member", token).json()["name"] == "c"
    assert problem(_enrol(both, "d", invitation.secret)) == "not-invited"
    listed = both.ask("GET", HERE + "/invitations").json()
    assert [row["uses"] for row in listed] == [997]
    assert "secret" not in json.dumps(listed)
    gone = both.ask("DELETE", HERE + "/invitations", params={"id": listed[0]["id"]})
    assert gone.is_success
    assert problem(_enrol(both, "x")) == "not-invited"
    made = both.ask("POST", HERE + "/invitations", json={}).json()
    with store.begin(world.engine) as connection:
        connection.execute(update(schema.invitation).values(expires=1.0))
    late = Invitation.parse(made["invitation"]).secret
    assert problem(_enrol(both, "x", late)) == "not-invited"


def test_a_member_rotates_its_token_changes_its_key_and_leaves(both: Liver) -> None:
    both.a.put(message("a"))
    old = both.a.token
    both.a.token = both.a.ask("POST", "/member/token").json()["token"]
    assert problem(both.world.ask("GET", HERE + "/member", old)) == "wrong-token"
    keys = KeyPair.generate()
    changed = both.a.ask("PUT", "/member/key", json=key_given("rekey", "a", both.a.token, keys))
    assert changed.json() == {"key": str(keys)}
    assert not both.b.fetch().handed
    assert problem(both.a.put(message("a", 2))) == "wrong-key"
    assert both.a.put(message("a", 2, keys=keys)).json() == {"out": True}
    assert both.a.ask("GET", "/member").json()["key"] == str(keys)
    for bad in ("ed25519:AAAA", "x", "ed25519:" + "A" * 43):
        assert problem(both.a.ask("PUT", "/member/key", json={"key": bad})) == "wrong-key"
    assert both.a.ask("DELETE", "/member").json() == {"name": "a"}
    assert problem(both.a.ask("GET", "/member")) == "wrong-token"
    assert not both.b.fetch().handed
    assert [row["name"] for row in both.b.ask("GET", "/members").json()] == ["b", "signer"]
    assert both.world.enrol(both.secret, "a")


def test_an_operator_removes_and_revokes(both: Liver) -> None:
    both.a.put(message("a"))
    assert both.ask("POST", HERE + "/members/revoke", json={"name": "a"}).is_success
    assert problem(both.a.ask("GET", "/member")) == "wrong-token"
    assert not both.b.fetch().handed
    assert problem(_enrol(both, "a")) == "name-taken"
    assert both.ask("DELETE", HERE + "/members", params={"name": "a"}).is_success
    assert _enrol(both, "a").status_code == 201


def test_only_listed_members_with_their_keys_enrol(world: World) -> None:
    keys = KeyPair.generate()
    listed = Federation(AGREED.space, **GIVEN, members={"a": str(keys)})
    secret = world.federation("liver", listed)

    def enrol(name: str, keys: KeyPair | None = None) -> Any:
        given = {} if keys is None else key_given("enrol", name, secret, keys)
        return world.ask("POST", "/v1/members", json={"secret": secret, "name": name, **given})

    assert problem(enrol("b", keys)) == "wrong-name"
    assert problem(enrol("a")) == "wrong-key"
    assert problem(enrol("a", KeyPair.generate())) == "wrong-key"
    assert enrol("a", keys).status_code == 201


def test_nobody_enrols_with_the_key_of_another(world: World) -> None:
    keys, own = KeyPair.generate(), KeyPair.generate()
    secret, other = world.federation("liver"), world.federation("lung")
    right = key_given("enrol", "a", secret, keys)
    wrong = [
        key_given("enrol", "a", secret, own)["proof"],
        key_given("enrol", "b", secret, keys)["proof"],
        key_given("enrol", "a", other, keys)["proof"],
        key_given("enrol", "a", secret, keys, federation="lung")["proof"],
        key_given("enrol", "a", secret, keys, agreed=OTHER)["proof"],
        key_given("rekey", "a", secret, keys)["proof"],
        message("a", keys=keys).signature.hex(),
        *("", "00", "x" * 128, "0" * 128),
    ]
    for proof in wrong:
        body = {"secret": secret, "name": "a", **right, "proof": proof}
        assert problem(world.ask("POST", "/v1/members", json=body)) == "wrong-signature", proof
    body = {"secret": secret, "name": "a", **right}
    assert world.ask("POST", "/v1/members", json=body).status_code == 201


def test_nobody_changes_its_key_to_that_of_another(liver: Liver) -> None:
    keys, token = KeyPair.generate(), liver.a.token
    wrong = [
        key_given("rekey", "a", token, KeyPair.generate())["proof"],
        key_given("rekey", "b", token, keys)["proof"],
        key_given("rekey", "a", liver.b.token, keys)["proof"],
        key_given("enrol", "a", token, keys)["proof"],
        "",
    ]
    for proof in wrong:
        answer = liver.a.ask("PUT", "/member/key", json={"key": str(keys), "proof": proof})
        assert problem(answer) == "wrong-signature", proof
    assert liver.a.ask("GET", "/member").json()["key"] == ""
    given = key_given("rekey", "a", token, keys)
    assert liver.a.ask("PUT", "/member/key", json=given).json() == {"key": str(keys)}


def test_refusals_are_in_the_audit_log_but_cannot_fill_it(liver: Liver) -> None:
    for _ in range(50):
        assert problem(liver.a.put(b"nonsense")) == "wrong-message"
    liver.b.put(message("a"))
    refused = liver.world.audit("refused")
    assert {(line["actor"], line["detail"]["problem"]) for line in refused} == {
        ("a", "wrong-message"),
        ("b", "wrong-sender"),
    }
    assert all(line["federation"] == "liver" for line in refused)
    assert 20 <= len(refused) < 30


def test_refused_joins_are_in_the_audit_log_of_their_federation(liver: Liver) -> None:
    key = str(KeyPair.generate())
    assert problem(_enrol(liver, "a")) == "name-taken"
    body = {"secret": liver.secret, "name": "f", "key": key}
    assert problem(liver.world.ask("POST", "/v1/members", json=body)) == "wrong-signature"
    assert problem(_enrol(liver, "\x1b[2J" + 58 * "\U000e0001")) == "wrong-name"
    assert problem(_enrol(liver, "g", new_secret())) == "not-invited"
    lines = liver.world.audit("refused")
    hostile = lines.pop(2)["subject"]
    assert hostile.startswith("'\\x1b[2J\\U000e0001") and len(hostile) == 128
    assert [(line["federation"], line["subject"], line["detail"]["problem"]) for line in lines] == [
        ("liver", "a", "name-taken"),
        ("liver", "f", "wrong-signature"),
        ("", "g", "not-invited"),  # nobody knows which federation that was
    ]
    assert {line["actor"] for line in lines} == {UNKNOWN}


def test_a_member_reads_only_its_own_lines_of_the_audit_log(liver: Liver) -> None:
    for site in (liver.a, liver.b):
        site.put(message(f"{site.name}/1"))
    lines = [json.loads(line) for line in liver.a.ask("GET", "/audit").text.splitlines()]
    assert [(line["action"], line["subject"]) for line in lines] == [
        ("joined", "a"),
        ("published", "a/1"),
    ]
    everything = liver.ask("GET", HERE + "/audit").text.splitlines()
    assert len(everything) > 5 and len(liver.ask("GET", "/v1/audit").text.splitlines()) > 6


def test_a_flood_is_slowed_down_for_one_member_only(new_database: Callable[[str], str]) -> None:
    with World(new_database("sqlite"), rate=0.1) as world:
        secret = world.federation()
        tokens = [world.enrol(secret, name) for name in ("a", "b")]
        answers = [world.ask("GET", HERE + "/member", tokens[0]) for _ in range(3)]
        assert problem(answers[-1]) == "too-many-requests"
        assert int(answers[-1].headers["retry-after"]) >= 1
        with World(new_database("sqlite"), rate=50.0) as quick:
            token = quick.enrol(quick.federation(), "b")
            assert quick.ask("GET", HERE + "/member", token).is_success


def test_wrong_tokens_are_counted_by_address(new_database: Callable[[str], str]) -> None:
    with World(new_database("sqlite"), failures=3) as world:
        token = world.enrol(world.federation(), "a")
        slugs = [problem(world.ask("GET", HERE, new_token("member"))) for _ in range(4)]
        assert slugs == ["wrong-token"] * 3 + ["too-many-requests"]
        body = {"secret": new_secret(), "name": "x"}
        assert problem(world.ask("POST", "/v1/members", json=body)) == "too-many-requests"
        assert world.ask("GET", HERE, token).is_success  # others are behind this address too


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic abc", "bearer x y", "Bearer \xff", "x" * 10_000]
)
def test_a_strange_header_is_a_wrong_token(world: World, header: str) -> None:
    answer = world.client.get(
        "/v1/federations", headers={b"authorization": header.encode("latin1")}
    )
    assert (answer.status_code, problem(answer)) == (401, "wrong-token")
    assert "bearer" in answer.headers["www-authenticate"].lower()


def test_bodies_are_bounded_before_they_are_read(liver: Liver) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield bytes(2**16)

    for path, method in ((HERE + "/messages", "PUT"), ("/v1/members", "POST")):
        answer = liver.world.ask(method, path, liver.a.token, content=endless())
        assert problem(answer) == "too-large"


def test_a_database_of_another_version_is_not_ready(liver: Liver) -> None:
    assert liver.world.ask("GET", "/readyz").is_success
    with store.begin(liver.world.engine) as connection:
        connection.execute(update(schema.hub).values(version=99))
    assert problem(liver.world.ask("GET", "/readyz")) == "not-ready"


def test_numbers_for_prometheus(liver: Liver) -> None:
    liver.a.put(message("a"))
    liver.a.put(b"nonsense")
    answer = liver.ask("GET", "/metrics")
    assert answer.headers["cache-control"] == "no-store"
    for expected in (
        'fedbo_hub_requests_total{method="PUT",route="/v1/federations/{federation}/messages",'
        'status="200"} 1.0',
        'fedbo_hub_refused_total{problem="wrong-message"} 1.0',
        "fedbo_hub_messages_published_total 1.0",
        "fedbo_hub_federations 1.0",
        "fedbo_hub_members 3.0",
        "fedbo_hub_request_seconds_bucket",
    ):
        assert expected in answer.text
    assert "liver" not in answer.text


def test_the_log_has_one_line_for_each_request_and_no_path(liver: Liver) -> None:
    answers = [
        liver.a.put(message("a")),
        liver.world.ask("GET", f"/v1/{new_secret()}"),
        liver.a.ask("GET", "/messages", params={"sender": "a"}),
    ]
    liver.world.client.__exit__(None, None, None)
    lines = [line for line in liver.world.log() if line["event"] == "request"]
    assert [line["request"] for line in lines] == [one.headers["x-request-id"] for one in answers]
    place = "/v1/federations/{federation}/messages"
    assert [line["route"] for line in lines] == [place, "(none)", place]
    assert (lines[0]["federation"], lines[0]["who"], lines[0]["status"]) == ("liver", "a", 200)
    events = [line["event"] for line in liver.world.log()]
    assert (events[0], events[-1]) == ("started", "stopped")


# Who may do what

ROLES = ("none", "invited", "member", "foreign", "revoked", "operator")
FEDERATION = "/v1/federations/{federation}"


class Cast(NamedTuple):
    """The people of one federation, and of another one."""

    federation: str
    secret: str
    invitation: int
    tokens: dict[str, str]


Given = Callable[[Cast], dict[str, Any]]


def _nothing(cast: Cast) -> dict[str, Any]:
    return {}


def _json(**body: Any) -> Given:
    return lambda cast: {"json": body}


def _packed(body: Any) -> Given:
    return lambda cast: {"content": msgspec.msgpack.encode(body), "headers": BINARY}


# For each endpoint: what to send, and the status for each of the ROLES, in their order.
ANYONE = (200,) * 6
MEMBER = (401, 401, 200, 404, 401, 403)
OPERATOR = (401, 401, 403, 404, 401, 200)
BOTH = (401, 401, 200, 404, 401, 200)
EVERYWHERE = (401, 401, 200, 200, 401, 200)  # not about one federation
CREATED = (401, 401, 403, 404, 401, 201)
HUB = (401, 401, 403, 403, 401, 200)
MATRIX: dict[tuple[str, str], tuple[Given, tuple[int, ...]]] = {
    ("GET", "/v1/hub"): (_nothing, ANYONE),
    ("GET", "/healthz"): (_nothing, ANYONE),
    ("GET", "/readyz"): (_nothing, ANYONE),
    ("GET", "/metrics"): (_nothing, HUB),
    ("GET", "/v1/audit"): (_nothing, HUB),
    ("POST", "/v1/invitations/open"): (lambda cast: {"json": {"secret": cast.secret}}, ANYONE),
    ("POST", "/v1/members"): (
        lambda cast: {"json": {"secret": cast.secret, "name": "newcomer"}},
        (201,) * 6,
    ),
    ("GET", "/v1/federations"): (_nothing, EVERYWHERE),
    ("POST", "/v1/federations"): (
        lambda cast: {"json": {"name": cast.federation + "-2", "file": AGREED.to_toml()}},
        (401, 401, 403, 403, 401, 201),
    ),
    ("GET", FEDERATION): (_nothing, BOTH),
    ("PUT", FEDERATION): (_json(file=AGREED.to_toml()), OPERATOR),
    ("POST", FEDERATION + "/invitations"): (_json(uses=1, days=1), CREATED),
    ("GET", FEDERATION + "/invitations"): (_nothing, OPERATOR),
    ("DELETE", FEDERATION + "/invitations"): (
        lambda cast: {"params": {"id": cast.invitation}},
        OPERATOR,
    ),
    ("GET", FEDERATION + "/members"): (_nothing, BOTH),
    ("DELETE", FEDERATION + "/members"): (lambda cast: {"params": {"name": "other"}}, OPERATOR),
    ("POST", FEDERATION + "/members/revoke"): (_json(name="other"), OPERATOR),
    ("GET", FEDERATION + "/member"): (_nothing, MEMBER),
    ("DELETE", FEDERATION + "/member"): (_nothing, MEMBER),
    ("POST", FEDERATION + "/member/token"): (_nothing, (401, 401, 201, 404, 401, 403)),
    ("PUT", FEDERATION + "/member/key"): (_json(key=None), MEMBER),
    ("PUT", FEDERATION + "/messages"): (
        _packed(Publication(message("member", 2).encode())),
        MEMBER,
    ),
    ("GET", FEDERATION + "/messages"): (_nothing, MEMBER),
    ("DELETE", FEDERATION + "/messages"): (lambda cast: {"params": {"sender": "member"}}, MEMBER),
    ("POST", FEDERATION + "/fetch"): (_packed(Wanted()), MEMBER),
    # 409: the federation has no privacy plan
    ("GET", FEDERATION + "/releases"): (_nothing, (401, 401, 409, 404, 401, 409)),
    ("POST", FEDERATION + "/releases"): (_json(), (401, 401, 403, 404, 401, 409)),
    ("POST", FEDERATION + "/releases/reconcile"): (
        _json(releases=0),
        (401, 401, 403, 404, 401, 409),
    ),
    ("GET", FEDERATION + "/audit"): (_nothing, BOTH),
    ("GET", FEDERATION + "/overview"): (_nothing, BOTH),
    ("POST", "/v1/session"): (lambda cast: {"json": {"token": cast.tokens["operator"]}}, ANYONE),
    ("GET", "/v1/session"): (_nothing, ANYONE),
    ("DELETE", "/v1/session"): (_nothing, (204,) * 6),
}

_numbers = itertools.count()


def cast_of(world: World) -> Cast:
    """Make two federations with members who have published something."""
    number = next(_numbers)
    here, there = f"liver-{number}", f"heart-{number}"
    tokens = {"operator": world.operator(f"ann {number}")}
    secret, elsewhere = world.federation(here), world.federation(there)
    for role in ("member", "other", "revoked"):
        tokens[role] = world.enrol(secret, role)
    tokens["foreign"] = world.enrol(elsewhere, "member")
    for role in ("member", "other"):
        place = f"/v1/federations/{here}"
        assert world.put(message(role), tokens[role], here=place).is_success
    with store.begin(world.engine) as connection:
        store.revoke(connection, here, "revoked", actor=ACTOR)
        invitation = store.invitations(connection, here)[0].id
    return Cast(here, secret, invitation, tokens)


def test_every_endpoint_is_in_the_matrix(world: World) -> None:
    documented = {
        (method.upper(), path)
        for path, methods in world.app.openapi()["paths"].items()
        for method in methods
    }
    assert documented == set(MATRIX), "a new endpoint must say here who may use it"


@pytest.mark.parametrize("role", ROLES)
def test_every_endpoint_lets_in_whom_it_should(world: World, role: str) -> None:
    wrong: list[tuple[Any, ...]] = []
    cast = cast_of(world)
    before = world.rows("audit", "activity")
    for (method, path), (given, statuses) in MATRIX.items():
        expected = statuses[ROLES.index(role)]
        token = {**cast.tokens, "none": None, "invited": cast.secret}[role]
        world.client.cookies.clear()
        place = path.format(federation=cast.federation)
        answer = world.ask(method, place, token, **given(cast))
        if answer.status_code != expected:
            wrong.append((method, path, expected, answer.status_code, answer.text[:200]))
        if answer.status_code >= 400:
            problem(answer)
        if answer.status_code < 400 and method != "GET":
            cast = cast_of(world)
            before = world.rows("audit", "activity")
        elif world.rows("audit", "activity") != before:
            wrong.append((method, path, "something was changed"))
    assert not wrong


def test_another_federation_is_the_same_as_none(liver: Liver) -> None:
    liver.world.federation("heart")
    answers = [
        liver.world.ask("GET", f"/v1/federations/{name}", liver.a.token)
        for name in ("heart", "nowhere", "../x", "Ü")
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert answers[0].json()["detail"] == answers[1].json()["detail"]


def test_a_cookie_needs_the_header_to_change_something(liver: Liver) -> None:
    opened = liver.world.ask("POST", "/v1/session", json={"token": liver.operator})
    cookie = {"cookie": f"{COOKIE}={opened.cookies[COOKIE]}"}
    liver.world.client.cookies.clear()
    assert liver.world.ask("GET", HERE, headers=cookie).is_success
    body = {"json": {"uses": 1, "days": 1}}
    refused = liver.world.ask("POST", HERE + "/invitations", headers=cookie, **body)
    assert problem(refused) == "not-allowed"
    bearer = liver.world.ask("GET", HERE, opened.cookies[COOKIE])
    assert problem(bearer) == "wrong-token", "a cookie is not a token"
    headers = {**cookie, "x-fedbo": "1"}
    assert liver.world.ask("POST", HERE + "/invitations", headers=headers, **body).is_success
    with store.begin(liver.world.engine) as connection:
        store.drop_operator(connection, "ann", actor=ACTOR)
    assert problem(liver.world.ask("GET", HERE, headers=cookie)) == "wrong-token"
