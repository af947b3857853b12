"""What a hub does over HTTP, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
import zstandard
from hub.test_hub_releases import EXAMPLES as PRIVATE
from hub.world import (
    ACTOR,
    AGREED,
    World,
    key_given,
    later,
    message,
    news,
    problem,
    scalars,
    wanted,
)
from sqlalchemy import update
from sqlalchemy.exc import OperationalError
from starlette.requests import Request

from fedbo.exchange.hub.memberships import Invitation
from fedbo.exchange.hub.wire import MEDIA_TYPE, News
from fedbo.federation import Federation, Scalars
from fedbo.hub import admin, limits, migrations, schema
from fedbo.hub.auth import COOKIE
from fedbo.hub.database import begin
from fedbo.hub.problems import PROBLEMS, Refused
from fedbo.hub.shell import Record
from fedbo.hub.tokens import new_secret, new_token
from fedbo.identity import KeyPair
from fedbo.message import Message, Withdrawal
from fedbo.message.signed import MOST_AGENTS
from fedbo.space import Float

HERE = "/v1/federations/liver"
GIVEN: dict[str, Any] = {"features": 8, "seed": 3, "kind": "weights"}
OTHER = Federation(AGREED.space, **{**GIVEN, "seed": 4})
BINARY = {"headers": {"content-type": MEDIA_TYPE}}


class Site:
    """A member of the federation ``liver``."""

    def __init__(self, world: World, secret: str, name: str, keys: KeyPair | None = None) -> None:
        self.world, self.name, self.keys = world, name, keys
        self.token = world.enrol(secret, name, keys)

    def ask(self, method: str, path: str, **given: Any) -> Any:
        return self.world.ask(method, HERE + path, self.token, **given)

    def put(self, content: Message | Withdrawal | bytes) -> Any:
        data = content if isinstance(content, bytes) else content.encode()
        return self.ask("PUT", "/messages", content=data, **BINARY)

    def fetch(self, **given: Any) -> News:
        return news(self.ask("POST", "/fetch", **wanted(**given)))


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
def world(new_database: Callable[[str], str]) -> Iterator[World]:
    with World(new_database("sqlite")) as running:
        yield running


@pytest.fixture
def liver(world: World) -> Liver:
    return Liver(world)


@pytest.fixture(params=["sqlite", "postgresql"])
def both(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> Iterator[Liver]:
    with World(new_database(request.param)) as running:
        yield Liver(running)


# What each problem of the hub looks like from outside.


def _not_invited(liver: Liver) -> Any:
    return liver.world.ask("POST", "/v1/members", json={"secret": new_secret(), "name": "x"})


def _name_taken(liver: Liver) -> Any:
    return liver.world.ask("POST", "/v1/members", json={"secret": liver.secret, "name": "a"})


def _wrong_name(liver: Liver) -> Any:
    return liver.world.ask("POST", "/v1/members", json={"secret": liver.secret, "name": "a/b"})


def _too_many_agents(liver: Liver) -> Any:
    for i in range(MOST_AGENTS):
        assert liver.a.put(message(f"a/{i}")).is_success
    return liver.a.put(message("a/more"))


def _wrong_signature(liver: Liver) -> Any:
    signed = message("signer", keys=liver.keys)
    return liver.signer.put(msgspec.structs.replace(signed, signature=bytes(64)))


def _too_large(liver: Liver) -> Any:
    return liver.a.put(bytes(5000))


def _too_slow(liver: Liver) -> Any:
    return _slow(liver, HERE + "/messages", liver.a.token)


def _too_many_requests(liver: Liver) -> Any:
    liver.world.service.requests.rate, liver.world.service.requests.burst = 0.01, 1.0
    for _ in range(3):
        answer = liver.a.ask("GET", "/member")
    return answer


def _failed(liver: Liver) -> Any:
    def fail(*_: object) -> Any:
        raise RuntimeError(f"broken {liver.a.token}")

    liver.world.service.feeds.news = fail
    return liver.a.ask("POST", "/fetch", **wanted())


def _not_ready(liver: Liver) -> Any:
    def fail() -> Any:
        raise OperationalError("SELECT", {}, Exception("gone"))

    liver.world.service.engine.connect = fail
    return liver.world.ask("GET", "/readyz")


EXAMPLES: dict[str, Callable[[Liver], Any]] = {
    "wrong-request": lambda liver: liver.ask("POST", HERE + "/invitations", json={"uses": "x"}),
    "wrong-token": lambda liver: liver.world.ask("GET", HERE, new_token("member")),
    "not-allowed": lambda liver: liver.a.ask("POST", "/invitations", json={}),
    "not-invited": _not_invited,
    "no-such-federation": lambda liver: liver.ask("GET", "/v1/federations/heart"),
    "not-found": lambda liver: liver.ask("POST", HERE + "/members/revoke", json={"name": "x"}),
    "wrong-method": lambda liver: liver.ask("PATCH", "/v1/federations"),
    "too-slow": _too_slow,
    "name-taken": _name_taken,
    "wrong-epoch": lambda liver: liver.a.put(message("a", epoch=7)),
    "too-many-agents": _too_many_agents,
    "too-large": _too_large,
    "wrong-name": _wrong_name,
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
}


@pytest.mark.parametrize("slug", sorted({*PROBLEMS} - {*PRIVATE} | {*EXAMPLES}))
def test_every_problem_says_what_is_wrong_and_changes_nothing(
    liver: Liver, slug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.2)
    if slug == "too-many-agents":
        _too_many_agents(liver)
    before = liver.world.rows("audit")
    connect = liver.world.service.engine.connect
    answer = EXAMPLES[slug](liver)
    liver.world.service.engine.connect = connect
    assert problem(answer) == slug
    assert (answer.status_code, answer.json()["title"]) == PROBLEMS[slug]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert liver.world.rows("audit") == before
    liver.world.client.__exit__(None, None, None)
    (line,) = [
        line
        for line in liver.world.log()
        if line.get("request") == answer.json()["instance"] and line["event"] == "request"
    ]
    assert (line["problem"], line["status"]) == (slug, answer.status_code)
    written = liver.world.lines.getvalue() + answer.text
    for secret in (liver.a.token, liver.operator, liver.secret):
        assert secret not in written


def _slow(liver: Liver, path: str, token: str) -> Any:
    """Send a body that never ends, and return the answer."""
    import httpx

    async def never() -> Any:
        yield b"x"
        await asyncio.sleep(30.0)

    async def send() -> Any:
        transport = httpx.ASGITransport(app=liver.world.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://hub") as client:
            headers = {"Authorization": f"Bearer {token}"}
            return await client.put(path, content=never(), headers=headers)

    return liver.world.client.portal.call(send)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "not a message"),
        (b"\xc1", "not a message"),
        (message("a", omega=[1.0] * 7).encode(), "M = 7, expected M = 8"),
        (message("a", omega=[math.nan] * 8).encode(), "NaN or infinity"),
        (message("a", omega=[1e30] * 8).encode(), "norm"),
        (message("a", fingerprint=bytes(16)).encode(), "foreign space"),
        (
            message("a", agreed=Federation({"x": Float(0, 1)}, **GIVEN)).encode(),
            "foreign space",
        ),
        (message("a").encode() + b"\0", "not a message"),
        (message("a").encode()[:-1], "not a message"),
        (msgspec.msgpack.encode([1] * 100), "wrong field"),
        (b"\x91" * 500, "not a message"),
    ],
)
def test_a_bad_message_is_refused_with_the_reason(
    liver: Liver, content: bytes, expected: str
) -> None:
    assert liver.a.put(message("a", 1)).json() == {"out": True}
    before = liver.world.rows("audit")
    answer = liver.a.put(content)
    assert (answer.status_code, problem(answer)) == (422, "wrong-message")
    assert expected in answer.json()["detail"]
    assert len(answer.text) < 1000
    assert liver.world.rows("audit") == before


def test_publishing_again_changes_nothing_and_an_older_message_never_wins(both: Liver) -> None:
    first, second = message("a", 1), message("a", 2)
    assert both.a.put(second).json() == {"out": True}
    cursor = both.b.fetch().cursor
    assert both.a.put(second).json() == {"out": True}
    assert both.a.put(first).json() == {"out": False}
    other = message("a", 2, omega=np.ones(8))
    assert both.a.put(other).json() == {"out": False}
    found = both.b.fetch(cursor=cursor)
    assert (found.handed, found.gone) == ((), ())
    (handed,) = both.b.fetch().handed
    assert handed.content == second.encode()


def test_a_fetch_tells_only_what_changed_and_what_is_gone(both: Liver) -> None:
    for site in (both.a, both.b):
        site.put(message(site.name))
    first = both.a.fetch()
    assert first.is_all and len(first.handed) == 2
    both.b.put(message("b", 2))
    second = both.a.fetch(cursor=first.cursor)
    assert [one.content for one in second.handed] == [message("b", 2).encode()]
    withdrawn = both.b.ask("DELETE", "/messages", params={"sender": "b", "epoch": 0})
    assert withdrawn.json() == {"out": False, "was_out": True}
    third = both.a.fetch(cursor=second.cursor)
    assert third.gone == (second.handed[0].number,) and not third.handed
    again = both.b.ask("DELETE", "/messages", params={"sender": "b"})
    assert again.json() == {"out": False, "was_out": False}
    assert both.b.put(message("b", 1)).json() == {"out": True}


def test_signed_messages_keep_their_signatures_and_are_withdrawn_by_one(both: Liver) -> None:
    signed = message("signer/x", 4, keys=both.keys)
    assert both.signer.put(signed).json() == {"out": True}
    (handed,) = both.a.fetch().handed
    assert handed.content == signed.encode()
    unsigned = both.signer.ask("DELETE", "/messages", params={"sender": "signer/x"})
    assert problem(unsigned) == "wrong-key"
    header = {"fingerprint": AGREED.fingerprint, "epoch": 0, "sender": "signer/x", "sequence": 4}
    withdrawal = both.keys.sign(Withdrawal(**header, key=bytes(32), signature=bytes(64)))
    foreign = KeyPair.generate().sign(withdrawal)
    assert problem(both.signer.put(foreign)) == "wrong-key"
    assert both.signer.put(withdrawal).json() == {"out": False, "was_out": True}
    assert both.signer.put(signed).json() == {"out": False}
    assert both.signer.put(message("signer/x", 5, keys=both.keys)).json() == {"out": True}
    foreign_epoch = msgspec.structs.replace(withdrawal, fingerprint=bytes(16))
    assert problem(both.signer.put(both.keys.sign(foreign_epoch))) == "wrong-message"
    assert problem(both.a.put(message("a", keys=both.keys))) == "wrong-key"


def test_answers_are_compressed_for_those_who_accept_it(liver: Liver) -> None:
    for i in range(10):
        liver.a.put(message(f"a/{i}", omega=np.zeros(8)))
    asked = wanted()
    asked["headers"]["accept-encoding"] = "gzip, zstd;q=0"
    plain = liver.a.ask("POST", "/fetch", **asked)
    assert "content-encoding" not in plain.headers
    asked["headers"]["accept-encoding"] = "gzip, zstd"
    with liver.world.client.stream(
        "POST",
        HERE + "/fetch",
        content=asked["content"],
        headers={**asked["headers"], "authorization": f"Bearer {liver.a.token}"},
    ) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers["content-encoding"] == "zstd"
    assert zstandard.ZstdDecompressor().decompress(raw) == plain.content
    assert len(raw) < len(plain.content) / 2


def test_messages_are_listed(both: Liver) -> None:
    both.a.put(message("a/1"))
    both.a.put(message("a/2"))
    both.b.put(message("b"))
    everything = msgspec.msgpack.decode(both.a.ask("GET", "/messages").content)
    assert {content for _, content in everything} == {
        message(sender).encode() for sender in ("a/1", "a/2", "b")
    }
    own = msgspec.msgpack.decode(both.a.ask("GET", "/messages", params={"sender": "a/2"}).content)
    assert [content for _, content in own] == [message("a/2").encode()]
    assert all(when > 1e9 for when, _ in everything)


def test_epochs_come_and_messages_of_each_stay_apart(both: Liver) -> None:
    later = AGREED.next_epoch(noise_variance=0.05)
    both.a.put(message("a"))
    answer = both.ask("POST", HERE + "/epochs", json={"file": later.to_toml()})
    assert (answer.status_code, answer.json()["epoch"]) == (201, 1)
    assert both.a.put(message("a", agreed=later)).json() == {"out": True}
    assert both.a.fetch().epoch == 1
    assert len(both.a.fetch(epoch=1).handed) == 1
    assert both.a.ask("GET", "").json()["epoch"] == 1
    old = both.a.ask("GET", "", params={"epoch": 0}).json()
    assert (old["epoch"], old["current"]) == (0, 1)
    assert Federation.from_toml(old["file"]) == AGREED
    assert problem(both.a.ask("GET", "", params={"epoch": 2})) == "wrong-epoch"
    foreign = Federation({"z": Float(0, 1)}, features=8, epoch=2, kind="weights")
    refused = both.ask("POST", HERE + "/epochs", json={"file": foreign.to_toml()})
    assert problem(refused) == "wrong-federation"


def test_scalars_are_shared_by_epoch(both: Liver) -> None:
    put = both.a.ask("PUT", "/scalars", content=scalars("a").encode(), **BINARY)
    assert put.json() == {"epoch": 0}
    both.b.ask("PUT", "/scalars", content=scalars("b").encode(), **BINARY)
    again = msgspec.structs.replace(scalars("a"), t_n=30)
    assert both.a.ask("PUT", "/scalars", content=again.encode(), **BINARY).is_success
    found = msgspec.msgpack.decode(both.b.ask("GET", "/scalars").content)
    assert {one.sender: one.t_n for one in map(Scalars.decode, found)} == {"a": 30, "b": 20}
    assert msgspec.msgpack.decode(both.b.ask("GET", "/scalars", params={"epoch": 3}).content) == []
    for bad, expected in [
        (b"x", "wrong-message"),
        (scalars("b").encode(), "wrong-sender"),
        (
            msgspec.structs.replace(scalars("a"), length_scales=(1.0,)).encode(),
            "wrong-message",
        ),
        (
            scalars("a", AGREED.next_epoch(noise_variance=0.01)).encode(),
            "wrong-epoch",
        ),
    ]:
        assert problem(both.a.ask("PUT", "/scalars", content=bad, **BINARY)) == expected
    for i in range(MOST_AGENTS - 1):
        assert both.a.ask("PUT", "/scalars", content=scalars(f"a/{i}").encode()).is_success
    more = both.a.ask("PUT", "/scalars", content=scalars("a/more").encode())
    assert problem(more) == "too-many-agents"


def test_progress_is_reported_and_forgotten(both: Liver) -> None:
    body = {"sender": "a", "trials": 7, "best": 0.5, "saved": None}
    assert both.a.ask("PUT", "/progress", json=body).json() == body
    assert both.a.ask("PUT", "/progress", json={**body, "trials": 8}).is_success
    (row,) = both.world.rows()["progress"]
    assert 8 in row
    lines = len(both.world.audit("reported"))
    assert both.a.ask("PUT", "/progress", json={**body, "trials": 8}).is_success
    assert len(both.world.audit("reported")) == lines  # nothing has changed
    faults = ({"best": "x"}, {"trials": -1}, {"trials": 1.5}, {"sender": "a/\n"}, {"x": 1})
    for wrong in (*faults, {"saved": 1.7e308}, {"saved": -1e10}, {"trials": 2**31}):
        answer = both.a.ask("PUT", "/progress", json={**body, **wrong})
        assert problem(answer) == "wrong-request", wrong
    nan = json.dumps({**body, "best": math.nan})
    answer = both.a.ask(
        "PUT", "/progress", content=nan, headers={"content-type": "application/json"}
    )
    assert problem(answer) == "wrong-request"
    forget = {"params": {"sender": "a"}}
    assert both.a.ask("DELETE", "/progress", **forget).json() == {"was_there": True}
    assert both.a.ask("DELETE", "/progress", **forget).json() == {"was_there": False}


def test_invitations_are_made_opened_used_and_taken_back(both: Liver) -> None:
    world = both.world
    made = both.ask("POST", HERE + "/invitations", json={"uses": 1, "days": 2}).json()
    invitation = Invitation.parse(made["invitation"])
    opened = world.ask("POST", "/v1/invitations/open", json={"secret": invitation.secret}).json()
    assert (opened["federation"], opened["epoch"]) == ("liver", 0)
    invitation.check(Federation.from_toml(opened["file"]))
    wrong = {"secret": invitation.secret, "name": "heart"}
    assert problem(world.ask("POST", "/v1/invitations/open", json=wrong)) == "not-invited"
    enrolled = world.ask("POST", "/v1/members", json={"secret": invitation.secret, "name": "c"})
    assert enrolled.status_code == 201
    token = enrolled.json()["token"]
    assert world.ask("GET", HERE + "/member", token).json()["name"] == "c"
    used = world.ask("POST", "/v1/members", json={"secret": invitation.secret, "name": "d"})
    assert (problem(used), "used up" in used.text) == ("not-invited", True)
    listed = both.ask("GET", HERE + "/invitations").json()
    assert [one["uses"] for one in listed] == [997]
    assert "secret" not in json.dumps(listed)
    gone = both.ask("DELETE", HERE + "/invitations", params={"id": listed[0]["id"]})
    assert gone.is_success
    assert problem(_name_taken(both)) == "not-invited"
    made = both.ask("POST", HERE + "/invitations", json={}).json()
    with begin(world.engine) as connection:
        connection.execute(update(schema.invitation).values(expires=1.0))
    late = {"secret": Invitation.parse(made["invitation"]).secret}
    expired = world.ask("POST", "/v1/invitations/open", json=late)
    assert (problem(expired), "expired" in expired.text) == ("not-invited", True)


def test_an_enrolment_says_which_federation_it_locks(
    liver: Liver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer locks all federations of a batch in their order, so that none waits in a ring."""
    locked, usual = list[int | None](), liver.world.service.change

    async def change(function: Any, federation: int | None = None) -> Any:
        locked.append(federation)
        return await usual(function, federation)

    monkeypatch.setattr(liver.world.service, "change", change)
    body = {"secret": liver.secret, "name": "c"}
    assert liver.world.ask("POST", "/v1/members", json=body).status_code == 201
    assert locked == [1]


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
    names = [one["name"] for one in both.b.ask("GET", "/members").json()]
    assert names == ["b", "signer"]
    assert both.world.enrol(both.secret, "a")


