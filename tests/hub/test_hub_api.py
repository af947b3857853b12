"""What a hub does over HTTP, whom it lets in, and what it refuses."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import msgspec
import pytest
from contracts.hub_rows import ACTOR, AGREED, GIVEN, message, withdrawal
from contracts.liar import free_port
from hub.world import BINARY, HERE, World, new_key, newcomer, problem, proof
from sqlalchemy import update
from sqlalchemy.exc import OperationalError

from fedbo.exchange.hub.memberships import Invitation
from fedbo.exchange.hub.proof import change, hashed
from fedbo.exchange.hub.wire import Wanted
from fedbo.federation import Federation
from fedbo.hub import store
from fedbo.hub.access import COOKIE
from fedbo.hub.problems import PROBLEMS, Refused
from fedbo.hub.service import MOST_UNFINISHED
from fedbo.hub.store import HubError, schema
from fedbo.hub.store.credentials import new_secret, new_token
from fedbo.message.signed import MOST_AGENTS
from fedbo.space import Float
from fedbo.testing.keys import keys_of, new_keys
from fedbo.trust import KeyPair

OTHER = Federation(AGREED.space, **{**GIVEN, "seed": 4})


class Site:
    """A member of the federation ``liver``."""

    def __init__(self, world: World, secret: str, name: str) -> None:
        self.world, self.name, self.keys = world, name, keys_of(name)
        self.token = world.enrol(secret, name)

    def ask(self, method: str, path: str, **given: Any) -> Any:
        return self.world.ask(method, HERE + path, self.token, **given)

    def put(self, content: Any, **given: Any) -> Any:
        return self.world.put(content, self.token, **given)

    def fetch(self, cursor: str = "") -> Any:
        return self.world.fetch(self.token, cursor)

    def nonce(self) -> str:
        """Begin a change of the key."""
        nonce: str = self.ask("POST", "/member/key").json()["nonce"]
        return nonce

    def rekey(self, new: KeyPair) -> dict[str, str]:
        """Change the key; return what was sent."""
        body = new_key(self.nonce(), self.name, self.keys, new)
        assert self.ask("PUT", "/member/key", json=body).status_code == 204
        self.keys = new
        return body


class Liver:
    """A hub with a federation and three sites."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.secret = world.federation("liver")
        self.a, self.b, self.c = (Site(world, self.secret, name) for name in "abc")

    def enrol(self, name: str, secret: str = "", keys: KeyPair | None = None) -> Any:
        body = newcomer(secret or self.secret, name, keys)
        return self.world.ask("POST", "/v1/members", json=body)

    def members(self) -> dict[str, Any]:
        """Return what the page shows of the members, by name."""
        rows = self.b.ask("GET", "/overview").json()["members"]["rows"]
        return {row["name"]: row for row in rows}


@pytest.fixture
def liver(world: World) -> Liver:
    return Liver(world)


