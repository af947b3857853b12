"""Who may do what: every endpoint with every role, and what is another's stays another's."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
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
from sqlalchemy import insert

from fedbo.exchange.hub.wire import MEDIA_TYPE
from fedbo.hub import admin, schema
from fedbo.hub.database import begin
from fedbo.hub.tokens import digest, new_secret
from fedbo.identity import KeyPair

ROLES = ("none", "invited", "member", "foreign", "revoked", "operator")
HERE = "/v1/federations/{federation}"
BINARY = {"headers": {"content-type": MEDIA_TYPE}}


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
    ("POST", HERE + "/epochs"): (
        _json(file=AGREED.next_epoch(noise_variance=0.05).to_toml()),
        (401, 401, 403, 404, 401, CREATED),
    ),
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
        lambda cast: {"content": message(cast.member, 2).encode(), **BINARY},
        MEMBER,
    ),
    ("GET", HERE + "/messages"): (_nothing, MEMBER),
    ("DELETE", HERE + "/messages"): (lambda cast: {"params": {"sender": cast.member}}, MEMBER),
    ("POST", HERE + "/fetch"): (lambda cast: wanted(), MEMBER),
    ("PUT", HERE + "/scalars"): (
        lambda cast: {"content": scalars(cast.member).encode(), **BINARY},
        MEMBER,
    ),
    ("GET", HERE + "/scalars"): (_nothing, MEMBER),
    ("PUT", HERE + "/progress"): (
        lambda cast: {"json": {"sender": cast.member, "trials": 3}},
        MEMBER,
    ),
    ("DELETE", HERE + "/progress"): (lambda cast: {"params": {"sender": cast.member}}, MEMBER),
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
def world(database_url: str) -> Iterator[World]:
    with World(database_url) as running:
        yield running


def cast_of(world: World) -> Cast:
    """Make two federations with members who have published something."""
    number = next(_numbers)
    here, there = f"liver-{number}", f"heart-{number}"
    with begin(world.engine) as connection:
        tokens = {"operator": admin.new_operator(connection, f"ann {number}", actor=ACTOR)}
        for name in (here, there):
            admin.create_federation(connection, name, AGREED, actor=ACTOR)
        invited = admin.invite(connection, here, uses=100, actor=ACTOR)
        elsewhere = admin.invite(connection, there, uses=100, actor=ACTOR)
        secret = invited.invitation.secret
        ids = {}
        for role, invitation in {
            "member": secret,
            "other": secret,
            "revoked": secret,
            "foreign": elsewhere.invitation.secret,
        }.items():
            made = admin.enrol(connection, invitation, "site-a" if role == "foreign" else role)
            tokens[role], ids[role] = made.token, made.member
        for role in ("member", "other", "foreign"):
            _fill(connection, ids[role])
        admin.revoke(connection, here, "revoked", actor=ACTOR)
    return Cast(here, secret, invited.id, tokens, "member", "other")


def _fill(connection: Any, own: Any) -> None:
    (cursor,) = admin.take_cursors(connection, own.federation)
    common = {"federation": own.federation, "member": own.id, "sender": own.name, "changed": 0.0}
    sent = message(own.name)
    row = {"key": b"", "sequence": 1, "t_n": 3, "is_out": True, "cursor": cursor, "epoch": 0}
    connection.execute(insert(schema.message).values(**common, **row, content=sent.encode()))
    content = scalars(own.name).encode()
    connection.execute(insert(schema.scalars).values(**common, epoch=0, content=content))
    connection.execute(insert(schema.progress).values(**common, trials=5, best=1.0))
    session = {"secret": digest(new_secret()), "member": own.id, "expires": 4e9}
    connection.execute(insert(schema.session).values(**session))


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
    cast, before = cast_of(world), world.rows("audit")
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
            if world.rows("audit") != before:
                wrong.append((method, path, "something was changed"))
        else:
            cast, before = cast_of(world), world.rows("audit")
    assert not wrong


def test_a_federation_that_is_not_there_is_the_same_as_a_foreign_one(world: World) -> None:
    cast = cast_of(world)
    for (method, path), (given, _) in MATRIX.items():
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
        assert operator.status_code == 404 and problem(operator) == "no-such-federation"


def test_another_agent_cannot_be_spoken_for(world: World) -> None:
    cast, before = cast_of(world), world.rows("audit")
    for sender in ("other", "other/x", "", "/", "member2", "Member", "member /x", "../other"):
        _check_not_spoken_for(world, cast, sender)
    assert world.rows("audit") == before


def _check_not_spoken_for(world: World, cast: Cast, sender: str) -> None:
    here, token = f"/v1/federations/{cast.federation}", cast.tokens["member"]
    params = {"params": {"sender": sender}}
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "/messages", params),
        ("DELETE", "/messages", params),
        ("DELETE", "/progress", params),
        ("PUT", "/progress", {"json": {"sender": sender, "trials": 1}}),
    ]
    if sender:
        asked += [
            ("PUT", "/messages", {"content": message(sender, 9).encode(), **BINARY}),
            ("PUT", "/scalars", {"content": scalars(sender).encode(), **BINARY}),
        ]
    for method, path, given in asked:
        answer = world.ask(method, here + path, token, **given)
        assert (answer.status_code, problem(answer)) == (403, "wrong-sender"), (method, path)


def test_a_member_cannot_be_removed_or_renamed_by_another(world: World) -> None:
    cast = cast_of(world)
    here, token = f"/v1/federations/{cast.federation}", cast.tokens["member"]
    before = world.rows("audit")
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
    assert world.rows("audit") == before


def test_what_a_member_leaves_and_changes_is_its_own(world: World) -> None:
    cast = cast_of(world)
    here, token = f"/v1/federations/{cast.federation}", cast.tokens["member"]
    keys = KeyPair.generate()
    others = _others(world, cast)
    given = key_given("rekey", "member", token, keys, federation=cast.federation)
    assert world.ask("PUT", here + "/member/key", token, json=given).is_success
    assert world.ask("DELETE", here + "/progress", token, params={"sender": "member"}).is_success
    assert world.ask("DELETE", here + "/member", token).is_success
    assert _others(world, cast) == others


def _others(world: World, cast: Cast) -> Any:
    rows = world.rows("audit", "federation")
    return {
        name: [row for row in found if "member" not in row and row[-1] != cast.federation]
        for name, found in rows.items()
        if name in ("member", "scalars", "progress", "epoch", "invitation")
    } | {"messages": [row for row in rows["message"] if row[4] == "other"]}


def test_a_federation_sees_nothing_of_another_with_the_same_fingerprint(world: World) -> None:
    cast = cast_of(world)
    there = cast.federation.replace("liver", "heart")
    answer = world.ask("POST", f"/v1/federations/{there}/fetch", cast.tokens["foreign"], **wanted())
    assert len(news(answer).handed) == 1
    members = world.ask("GET", f"/v1/federations/{there}/members", cast.tokens["foreign"])
    assert [one["name"] for one in members.json()] == ["site-a"]
    listed = world.ask("GET", "/v1/federations", cast.tokens["foreign"]).json()
    assert [one["name"] for one in listed] == [there]


def test_a_member_reads_only_its_own_lines_of_the_audit_log(world: World) -> None:
    cast = cast_of(world)
    here = f"/v1/federations/{cast.federation}"
    for name in ("member", "other"):
        sent = {"content": message(f"{name}/x").encode(), **BINARY}
        assert world.ask("PUT", here + "/messages", cast.tokens[name], **sent).is_success
    text = world.ask("GET", here + "/audit", cast.tokens["member"]).text
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["action"] for line in lines] == ["joined", "published"]
    assert all("member" in (line["actor"], line["subject"].split("/")[0]) for line in lines)
    assert "other" not in text
    whole = world.ask("GET", here + "/audit", cast.tokens["operator"]).text
    assert '"other/x"' in whole and "heart" not in whole


def test_a_revoked_token_stops_working_within_a_second_everywhere(database_url: str) -> None:
    with World(database_url) as first, World(database_url) as second:
        cast = cast_of(first)
        path, token = f"/v1/federations/{cast.federation}/member", cast.tokens["member"]
        assert first.ask("GET", path, token).is_success
        assert second.ask("GET", path, token).is_success
        revoked = first.ask(
            "POST",
            f"/v1/federations/{cast.federation}/members/revoke",
            cast.tokens["operator"],
            json={"name": "member"},
        )
        assert revoked.is_success
        change = second.ask("POST", path + "/token", token)
        assert (change.status_code, problem(change)) == (401, "wrong-token")
        sent = {"content": message("member", 5).encode(), **BINARY}
        where = f"/v1/federations/{cast.federation}/messages"
        assert problem(second.ask("PUT", where, token, **sent)) == "wrong-token"
        later()
        assert problem(first.ask("GET", path, token)) == "wrong-token"
        assert problem(second.ask("GET", path, token)) == "wrong-token"