def test_a_signed_message_that_was_deleted_cannot_be_put_back(both: Liver) -> None:
    """A peer may have kept it, and the name is free."""
    kept = message("signer", 3, keys=both.keys)
    assert both.signer.put(kept).json() == {"out": True}
    assert both.signer.ask("DELETE", "/member").is_success
    again = Site(both.world, both.secret, "signer", both.keys)
    for one in (kept, message("signer", 2, keys=both.keys)):
        assert again.put(one).json() == {"out": False}
    assert not both.b.fetch().handed
    assert again.put(message("signer", 4, keys=both.keys)).json() == {"out": True}
    both.a.put(message("a", 3))
    assert both.a.ask("DELETE", "/member").is_success
    unsigned = Site(both.world, both.secret, "a")
    assert unsigned.put(message("a", 3)).json() == {"out": True}


def test_a_signed_withdrawal_outlives_a_change_of_the_key(both: Liver) -> None:
    kept = message("signer", 3, keys=both.keys)
    both.signer.put(kept)
    header = {"fingerprint": AGREED.fingerprint, "epoch": 0, "sender": "signer", "sequence": 3}
    withdrawal = both.keys.sign(Withdrawal(**header))
    both.signer.put(withdrawal)
    (me,) = (one for one in both.ask("GET", HERE + "/members").json() if one["name"] == "signer")
    for key in (None, both.keys.public):
        with begin(both.world.engine) as connection:
            admin.rekey(connection, me["id"], key)
    later()
    assert both.signer.put(kept).json() == {"out": False}
    (row,) = both.world.rows()["message"]
    assert withdrawal.encode() in row
    assert both.signer.put(message("signer", 4, keys=both.keys)).json() == {"out": True}