@pytest.fixture(params=["sqlite", "postgresql"])
def both(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> Iterator[Liver]:
    with World(new_database(request.param)) as running:
        yield Liver(running)


# What each problem of the hub looks like from outside.


def _too_many_agents(liver: Liver) -> Any:
    for number in range(MOST_AGENTS):
        assert liver.a.put(message(f"a/{number}")).is_success
    return liver.a.put(message("a/more"))


def _wrong_signature(liver: Liver) -> Any:
    return liver.a.put(msgspec.structs.replace(message("a"), signature=bytes(64)))


def _too_many_requests(liver: Liver) -> Any:
    def count(_: int) -> None:
        raise Refused("too-many-requests", "too many", retry_after=2)

    liver.world.service.count_request = count
    return liver.a.ask("GET", "")


def _failed(liver: Liver) -> Any:
    def fail(*_: object) -> Any:
        raise RuntimeError(f"broken {liver.a.token}")

    liver.world.service.agreed = fail
    return liver.a.put(message("a"))


def _busy(liver: Liver) -> Any:
    with liver.world.service.unfinished.hold(MOST_UNFINISHED):
        return liver.enrol("x")


def _not_ready(liver: Liver) -> Any:
    def fail() -> Any:
        raise OperationalError("SELECT", {}, Exception("gone"))

    liver.world.service.reading = fail
    return liver.world.ask("GET", "/healthz")


EXAMPLES: dict[str, Callable[[Liver], Any]] = {
    "wrong-request": lambda liver: liver.a.ask("PUT", "/member/key", json={"kye": None}),
    "wrong-token": lambda liver: liver.world.ask("GET", HERE, new_token()),
    "not-invited": lambda liver: liver.enrol("x", new_secret()),
    "no-such-federation": lambda liver: liver.world.ask(
        "GET", "/v1/federations/heart", liver.a.token
    ),
    "not-found": lambda liver: liver.world.ask("GET", "/v1/nothing"),
    "wrong-method": lambda liver: liver.world.ask("PATCH", "/v1/members"),
    "name-taken": lambda liver: liver.enrol("a", keys=new_keys()),
    "too-many-agents": _too_many_agents,
    "too-large": lambda liver: liver.a.put(bytes(5000)),
    "wrong-name": lambda liver: liver.enrol("a/b"),
    "wrong-message": lambda liver: liver.a.put(b"nonsense"),
    "wrong-signature": _wrong_signature,
    "wrong-sender": lambda liver: liver.a.put(message("b")),
    "wrong-key": lambda liver: liver.a.put(message("a", keys=new_keys())),
    "too-many-requests": _too_many_requests,
    "failed": _failed,
    "not-ready": _not_ready,
    "busy": _busy,
}


@pytest.mark.parametrize("slug", sorted(EXAMPLES))
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
    for secret in (liver.a.token, liver.secret):
        assert secret not in written


# Messages


def _packed(*fields: Any) -> bytes:
    return msgspec.msgpack.encode(fields)


GOOD = message("a", 6).encode()
NO_MESSAGES = [
    b"",
    b"\xff" * 100,
    GOOD[:-1],
    GOOD + b"\0",
    _packed(GOOD),
    _packed("text"),
    b"\x91" * 500,  # arrays in arrays
    b"\xdd\xff\xff\xff\xff",  # an array of 4,294,967,295 elements
    b"\x92\xc6\xff\xff\xff\xff",  # and as many bytes
]


def test_what_is_no_message_is_refused(liver: Liver) -> None:
    before = liver.world.rows()
    for body in NO_MESSAGES:
        assert problem(liver.a.put(body)) == "wrong-message", body
    for body in (b"", b"\xff", _packed(1), _packed("", 1), _packed("x" * 101)):
        assert problem(liver.a.ask("POST", "/fetch", content=body)) == "wrong-request", body
    assert liver.world.rows() == before


def test_what_is_no_message_of_the_sender_is_refused(liver: Liver) -> None:
    assert liver.a.put(message("a", 5)).json() == {"out": True}
    belief = Federation(AGREED.space, **{**GIVEN, "kind": "belief"})
    spoilt, keys = message("a", 6).encode(), new_keys()
    unsigned = msgspec.structs.replace(message("a", 6), key=b"", signature=b"")
    before = liver.world.rows()
    for site, content, slug in (
        (liver.a, message("a", 6, agreed=OTHER), "wrong-message"),
        (liver.a, message("a", 6, agreed=Federation({"x": Float(0, 1)}, **GIVEN)), "wrong-message"),
        (liver.a, message("a", 6, fingerprint=belief.fingerprint), "wrong-message"),
        (liver.a, message("a", 6, keys=keys), "wrong-key"),
        (liver.a, withdrawal("a", 9, keys), "wrong-key"),
        (liver.a, message("a", 6, keys=liver.b.keys), "wrong-key"),
        (liver.a, unsigned, "wrong-key"),
        (liver.a, spoilt[:-1] + bytes([spoilt[-1] ^ 1]), "wrong-signature"),
        *((liver.a, message(name, 9), "wrong-sender") for name in ("b", "b/x", "a2", "A", "a /x")),
    ):
        answer = site.put(content)
        assert problem(answer) == slug and len(answer.text) < 1000
    for sender in ("b", "b/x", "", "/", "../b"):
        answer = liver.a.ask("GET", "/messages", params={"sender": sender})
        assert problem(answer) == "wrong-sender"
    assert liver.world.rows() == before


def test_changed_bytes_never_make_the_hub_fail(liver: Liver) -> None:
    rng = random.Random(5)
    truths = [
        GOOD,
        withdrawal("a", 6).encode(),
        msgspec.msgpack.encode(Wanted("a.5")),
    ]
    for i in range(300):
        body = bytearray(rng.choice(truths))
        for _ in range(rng.choice([1, 2, 8])):
            body[rng.randrange(len(body))] = rng.randrange(256)
        path, method = rng.choice([("/messages", "PUT"), ("/fetch", "POST")])
        site = rng.choice([liver.a, liver.b])
        answer = site.ask(method, path, content=bytes(body), headers=BINARY)
        assert answer.status_code < 500, (i, answer.text)


def test_messages_are_published_fetched_listed_and_withdrawn(liver: Liver) -> None:
    with store.begin(liver.world.engine) as connection:
        connection.execute(update(schema.member).values(seen=1.0))
    assert liver.a.put(message("a", 1)).json() == {"out": True}
    first = liver.b.fetch()
    assert [each.content for each in first.handed] == [message("a", 1).encode()]
    answer = liver.b.ask("GET", "/messages")
    ((when, content),) = msgspec.msgpack.decode(answer.content)
    assert when > 1.7e9 and content == message("a", 1).encode()
    members = liver.members()
    seen = [members[name]["seen"] for name in "abc"]
    assert min(seen[:2]) > 1e9 and seen[2] == 1.0
    gone = withdrawal("a", 1)
    assert liver.a.put(gone).json() == {"out": True}
    (handed,) = liver.b.fetch(first.cursor).handed
    assert (handed.number, handed.content) == (first.handed[0].number, gone.encode())
    assert not liver.b.fetch().handed  # it is only for those who have the message
    assert liver.a.put(gone).json() == {"out": True}  # a retry
    assert liver.a.put(message("a", 1)).json() == {"out": False}


# Members


def test_invitations_are_made_opened_used_and_taken_back(both: Liver) -> None:
    world = both.world
    with store.begin(world.engine) as connection:
        made = store.invite(connection, "liver", uses=1, days=2, actor=ACTOR)
    invitation = Invitation.parse(made.invitation)
    opened = world.ask("POST", "/v1/invitations/open", json={"secret": invitation.secret}).json()
    assert opened["federation"] == "liver"
    assert Federation.from_toml(opened["file"]).fingerprint == invitation.fingerprint
    wrong = {"secret": invitation.secret, "name": "heart"}
    assert problem(world.ask("POST", "/v1/invitations/open", json=wrong)) == "not-invited"
    enrolled = both.enrol("d", invitation.secret)
    assert enrolled.status_code == 201
    assert world.ask("GET", "/v1/session", enrolled.json()["token"]).json()["member"] == "d"
    assert problem(both.enrol("e", invitation.secret)) == "not-invited"
    with store.begin(world.engine) as connection:
        (row,) = store.invitations(connection, "liver")
        assert row.uses == 997
        store.drop_invitation(connection, "liver", row.id, actor=ACTOR)
    assert problem(both.enrol("x")) == "not-invited"
    late = world.invite()
    with store.begin(world.engine) as connection:
        connection.execute(update(schema.invitation).values(expires=1.0))
    assert problem(both.enrol("x", late)) == "not-invited"


def test_a_member_rotates_its_token_changes_its_key_and_leaves(both: Liver) -> None:
    both.a.put(message("a"))
    old = both.a.token
    both.a.token = both.a.ask("POST", "/member/token").json()["token"]
    assert problem(both.world.ask("GET", HERE, old)) == "wrong-token"
    keys = new_keys()
    both.a.rekey(keys)
    assert not both.b.fetch().handed
    assert problem(both.a.put(message("a", 2))) == "wrong-key"
    assert both.a.put(message("a", 2, keys=keys)).json() == {"out": True}
    assert both.members()["a"]["key"] == str(keys)
    for bad in ("ed25519:AAAA", "x", "ed25519:" + "A" * 43):
        body = new_key(both.a.nonce(), "a", keys, new_keys()) | {"key": bad}
        assert problem(both.a.ask("PUT", "/member/key", json=body)) == "wrong-key"
    assert both.a.ask("DELETE", "/member").status_code == 204
    assert problem(both.a.ask("GET", "")) == "wrong-token"
    assert "a" not in both.members()


def test_a_revoked_token_stops_working_at_every_hub_at_once(tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path}/hub.db"
    with World(db) as first, World(db) as second:
        token = first.enrol(first.federation(), "clinic")
        for hub in (first, second):
            assert hub.ask("GET", HERE, token).is_success
        with store.begin(first.engine) as connection:
            store.revoke(connection, "liver", "clinic", actor=ACTOR)
        for hub in (first, second):
            assert problem(hub.ask("GET", HERE, token)) == "wrong-token"
            assert problem(hub.put(message("clinic", 5), token)) == "wrong-token"


def test_nobody_takes_the_key_of_another(world: World) -> None:
    keys, own = new_keys(), new_keys()
    secret, other = world.federation("liver"), world.federation("lung")
    right = newcomer(secret, "a", keys)
    wrong = [
        newcomer(secret, "a", own)["proof"],
        newcomer(secret, "b", keys)["proof"],
        newcomer(other, "a", keys)["proof"],
        newcomer(secret, "a", keys, federation="lung")["proof"],
        newcomer(secret, "a", keys, agreed=OTHER)["proof"],
        proof("rekey", "a", hashed(secret), keys)["proof"],
        message("a", keys=keys).signature.hex(),
        *("", "00", "x" * 128, "0" * 128),
    ]
    for each in wrong:
        body = right | {"proof": each}
        assert problem(world.ask("POST", "/v1/members", json=body)) == "wrong-signature", each
    token = world.ask("POST", "/v1/members", json=right).json()["token"]
    nonce = world.ask("POST", HERE + "/member/key", token).json()["nonce"]
    signed = change(keys.public, own.public, bytes.fromhex(nonce))
    put = "PUT", HERE + "/member/key", token
    whole = new_key(nonce, "a", keys, own)
    for field, by in (("proof", own), ("old_proof", keys)):
        for each in (
            proof("rekey", "a", signed, new_keys()),  # who has only the token cannot
            proof("rekey", "a", signed, keys if by is own else own),
            proof("rekey", "b", signed, by),
            proof("rekey", "a", signed, by, federation="lung"),
            proof("rekey", "a", signed, by, agreed=OTHER),
            proof("enrol", "a", signed, by),
            proof("rekey", "a", hashed(token), by),
            proof("rekey", "a", change(own.public, keys.public, bytes.fromhex(nonce)), by),
            proof("rekey", "a", change(keys.public, own.public, bytes(16)), by),
        ):
            answer = world.ask(*put, json=whole | {field: each["proof"]})
            assert problem(answer) == "wrong-signature", (field, each)
    assert world.ask(*put, json=whole).status_code == 204


def test_a_change_of_the_key_cannot_be_repeated(both: Liver) -> None:
    """Also if the member has its first key again: an observer with the token has seen it all."""
    first, second = both.a.keys, new_keys()
    seen = [both.a.rekey(second), both.a.rekey(first)]
    for begun in (False, True):
        for body in seen:
            if begun:
                both.a.nonce()
            answer = both.a.ask("PUT", "/member/key", json=body)
            assert problem(answer) == ("wrong-signature" if begun else "wrong-request")
    assert both.members()["a"]["key"] == str(first)
    assert both.a.put(message("a")).json() == {"out": True}


def test_a_member_reads_only_its_own_lines_of_the_audit_log(
    liver: Liver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for site in (liver.a, liver.b):
        site.put(message(f"{site.name}/1"))
    lines = [json.loads(line) for line in liver.a.ask("GET", "/audit").text.splitlines()]
    assert [(line["action"], line["subject"]) for line in lines] == [
        ("joined", "a"),
        ("published", "a/1"),
    ]
    monkeypatch.setattr("fedbo.hub.store.audit.LOOKED_AT", 1)  # the last line is of b
    assert not liver.a.ask("GET", "/audit").text


# Limits, and what the hub says about itself


def test_a_flood_is_slowed_down_for_one_member_only(new_database: Callable[[str], str]) -> None:
    with World(new_database("sqlite"), rate=0.5) as world:
        secret = world.federation()
        tokens = [world.enrol(secret, name) for name in ("a", "b")]
        answers = [world.ask("GET", HERE, tokens[0]) for _ in range(3)]
        assert problem(answers[-1]) == "too-many-requests"
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert world.ask("GET", HERE, tokens[1]).is_success


@pytest.mark.parametrize("header", ["", "Bearer ", "Basic abc", "bearer x y", "Bearer \xff"])
def test_a_strange_header_is_a_wrong_token(world: World, header: str) -> None:
    answer = world.client.get(HERE, headers={b"authorization": header.encode("latin1")})
    assert (answer.status_code, problem(answer)) == (401, "wrong-token")
    assert "bearer" in answer.headers["www-authenticate"].lower()


def test_bodies_are_bounded_before_they_are_read(liver: Liver) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield bytes(2**16)

    for method, path in (
        ("PUT", HERE + "/messages"),
        ("POST", HERE + "/fetch"),
        ("PUT", HERE + "/member/key"),
        ("POST", "/v1/members"),
    ):
        answer = liver.world.ask(method, path, liver.a.token, content=endless())
        assert problem(answer) == "too-large"


def test_a_full_disk_is_one_line_for_each_request(
    liver: Liver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    monkeypatch.setattr(store, "publish", full)
    before = len(liver.world.log())
    for _ in range(3):
        answer = liver.a.put(message("a"))
        assert problem(answer) == "not-ready" and answer.headers["retry-after"]
    lines = [line for line in liver.world.log()[before:] if line["event"] != "request"]
    assert [line["text"] for line in lines] == ["database or disk is full"] * 3
    assert not any("traceback" in line for line in lines)


def test_a_database_of_another_version_is_not_ready(liver: Liver) -> None:
    assert liver.world.ask("GET", "/healthz").is_success
    with store.begin(liver.world.engine) as connection:
        connection.execute(update(schema.alembic_version).values(version_num="9999"))
    assert problem(liver.world.ask("GET", "/healthz")) == "not-ready"


def test_numbers_for_prometheus(tmp_path: Path) -> None:
    place = f"127.0.0.1:{free_port()}"
    with World(f"sqlite:///{tmp_path}/hub.db", metrics=place) as world:
        liver = Liver(world)
        liver.a.put(message("a"))
        liver.a.put(b"nonsense")
        world.ask("BREW", HERE)  # whoever invents methods must not fill the memory with them
        assert problem(world.ask("GET", "/metrics")) == "not-found"
        answer = httpx2.get(f"http://{place}/metrics", trust_env=False)
        with pytest.raises(HubError, match=f"metrics is '{place}'"):
            world.service.metrics.start(place)
    route = 'method="PUT",route="/v1/federations/{federation}/messages"'
    for expected in (
        f'fedbo_hub_request_seconds_count{{{route},status="200"}} 1.0',
        f'fedbo_hub_request_seconds_count{{{route},status="422"}} 1.0',
        "fedbo_hub_federations 1.0\n",
        "fedbo_hub_members 3.0\n",
    ):
        assert expected in answer.text
    assert "liver" not in answer.text and "BREW" not in answer.text


def test_the_log_has_one_line_for_each_request_and_no_path(liver: Liver) -> None:
    answers = [
        liver.a.put(message("a")),
        liver.world.ask("GET", f"/v1/{new_secret()}"),
        liver.a.ask("GET", "/messages", params={"sender": "a"}),
    ]
    lines = [line for line in liver.world.log() if line["event"] == "request"]
    assert [line["request"] for line in lines] == [one.headers["x-request-id"] for one in answers]
    place = "/v1/federations/{federation}/messages"
    assert [line["route"] for line in lines] == [place, "(none)", place]
    assert (lines[0]["federation"], lines[0]["who"], lines[0]["status"]) == ("liver", "a", 200)


# Who may do what

ROLES = ("none", "invited", "member", "foreign", "revoked")
FEDERATION = "/v1/federations/{federation}"


class Cast(NamedTuple):
    """The people of one federation, and of another one."""

    federation: str
    secret: str
    tokens: dict[str, str]
    nonce: str  # with which the member may change its key


Given = Callable[[Cast], dict[str, Any]]


def _nothing(cast: Cast) -> dict[str, Any]:
    return {}


def _json(**body: Any) -> Given:
    return lambda cast: {"json": body}


def _bytes(body: Any) -> Given:
    return lambda cast: {"content": msgspec.msgpack.encode(body), "headers": BINARY}


# For each endpoint: what to send, and the status for each of the ROLES, in their order.
ANYONE = (200,) * 5
MEMBER = (401, 401, 200, 404, 401)
GONE = (401, 401, 204, 404, 401)
MATRIX: dict[tuple[str, str], tuple[Given, tuple[int, ...]]] = {
    ("GET", "/healthz"): (_nothing, ANYONE),
    ("POST", "/v1/invitations/open"): (lambda cast: {"json": {"secret": cast.secret}}, ANYONE),
    ("POST", "/v1/members"): (
        lambda cast: {"json": newcomer(cast.secret, "newcomer", federation=cast.federation)},
        (201,) * 5,
    ),
    ("GET", FEDERATION): (_nothing, MEMBER),
    ("DELETE", FEDERATION + "/member"): (_nothing, GONE),
    ("POST", FEDERATION + "/member/token"): (_nothing, (401, 401, 201, 404, 401)),
    ("POST", FEDERATION + "/member/key"): (_nothing, (401, 401, 201, 404, 401)),
    ("PUT", FEDERATION + "/member/key"): (
        lambda cast: {
            "json": new_key(
                cast.nonce, "member", keys_of("member"), new_keys(), federation=cast.federation
            )
        },
        GONE,
    ),
    ("PUT", FEDERATION + "/messages"): (
        lambda cast: {"content": message("member", 2).encode()},
        MEMBER,
    ),
    ("GET", FEDERATION + "/messages"): (_nothing, MEMBER),
    ("POST", FEDERATION + "/fetch"): (_bytes(Wanted()), MEMBER),
    ("GET", FEDERATION + "/audit"): (_nothing, MEMBER),
    ("GET", FEDERATION + "/overview"): (_nothing, MEMBER),
    ("POST", "/v1/session"): (lambda cast: {"json": {"token": cast.tokens["member"]}}, ANYONE),
    ("GET", "/v1/session"): (_nothing, ANYONE),
    ("DELETE", "/v1/session"): (_nothing, (204,) * 5),
}

_numbers = itertools.count()


def cast_of(world: World) -> Cast:
    """Make two federations with members who have published something."""
    number = next(_numbers)
    here, there = f"liver-{number}", f"heart-{number}"
    tokens: dict[str, str] = {}
    secret, elsewhere = world.federation(here), world.federation(there)
    for role in ("member", "other", "revoked"):
        tokens[role] = world.enrol(secret, role)
    tokens["foreign"] = world.enrol(elsewhere, "member")
    place = f"/v1/federations/{here}"
    for role in ("member", "other"):
        assert world.put(message(role), tokens[role], here=place).is_success
    nonce = world.ask("POST", f"{place}/member/key", tokens["member"]).json()["nonce"]
    with store.begin(world.engine) as connection:
        store.revoke(connection, here, "revoked", actor=ACTOR)
    return Cast(here, secret, tokens, nonce)


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
    before = world.rows()
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
            before = world.rows()
        elif world.rows() != before:
            wrong.append((method, path, "something was changed"))
    assert not wrong


def test_another_federation_is_the_same_as_none(liver: Liver) -> None:
    token = liver.world.enrol(liver.world.federation("heart"), "a")
    liver.a.put(message("a"))
    assert liver.world.fetch(token, here="/v1/federations/heart").handed == ()
    answers = [
        liver.world.ask("GET", f"/v1/federations/{name}", liver.a.token)
        for name in ("heart", "nowhere", "../x", "Ü")
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert answers[0].json()["detail"] == answers[1].json()["detail"]


def test_a_cookie_changes_nothing(liver: Liver) -> None:
    opened = liver.world.ask("POST", "/v1/session", json={"token": liver.a.token})
    cookie = {"cookie": f"{COOKIE}={opened.cookies[COOKIE]}"}
    liver.world.client.cookies.clear()
    assert liver.world.ask("GET", HERE, headers=cookie).is_success
    before = liver.world.rows()
    for method, path in (("POST", "/member/token"), ("DELETE", "/member")):
        for more in ({}, {"x-fedbo": "1"}):
            answer = liver.world.ask(method, HERE + path, headers=cookie | more)
            assert problem(answer) == "wrong-token"
    assert liver.world.rows() == before
    with store.begin(liver.world.engine) as connection:
        store.revoke(connection, "liver", "a", actor=ACTOR)
    assert problem(liver.world.ask("GET", HERE, headers=cookie)) == "wrong-token"
