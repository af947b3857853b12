"""The page of a hub: what it shows to whom, its log-ins, and its files."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from contracts.hub_rows import AGREED, message
from hub.world import HERE, World
from sqlalchemy import update

from fedbo.hub import store
from fedbo.hub.store import schema

OVERVIEW = HERE + "/overview"


def look(world: World, token: str, **params: Any) -> dict[str, Any]:
    answer = world.ask("GET", OVERVIEW, token, params=params)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_the_overview_says_what_there_is(world: World) -> None:
    secret, operator = world.federation(), world.operator()
    a, b = (world.enrol(secret, name) for name in ("a", "b"))
    world.enrol(secret, "c")
    world.put(message("a/liver", t_n=10), a)
    world.put(message("a/lung", t_n=20), a)
    world.put(message("b", t_n=5), b)
    world.ask("POST", HERE + "/members/revoke", operator, json={"name": "c"})
    overview = look(world, operator)
    size = sum(len(message(sender).encode()) for sender in ("a/liver", "a/lung", "b"))
    assert overview["federation"] == {
        "name": "liver",
        "fingerprint": str(AGREED.fingerprint),
        "created": pytest.approx(time.time(), abs=60),
        "members": 2,
        "messages": 3,
    }
    assert overview["figures"] == {
        "members": 2, "revoked": 1, "seen": 2, "agents": 3, "messages": 3, "bytes": size, "new": 3,
    }  # fmt: skip
    first, second, third = overview["members"]["rows"]
    assert (first["name"], first["agents"], first["messages"], first["trials"]) == ("a", 2, 2, 30)
    assert not second["is_revoked"] and third["is_revoked"]
    assert overview["releases"] is None
    assert overview["feed"][0]["action"] == "revoked" and overview["feed"][0]["subject"] == "c"
    assert [row["uses"] for row in overview["invitations"]] == [997]
    assert secret not in json.dumps(overview)


def test_a_member_sees_its_own_events_and_no_invitations(world: World) -> None:
    secret, operator = world.federation(), world.operator()
    a, b = world.enrol(secret, "a"), world.enrol(secret, "a%")
    world.put(message("A/x"), world.enrol(secret, "A"))
    world.put(message("a"), a)
    world.put(message("a%/x"), b)
    overview = look(world, a)
    assert overview["invitations"] == []
    events = [(line["actor"], line["action"]) for line in overview["feed"]]
    assert events == [("a", "published"), ("a", "joined")]
    assert {line["actor"] for line in look(world, b)["feed"]} == {"a%"}
    with store.begin(world.engine) as connection:
        store.remove(connection, "liver", "a", actor="operator ann")
    again = world.enrol(secret, "a")
    assert [line["action"] for line in look(world, again)["feed"]] == ["joined"]
    assert len(look(world, operator)["feed"]) > 4


def test_members_are_searched_sorted_and_cut_into_pages(world: World) -> None:
    secret, operator = world.federation(), world.operator()
    names = ["Anna", "anton", "b_b", "bob", "100%"]
    for name in names:
        world.enrol(secret, name)
    with store.begin(world.engine) as connection:
        for number, name in enumerate(names):
            row = update(schema.member).where(schema.member.c.name == name)
            connection.execute(row.values(seen=1000.0 + number))

    def rows(**params: Any) -> list[str]:
        return [row["name"] for row in look(world, operator, **params)["members"]["rows"]]

    assert rows(search="AN", sort="seen") == ["anton", "Anna"]
    assert rows(search="_") == ["b_b"] and rows(search="%") == ["100%"]
    assert rows(sort="seen", limit=2, offset=4) == ["Anna"]
    assert look(world, operator, limit=1, search="b")["members"]["matching"] == 2


# Log-ins


def test_a_log_in_is_a_cookie_that_scripts_and_other_sites_cannot_use(world: World) -> None:
    token = world.enrol(world.federation(), "a")
    nobody = {"role": None, "name": "", "federation": ""}
    assert world.ask("GET", "/v1/session").json() == nobody
    answer = world.ask("POST", "/v1/session", json={"token": token})
    assert answer.json() == {"role": "member", "name": "a", "federation": "liver"}
    cookie = answer.headers["Set-Cookie"]
    for part in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"):
        assert part in cookie
    assert "Secure" not in cookie
    assert world.ask("GET", OVERVIEW).status_code == 200  # the client keeps the cookie
    assert world.ask("POST", HERE + "/member/token").status_code == 403
    assert world.ask("DELETE", "/v1/session", headers={"X-Fedbo": "1"}).status_code == 204
    assert world.ask("GET", "/v1/session").json() == nobody


def test_the_cookie_needs_tls_where_there_is_tls(tmp_path: Any) -> None:
    with World(f"sqlite:///{tmp_path}/hub.db", public_url="https://hub.example.org") as world:
        answer = world.ask("POST", "/v1/session", json={"token": world.operator()})
        assert "Secure" in answer.headers["Set-Cookie"]
        assert answer.headers["Set-Cookie"].startswith("__Host-fedbo-token=")


@pytest.mark.parametrize("token", ["", "x", "fedbo-o-" + "A" * 43])
def test_a_wrong_token_logs_nobody_in(world: World, token: str) -> None:
    world.operator()
    answer = world.ask("POST", "/v1/session", json={"token": token})
    assert answer.status_code == 401 and "Set-Cookie" not in answer.headers


def test_a_form_of_another_site_cannot_log_in(world: World) -> None:
    body = json.dumps({"token": world.operator()})
    headers = {"Content-Type": "text/plain"}
    answer = world.ask("POST", "/v1/session", content=body, headers=headers)
    assert answer.status_code == 422 and "Set-Cookie" not in answer.headers


# Files


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "text/html"), ("/docs", "text/html"), ("/static/hub.js", "text/javascript"),
     ("/static/hub.css", "text/css"), ("/static/favicon.svg", "image/svg+xml"),
     ("/static/swagger-ui-bundle.js", "text/javascript"), ("/static/swagger-ui.css", "text/css")],
)  # fmt: skip
def test_files_are_served_with_a_policy(world: World, path: str, kind: str) -> None:
    answer = world.ask("GET", path)
    assert answer.status_code == 200 and answer.headers["Content-Type"].startswith(kind)
    assert answer.headers["Cache-Control"] == "no-cache"
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    if path.startswith("/static"):
        again = world.ask("GET", path, headers={"If-None-Match": answer.headers["ETag"]})
        assert again.status_code == 304 and again.content == b""


@pytest.mark.parametrize(
    "path",
    ["/static/", "/static/index.html.bak", "/static/../app.py", "/static/%2e%2e/app.py",
     "/index.html"],
)  # fmt: skip
def test_nothing_else_is_served(world: World, path: str) -> None:
    answer = world.ask("GET", path)
    assert answer.status_code == 404 and answer.json()["type"] == "/problems/not-found"