def test_an_operator_removes_and_revokes(both: Liver) -> None:
    for site in (both.a, both.b):
        site.put(message(site.name))
    assert both.ask("POST", HERE + "/members/revoke", json={"name": "a"}).is_success
    assert both.ask("DELETE", HERE + "/members", params={"name": "b"}).is_success
    members = both.ask("GET", HERE + "/members").json()
    assert {one["name"]: one["is_revoked"] for one in members} == {"a": True, "signer": False}
    assert not both.signer.fetch().handed
    assert problem(_name_taken(both)) == "name-taken"
    assert both.world.enrol(both.secret, "b")


def test_members_are_listed_in_pages(liver: Liver) -> None:
    seen: list[str] = []
    after = 0
    while page := liver.ask("GET", HERE + "/members", params={"after": after, "most": 2}).json():
        seen += [one["name"] for one in page]
        after = page[-1]["id"]
    assert seen == ["a", "b", "signer"]


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
    listed = Federation(AGREED.space, **GIVEN, members={"a": str(keys)})
    secret, other = world.federation("liver", listed), world.federation("lung", listed)
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
    before = world.rows()
    for proof in wrong:
        body = {"secret": secret, "name": "a", **right, "proof": proof}
        answer = world.ask("POST", "/v1/members", json=body)
        assert problem(answer) == "wrong-signature", proof
        assert str(keys) in answer.text and secret not in answer.text
    body = {"secret": secret, "name": "a", "key": str(keys)}
    assert problem(world.ask("POST", "/v1/members", json=body)) == "wrong-signature"
    assert world.rows("audit") == {name: before[name] for name in before if name != "audit"}
    epoch = listed.next_epoch(length_scale=0.7)  # begins after the invitation was opened
    with begin(world.engine) as connection:
        admin.add_epoch(connection, "liver", epoch, actor=ACTOR)
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
    assert liver.a.ask("PUT", "/member/key", json={"key": None}).json() == {"key": None}
    liver.a.token = liver.a.ask("POST", "/member/token").json()["token"]
    assert problem(liver.a.ask("PUT", "/member/key", json=given)) == "wrong-signature"


