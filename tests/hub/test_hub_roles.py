"""Who may do what: every endpoint with every role, and what is another's stays another's."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hub.world import ACTOR, AGREED, BINARY, World, key_given, message, problem

from fedbo.exchange.hub.memberships import Invitation
from fedbo.exchange.hub.wire import Progress, Publication, Wanted
from fedbo.hub import store
from fedbo.identity import KeyPair

ROLES = ("none", "invited", "member", "foreign", "revoked", "operator")
HERE = "/v1/federations/{federation}"


class Cast(NamedTuple):
    """The people of one federation, and of another one."""

    federation: str
    secret: str
    invitation: int
    tokens: dict[str, str]
    member: str
    other: str


Given = Callable[[Cast], dict[str, Any]]


def _nothing(cast: Cast) -> dict[str, Any]:
    return {}


def _json(**body: Any) -> Given:
    return lambda cast: {"json": body}


def _packed(body: object) -> dict[str, Any]:
    return {"content": msgspec.msgpack.encode(body), "headers": BINARY}


# For each endpoint: what to send, and the status for each of the ROLES, in their order.
ANYONE = (200,) * 6
MEMBER = (401, 401, 200, 404, 401, 403)
OPERATOR = (401, 401, 403, 404, 401, 200)
BOTH = (401, 401, 200, 404, 401, 200)
EVERYWHERE = (401, 401, 200, 200, 401, 200)  # not about one federation
CREATED = 201
MATRIX: dict[tuple[str, str], tuple[Given, tuple[int, ...]]] = {
    ("GET", "/v1/hub"): (_nothing, ANYONE),
    ("GET", "/healthz"): (_nothing, ANYONE),
    ("GET", "/readyz"): (_nothing, ANYONE),
    ("GET", "/metrics"): (_nothing, (401, 401, 403, 403, 401, 200)),
    ("GET", "/v1/audit"): (_nothing, (401, 401, 403, 403, 401, 200)),
    ("POST", "/v1/invitations/open"): (lambda cast: {"json": {"secret": cast.secret}}, ANYONE),
    ("POST", "/v1/members"): (
        lambda cast: {"json": {"secret": cast.secret, "name": "newcomer"}},
        (CREATED,) * 6,
    ),
    ("GET", "/v1/federations"): (_nothing, EVERYWHERE),
    ("POST", "/v1/federations"): (
        lambda cast: {"json": {"name": cast.federation + "-2", "file": AGREED.to_toml()}},
        (401, 401, 403, 403, 401, CREATED),
    ),
    ("GET", HERE): (_nothing, BOTH),
    ("PUT", HERE): (_json(file=AGREED.to_toml()), OPERATOR),
    ("POST", HERE + "/invitations"): (_json(uses=1, days=1), (401, 401, 403, 404, 401, CREATED)),
    ("GET", HERE + "/invitations"): (_nothing, OPERATOR),
    ("DELETE", HERE + "/invitations"): (
        lambda cast: {"params": {"id": cast.invitation}},
        OPERATOR,
    ),
    ("GET", HERE + "/members"): (_nothing, BOTH),
    ("DELETE", HERE + "/members"): (lambda cast: {"params": {"name": cast.other}}, OPERATOR),
    ("POST", HERE + "/members/revoke"): (lambda cast: {"json": {"name": cast.other}}, OPERATOR),
    ("GET", HERE + "/member"): (_nothing, MEMBER),
    ("DELETE", HERE + "/member"): (_nothing, MEMBER),
    ("POST", HERE + "/member/token"): (_nothing, (401, 401, CREATED, 404, 401, 403)),
    ("PUT", HERE + "/member/key"): (_json(key=None), MEMBER),
    ("PUT", HERE + "/messages"): (
        lambda cast: _packed(Publication(message(cast.member, 2).encode())),
        MEMBER,
    ),
    ("GET", HERE + "/messages"): (_nothing, MEMBER),
    ("DELETE", HERE + "/messages"): (lambda cast: {"params": {"sender": cast.member}}, MEMBER),
    ("POST", HERE + "/fetch"): (lambda cast: _packed(Wanted()), MEMBER),
    # 409: the federation has no privacy plan
    ("GET", HERE + "/releases"): (_nothing, (401, 401, 409, 404, 401, 409)),
    ("POST", HERE + "/releases"): (_json(), (401, 401, 403, 404, 401, 409)),
    ("POST", HERE + "/releases/reconcile"): (_json(releases=0), (401, 401, 403, 404, 401, 409)),
    ("GET", HERE + "/audit"): (_nothing, BOTH),
    ("GET", HERE + "/overview"): (_nothing, BOTH),
    ("POST", "/v1/session"): (lambda cast: {"json": {"token": cast.tokens["operator"]}}, ANYONE),
    ("GET", "/v1/session"): (_nothing, ANYONE),
    ("DELETE", "/v1/session"): (_nothing, (204,) * 6),
}

_numbers = itertools.count()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(f"sqlite:///{tmp_path}/hub.db") as running:
        yield running


def cast_of(world: World) -> Cast:
    """Make two federations with members who have published something."""
    number = next(_numbers)
    here, there = f"liver-{number}", f"heart-{number}"
    tokens = {"operator": world.operator(f"ann {number}")}
    with store.begin(world.engine) as connection:
        for name in (here, there):
            store.create_federation(connection, name, AGREED, actor=ACTOR)
        invited = store.invite(connection, here, uses=100, actor=ACTOR)
        elsewhere = store.invite(connection, there, uses=100, actor=ACTOR)
    secrets = {here: Invitation.parse(invited.invitation).secret}
    secrets[there] = Invitation.parse(elsewhere.invitation).secret
    for role, place in (("member", here), ("other", here), ("revoked", here), ("foreign", there)):
        name = "site-a" if role == "foreign" else role
        tokens[role] = world.enrol(secrets[place], name)
        own = f"/v1/federations/{place}"
        sent = world.put(message(name), tokens[role], progress=Progress(5, best=1.0), here=own)
        assert sent.is_success
    with store.begin(world.engine) as connection:
        store.revoke(connection, here, "revoked", actor=ACTOR)
    return Cast(here, secrets[here], invited.id, tokens, "member", "other")


def token_of(cast: Cast, role: str) -> str | None:
    return {**cast.tokens, "none": None, "invited": cast.secret}[role]


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
    cast, before = cast_of(world), world.rows("audit", "activity")
    for (method, path), (given, statuses) in MATRIX.items():
        expected = statuses[ROLES.index(role)]
        there = path.format(federation=cast.federation)
        world.client.cookies.clear()
        answer = world.ask(method, there, token_of(cast, role), **given(cast))
        if answer.status_code != expected:
            wrong.append((method, path, expected, answer.status_code, answer.text[:200]))
            continue
        if expected >= 400:
            problem(answer)
        if expected >= 400 or method == "GET":
            if world.rows("audit", "activity") != before:
                wrong.append((method, path, "something was changed"))
        else:
            cast, before = cast_of(world), world.rows("audit", "activity")
    assert not wrong


def test_a_federation_that_is_not_there_is_the_same_as_a_foreign_one(world: World) -> None:
    cast = cast_of(world)
    for (method, path), (given, statuses) in MATRIX.items():
        if "{federation}" not in path:
            continue
        answers = [
            world.ask(method, path.format(federation=name), cast.tokens["foreign"], **given(cast))
            for name in (cast.federation, "nowhere")
        ]
        assert {answer.status_code for answer in answers} == {404}
        seen = [{**answer.json(), "instance": ""} for answer in answers]
        assert seen[0] == seen[1], path
        operator = world.ask(
            method, path.format(federation="nowhere"), cast.tokens["operator"], **given(cast)
        )
        assert operator.status_code == (403 if statuses[-1] == 403 else 404)


def test_another_agent_cannot_be_spoken_for(world: World) -> None:
    cast, before = cast_of(world), world.rows("audit", "activity")
    for sender in ("other", "other/x", "", "/", "member2", "Member", "member /x", "../other"):
        _check_not_spoken_for(world, cast, sender)
    assert world.rows("audit", "activity") == before


def _check_not_spoken_for(world: World, cast: Cast, sender: str) -> None:
    here, token = f"/v1/federations/{cast.federation}", cast.tokens["member"]
    answers = [
        world.ask(method, here + "/messages", token, params={"sender": sender})
        for method in ("GET", "DELETE")
    ]
    if sender:
        answers.append(world.put(message(sender, 9), token, here=here))
    for answer in answers:
        assert (answer.status_code, problem(answer)) == (403, "wrong-sender")


def test_a_member_cannot_be_removed_or_renamed_by_another(world: World) -> None:
    cast = cast_of(world)
    here, token = f"/v1/federations/{cast.federation}", cast.tokens["member"]
    before = world.rows("audit", "activity")
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("DELETE", "/members", {"params": {"name": "other"}}),
        ("POST", "/members/revoke", {"json": {"name": "other"}}),
        ("DELETE", "/invitations", {"params": {"id": cast.invitation}}),
    ]
    for method, path, given in asked:
        assert problem(world.ask(method, here + path, token, **given)) == "not-allowed"
    for name in ("other", "member", "revoked"):
        answer = world.ask("POST", "/v1/members", json={"secret": cast.secret, "name": name})
        assert (answer.status_code, problem(answer)) == (409, "name-taken")
    assert world.rows("audit", "activity") == before


def test_what_a_member_leaves_and_changes_is_its_own(world: World) -> None:
    cast = cast_of(world)
    here, token = f"/v1/federations/{cast.federation}", cast.tokens["member"]
    own = f"/v1/federations/{cast.federation}/member"
    others = [world.ask("GET", own, cast.tokens["other"]).json()]
    keys = KeyPair.generate()
    given = key_given("rekey", "member", token, keys, federation=cast.federation)
    assert world.ask("PUT", own + "/key", token, json=given).is_success
    assert world.ask("DELETE", own, token).is_success
    assert world.ask("GET", own, token).status_code == 401
    others.append(world.ask("GET", own, cast.tokens["other"]).json())
    for row in others:
        del row["seen"]
    assert others[0] == others[1]
    handed = world.fetch(cast.tokens["other"], here=here).handed
    assert [one.content for one in handed] == [message("other").encode()]


def test_a_federation_sees_nothing_of_another_with_the_same_fingerprint(world: World) -> None:
    cast = cast_of(world)
    there, token = cast.federation.replace("liver", "heart"), cast.tokens["foreign"]
    assert len(world.fetch(token, here=f"/v1/federations/{there}").handed) == 1
    members = world.ask("GET", f"/v1/federations/{there}/members", token)
    assert [one["name"] for one in members.json()] == ["site-a"]
    listed = world.ask("GET", "/v1/federations", token).json()
    assert [one["name"] for one in listed] == [there]


def test_a_member_reads_only_its_own_lines_of_the_audit_log(world: World) -> None:
    cast = cast_of(world)
    here = f"/v1/federations/{cast.federation}"
    for name in ("member", "other"):
        assert world.put(message(f"{name}/x"), cast.tokens[name], here=here).is_success
    text = world.ask("GET", here + "/audit", cast.tokens["member"]).text
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["action"] for line in lines] == ["joined", "published", "published"]
    assert all("member" in (line["actor"], line["subject"].split("/")[0]) for line in lines)
    assert "other" not in text
    whole = world.ask("GET", here + "/audit", cast.tokens["operator"]).text
    assert '"other/x"' in whole and "heart" not in whole


def test_a_revoked_token_stops_working_everywhere_at_once(tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path}/hub.db"
    with World(db) as first, World(db) as second:
        cast = cast_of(first)
        here, token = f"/v1/federations/{cast.federation}", cast.tokens["member"]
        for hub in (first, second):
            assert hub.ask("GET", here + "/member", token).is_success
        revoked = first.ask(
            "POST", here + "/members/revoke", cast.tokens["operator"], json={"name": "member"}
        )
        assert revoked.is_success
        for hub in (first, second):
            assert problem(hub.ask("GET", here + "/member", token)) == "wrong-token"
            assert problem(hub.ask("POST", here + "/member/token", token)) == "wrong-token"
            assert problem(hub.put(message("member", 5), token, here=here)) == "wrong-token"
