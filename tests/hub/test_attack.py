"""What a hostile member, or anyone who reaches the hub, may send: bodies of every wrong kind."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hub.world import ACTOR, AGREED, BINARY, HERE, World, key_given, message, problem, withdrawal

from fedbo import Federation
from fedbo.exchange.hub.wire import Progress, Publication, Wanted
from fedbo.hub import store
from fedbo.identity import KeyPair

KEYS = KeyPair.generate()


class Members:
    """A hub with two members who have published something; ``lab`` has a key."""

    def __init__(self, world: World) -> None:
        self.world = world
        secret = world.federation()
        self.secret = secret
        self.clinic, self.lab = world.enrol(secret, "clinic"), world.enrol(secret, "lab", KEYS)
        assert world.put(message("clinic", 5), self.clinic).is_success
        assert world.put(message("lab", 5, keys=KEYS), self.lab).is_success
        self.look()

    def look(self) -> None:
        """Remember what the hub has now."""
        self._before = self.world.rows("audit", "activity")

    def send(self, path: str, body: bytes, token: str | None = None, method: str = "PUT") -> Any:
        token = self.clinic if token is None else token
        return self.world.ask(method, HERE + path, token, content=body, headers=BINARY)

    def check_unchanged(self) -> None:
        assert self.world.rows("audit", "activity") == self._before
        assert self.world.ask("GET", "/readyz").is_success


@pytest.fixture(scope="module")
def hub_of_members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    with World(f"sqlite:///{tmp_path_factory.mktemp('hub')}/hub.db") as world:
        yield Members(world)


@pytest.fixture
def members(hub_of_members: Members) -> Members:
    hub_of_members.look()
    return hub_of_members


def packed(*fields: Any) -> bytes:
    return msgspec.msgpack.encode(fields)


GOOD = message("clinic", 6).encode()
NO_PUBLICATIONS = [
    b"",
    b"\xff" * 100,
    GOOD,  # not in a publication
    packed(),
    packed(GOOD, None, 1),
    packed(GOOD, [3, 0.5]) + b"\0",
    packed(GOOD, [-1]),
    packed(GOOD, [3, float("nan")]),
    packed(GOOD, [3, None, 1e300]),
    packed(GOOD, [2**40]),
    packed(GOOD, [3, "0.5"]),
    packed("text", None),
    b"\x91" * 500,  # arrays in arrays
    b"\xdd\xff\xff\xff\xff",  # an array of 4,294,967,295 elements
    b"\x92\xc6\xff\xff\xff\xff",  # and as many bytes
]


@pytest.mark.parametrize("body", NO_PUBLICATIONS, ids=range(len(NO_PUBLICATIONS)))
def test_what_is_no_publication_is_refused(members: Members, body: bytes) -> None:
    answer = members.send("/messages", body)
    assert (answer.status_code, problem(answer)) == (422, "wrong-request")
    members.check_unchanged()


def test_what_is_no_message_of_the_sender_is_refused(members: Members) -> None:
    other = Federation(AGREED.space, features=AGREED.features, seed=4, kind="weights")
    belief = Federation(AGREED.space, features=AGREED.features, seed=3, kind="belief")
    lab = members.lab
    spoilt = message("lab", 6, keys=KEYS).encode()
    spoilt = spoilt[:-1] + bytes([spoilt[-1] ^ 1])
    for content, token, slug in (
        (b"garbage", members.clinic, "wrong-message"),
        (GOOD[:-1], members.clinic, "wrong-message"),
        (message("clinic", 6, agreed=other).encode(), members.clinic, "wrong-message"),
        (message("clinic", 6, fingerprint=belief.fingerprint).encode(), None, "wrong-message"),
        (message("lab", 6).encode(), members.clinic, "wrong-sender"),
        (message("lab", 6).encode(), lab, "wrong-key"),  # not signed
        (message("lab", 6, keys=KeyPair.generate()).encode(), lab, "wrong-key"),
        (message("clinic", 6, keys=KEYS).encode(), members.clinic, "wrong-key"),
        (withdrawal("clinic", 9, KEYS).encode(), members.clinic, "wrong-key"),
        (withdrawal("lab", 9, KeyPair.generate()).encode(), lab, "wrong-key"),
        (spoilt, lab, "wrong-signature"),
    ):
        answer = members.send("/messages", msgspec.msgpack.encode(Publication(content)), token)
        assert problem(answer) == slug
    members.check_unchanged()


@pytest.mark.parametrize(
    "sender", ["lab", "lab/x", "", "/", "clinic2", "Clinic", "clinic /x", "../lab"]
)
def test_another_agent_cannot_be_spoken_for(members: Members, sender: str) -> None:
    ask, params = members.world.ask, {"sender": sender}
    answers = [
        ask(method, f"{HERE}/messages", members.clinic, params=params)
        for method in ("GET", "DELETE")
    ]
    if sender:
        answers.append(members.world.put(message(sender, 9), members.clinic))
    assert {problem(answer) for answer in answers} == {"wrong-sender"}
    members.check_unchanged()


@pytest.mark.parametrize("body", [b"", b"\xff", packed(1), packed("", 1), packed("x" * 101)])
def test_what_is_no_question_is_refused(members: Members, body: bytes) -> None:
    answer = members.send("/fetch", body, method="POST")
    assert (answer.status_code, problem(answer)) == (422, "wrong-request")


@pytest.mark.parametrize("cursor", ["nonsense", "0.0", "-1", "f" * 32 + ".5", "x" * 100])
def test_a_cursor_that_means_nothing_gets_everything(members: Members, cursor: str) -> None:
    news = members.world.fetch(members.clinic, cursor)
    assert news.is_all and len(news.handed) == 2


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/messages"), ("POST", "/fetch"), ("PUT", "/member/key")],
)
def test_a_large_body_is_not_read(members: Members, method: str, path: str) -> None:
    answer = members.send(path, bytes(2**23), method=method)
    assert (answer.status_code, problem(answer)) == (413, "too-large")
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        for _ in range(1000):
            read += 2**16
            yield bytes(2**16)

    answer = members.world.ask(
        method, HERE + path, members.clinic, content=endless(), headers=BINARY
    )
    assert (answer.status_code, problem(answer)) == (413, "too-large")
    members.check_unchanged()


@pytest.mark.parametrize("path", ["/v1/invitations/open", "/v1/members"])
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"[" * 10**5, b'{"secret": 7}', b'{"secret": "\\ud800"}', b"\xff"]
)
def test_a_stranger_gets_nowhere(members: Members, path: str, body: bytes) -> None:
    answer = members.world.ask("POST", path, content=body)
    assert 400 <= answer.status_code < 500
    assert problem(answer) in ("wrong-request", "not-invited", "too-large")
    members.check_unchanged()


@pytest.mark.parametrize("token", ["", "fedbo-m-" + "a" * 43, "é", "x" * 10**5])
def test_a_token_that_is_none_is_refused(members: Members, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}".encode()}
    answer = members.world.ask("GET", HERE + "/member", headers=headers)
    assert (answer.status_code, problem(answer)) == (401, "wrong-token")
    assert token not in answer.text or not token


def test_changed_bytes_never_make_the_hub_fail(members: Members) -> None:
    rng = random.Random(5)
    truths = [
        msgspec.msgpack.encode(Publication(GOOD, Progress(3, best=0.5))),
        msgspec.msgpack.encode(Publication(message("lab", 6, keys=KEYS).encode())),
        msgspec.msgpack.encode(Wanted("a.5")),
    ]
    for i in range(300):
        body = bytearray(rng.choice(truths))
        for _ in range(rng.choice([1, 2, 8])):
            body[rng.randrange(len(body))] = rng.randrange(256)
        path, method = rng.choice([("/messages", "PUT"), ("/fetch", "POST")])
        token = rng.choice([members.clinic, members.lab])
        answer = members.send(path, bytes(body), token, method)
        assert answer.status_code < 500, (i, answer.text)
        if not answer.is_success:
            problem(answer)


def test_a_federation_sees_nothing_of_another_with_the_same_fingerprint(members: Members) -> None:
    world, there = members.world, "/v1/federations/heart"
    token = world.enrol(world.federation("heart"), "clinic")
    assert world.fetch(token, here=there).handed == ()
    rows = world.ask("GET", f"{there}/members", token).json()
    assert [row["name"] for row in rows] == ["clinic"]
    assert [row["name"] for row in world.ask("GET", "/v1/federations", token).json()] == ["heart"]
    assert world.ask("GET", f"{HERE}/members", token).status_code == 404


def test_what_a_member_changes_and_leaves_is_its_own(members: Members) -> None:
    world, keys = members.world, KeyPair.generate()
    token = world.enrol(members.secret, "guest")
    assert world.put(message("guest"), token).is_success
    before = [one.content for one in world.fetch(members.lab).handed][:-1]
    given = key_given("rekey", "guest", token, keys)
    assert world.ask("PUT", f"{HERE}/member/key", token, json=given).is_success
    assert world.ask("DELETE", f"{HERE}/member", token).is_success
    assert problem(world.ask("GET", f"{HERE}/member", token)) == "wrong-token"
    assert [one.content for one in world.fetch(members.lab).handed] == before


def test_a_revoked_token_stops_working_at_every_worker_at_once(tmp_path: Any) -> None:
    db = f"sqlite:///{tmp_path}/hub.db"
    with World(db) as first, World(db) as second:
        token = first.enrol(first.federation(), "clinic")
        for hub in (first, second):
            assert hub.ask("GET", f"{HERE}/member", token).is_success
        with store.begin(first.engine) as connection:
            store.revoke(connection, "liver", "clinic", actor=ACTOR)
        for hub in (first, second):
            assert problem(hub.ask("GET", f"{HERE}/member", token)) == "wrong-token"
            assert problem(hub.put(message("clinic", 5), token)) == "wrong-token"