def test_refusals_are_in_the_audit_log_but_cannot_fill_it(liver: Liver) -> None:
    for _ in range(100):
        assert problem(liver.a.put(b"nonsense")) == "wrong-message"
    liver.b.put(message("a"))
    refused = liver.world.audit("refused")
    assert {(line["actor"], line["detail"]["problem"]) for line in refused} == {
        ("a", "wrong-message"),
        ("b", "wrong-sender"),
    }
    assert all(line["federation"] == "liver" for line in refused)
    assert 20 <= len(refused) < 40


def test_refused_joins_are_in_the_audit_log_of_their_federation(liver: Liver) -> None:
    def join(name: str, secret: str = liver.secret, **given: Any) -> str:
        body = {"secret": secret, "name": name, **given}
        return problem(liver.world.ask("POST", "/v1/members", json=body))

    with begin(liver.world.engine) as connection:
        used = admin.invite(connection, "liver", uses=1, actor=ACTOR).invitation.secret
        late = admin.invite(connection, "liver", actor=ACTOR)
        expired = update(schema.invitation).where(schema.invitation.c.id == late.id)
        connection.execute(expired.values(expires=1.0))
    liver.world.enrol(used, "c")
    key = str(KeyPair.generate())
    assert join("d", used) == join("invitation 3", late.invitation.secret) == "not-invited"
    assert join("a") == "name-taken"
    assert join("e", key="nonsense") == "wrong-key"
    assert join("f", key=key) == "wrong-signature"
    assert join("\x1b[2J" + 58 * "\U000e0001") == "wrong-name"
    assert join("g", new_secret()) == "not-invited"
    opened = {"secret": used, "name": "liver"}
    assert problem(liver.world.ask("POST", "/v1/invitations/open", json=opened)) == "not-invited"
    lines = liver.world.audit("refused")
    hostile = lines.pop(5)["subject"]
    assert hostile.startswith("'\\x1b[2J\\U000e0001") and len(hostile) == 128
    assert [(one["federation"], one["subject"], one["detail"]["problem"]) for one in lines] == [
        ("liver", "d", "not-invited"),
        ("liver", "'invitation 3'", "not-invited"),
        ("liver", "a", "name-taken"),
        ("liver", "e", "wrong-key"),
        ("liver", "f", "wrong-signature"),
        ("", "g", "not-invited"),  # nobody knows which federation that was
        ("liver", "", "not-invited"),
    ]
    assert {one["actor"] for one in lines} == {admin.UNKNOWN}


def test_a_flood_is_slowed_down_for_one_member_only(new_database: Callable[[str], str]) -> None:
    with World(new_database("sqlite"), rate=0.1) as world:
        world.service.requests.burst = 3.0
        liver = Liver(world)
        statuses = [liver.a.ask("GET", "/member").status_code for _ in range(6)]
        assert statuses == [200] * 3 + [429] * 3
        refused = liver.a.ask("GET", "/member")
        assert 1 <= int(refused.headers["retry-after"]) <= 10
        assert liver.b.ask("GET", "/member").status_code == 200
        assert all(liver.ask("GET", HERE).is_success for _ in range(6))


def test_what_takes_long_counts_as_several_requests(new_database: Callable[[str], str]) -> None:
    with World(new_database("sqlite"), rate=0.01) as world:
        world.service.requests.burst = 20.0
        liver = Liver(world)
        assert [liver.a.ask("GET", "/overview").status_code for _ in range(3)] == [200, 200, 429]
        statuses = [liver.b.ask("GET", "/members").status_code for _ in range(5)]
        assert statuses == [200] * 4 + [429]


def test_failed_log_ins_are_counted_by_address(new_database: Callable[[str], str]) -> None:
    with World(new_database("sqlite"), failures=5) as world:
        liver = Liver(world)
        assert liver.a.ask("GET", "/member").is_success
        for _ in range(3):
            assert world.ask("GET", HERE, new_token("member")).status_code == 401
        assert _not_invited(liver).status_code == 403
        assert world.ask("GET", HERE, "nonsense").status_code == 401

        def refused() -> None:
            for answer in (
                world.ask("GET", HERE, new_token("member")),
                _not_invited(liver),
                world.ask("GET", HERE, headers={"cookie": f"{COOKIE}={new_secret()}"}),
            ):
                assert (answer.status_code, problem(answer)) == (429, "too-many-requests")
                assert int(answer.headers["retry-after"]) > 0

        def no_work(*_: object) -> Any:
            raise AssertionError("the database is asked")

        refused()
        assert liver.b.ask("GET", "/member").is_success, "so does a token that is new to it"
        while world.service.auth._looks.take(limits.network("testclient")) == 0:
            pass
        connect, world.service.engine.connect = world.service.engine.connect, no_work
        refused()
        world.service.engine.connect = connect
        assert liver.a.ask("GET", "/member").is_success, "a known token still works"


def test_a_cookie_needs_the_header_to_change_something(liver: Liver) -> None:
    auth, portal = liver.world.service.auth, liver.world.client.portal

    login = Request({"type": "http", "fedbo": Record("192.0.2.7")})
    session = portal.call(auth.open_session, login, liver.operator)
    cookie = {"cookie": f"{COOKIE}={session.secret}"}
    assert liver.world.ask("GET", HERE, headers=cookie).is_success
    body = {"json": {"uses": 1, "days": 1}}
    refused = liver.world.ask("POST", HERE + "/invitations", headers=cookie, **body)
    assert problem(refused) == "not-allowed"
    bearer = liver.world.ask("GET", HERE, session.secret)
    assert problem(bearer) == "wrong-token", "a cookie is not a token"
    headers = {**cookie, "x-fedbo": "1"}
    assert liver.world.ask("POST", HERE + "/invitations", headers=headers, **body).is_success
    with begin(liver.world.engine) as connection:
        admin.drop_operator(connection, "ann", actor=ACTOR)
    liver.world.service.auth._known.clear()
    assert problem(liver.world.ask("GET", HERE, headers=cookie)) == "wrong-token"


def test_a_token_that_was_replaced_opens_no_session(both: Liver) -> None:
    """Even while this worker still believes it."""
    auth, portal = both.world.service.auth, both.world.client.portal
    login = Request({"type": "http", "fedbo": Record("192.0.2.7")})
    operator = portal.call(auth.by_token, login, both.operator)
    member = portal.call(auth.by_token, login, both.a.token)
    with begin(both.world.engine) as connection:
        admin.rotate(connection, member.id)
        admin.drop_operator(connection, operator.name, actor=ACTOR)
    for token in (both.a.token, both.operator):
        with pytest.raises(Refused) as refused:
            portal.call(auth.open_session, login, token)
        assert refused.value.slug == "wrong-token"


def test_a_database_that_is_away_is_a_problem_to_try_again(
    liver: Liver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert liver.a.ask("GET", "/member").is_success
    service = liver.world.service

    def away(*_: object) -> Any:
        raise OperationalError("SELECT 1", {}, Exception("the server closed the connection"))

    monkeypatch.setattr(service.engine, "connect", away)
    for token in (liver.a.token, liver.b.token):
        answer = liver.world.ask("GET", HERE + "/member", token)
        assert (answer.status_code, problem(answer)) == (503, "not-ready")
        assert answer.headers["retry-after"] == "1"
    monkeypatch.undo()
    assert liver.b.ask("GET", "/member").is_success


def test_a_database_of_another_version_is_not_ready(
    liver: Liver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert liver.world.ask("GET", "/readyz").is_success
    liver.world.service._was_ready = -math.inf
    monkeypatch.setattr(migrations, "current", lambda connection: "r9999")
    answer = liver.world.ask("GET", "/readyz")
    assert (answer.status_code, problem(answer)) == (503, "not-ready")
    assert "r9999" in answer.text


def test_a_database_that_hangs_takes_one_thread_however_many_ask(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, looks = threading.Event(), []

    def hang(connection: object) -> str:
        looks.append(connection)
        assert opened.wait(60.0)
        return migrations.NEWEST

    async def ask() -> list[BaseException | None]:
        several = (world.service.check_ready() for _ in range(5))
        return await asyncio.gather(*several, return_exceptions=True)

    monkeypatch.setattr(migrations, "current", hang)
    monkeypatch.setattr("fedbo.hub.service._PATIENCE", 0.1)
    portal = world.client.portal
    assert portal is not None
    for _ in range(2):  # the second time, the first look is not over yet
        assert all(isinstance(one, Refused) for one in portal.call(ask))
    assert len(looks) == 1
    monkeypatch.setattr("fedbo.hub.service._PATIENCE", 60.0)
    opened.set()
    assert portal.call(ask) == [None] * 5


def test_large_messages_have_room_only_for_a_few_at_once(world: World) -> None:
    large = Federation(AGREED.space, features=300, kind="belief", seed=3)
    site = Site(world, world.federation("liver", large), "a")
    room = world.service.room
    with room.hold("others") as others:
        others.take(256 * 2**20)
        assert problem(site.put(bytes(100_000))) == "not-ready"
        assert problem(site.put(b"small")) == "wrong-message"
    assert problem(site.put(bytes(100_000))) == "wrong-message"
    assert (room.taken, room.taken_of) == (0, {})


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic abc", "bearer x y", "Bearer \xff", "x" * 10_000]
)
def test_a_strange_header_is_a_wrong_token(world: World, header: str) -> None:
    answer = world.client.get(
        "/v1/federations", headers={b"authorization": header.encode("latin1")}
    )
    assert (answer.status_code, problem(answer)) == (401, "wrong-token")
    assert "bearer" in answer.headers["www-authenticate"].lower()


def test_numbers_for_prometheus(liver: Liver) -> None:
    liver.a.put(message("a"))
    liver.a.put(b"nonsense")
    answer = liver.ask("GET", "/metrics")
    assert answer.headers["cache-control"] == "no-store"
    text = answer.text
    for expected in (
        'fedbo_hub_requests_total{method="PUT",route="/v1/federations/{federation}/messages",'
        'status="200"} 1.0',
        'fedbo_hub_refused_total{problem="wrong-message"} 1.0',
        "fedbo_hub_messages_published_total 1.0",
        "fedbo_hub_federations 1.0",
        "fedbo_hub_members 3.0",
        "fedbo_hub_request_seconds_bucket",
        "fedbo_hub_received_bytes_total",
        "fedbo_hub_commit_changes_sum",
    ):
        assert expected in text
    assert "liver" not in text


def test_the_log_has_one_line_for_each_request_and_no_path(liver: Liver) -> None:
    answers = [
        liver.a.put(message("a")),
        liver.world.ask("GET", f"/v1/{new_secret()}"),
        liver.a.ask("GET", "/messages", params={"sender": "a"}),
    ]
    liver.world.client.__exit__(None, None, None)
    lines = [line for line in liver.world.log() if line["event"] == "request"]
    assert [line["request"] for line in lines] == [one.headers["x-request-id"] for one in answers]
    assert [line["route"] for line in lines] == [
        "/v1/federations/{federation}/messages",
        "(none)",
        "/v1/federations/{federation}/messages",
    ]
    first = lines[0]
    assert (first["federation"], first["who"], first["status"]) == ("liver", "a", 200)
    assert first["received"] == len(message("a").encode()) and first["sent"] == 12
    events = [line["event"] for line in liver.world.log()]
    assert (events[0], events[-1]) == ("started", "stopped")
