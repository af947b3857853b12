"""The page of a hub: what it shows to whom, its log-ins, and its files."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from contracts.hub_rows import ACTOR, AGREED, message
from hub.world import HERE, World

from fedbo.hub import store

OVERVIEW = HERE + "/overview"


def look(world: World, token: str, **params: Any) -> dict[str, Any]:
    answer = world.ask("GET", OVERVIEW, token, params=params)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_the_overview_says_what_there_is(world: World) -> None:
    secret = world.federation()
    a, b = (world.enrol(secret, name) for name in ("a", "b"))
    world.enrol(secret, "c")
    world.put(message("a/liver", t_n=10), a)
    world.put(message("a/lung", t_n=20), a)
    world.put(message("b", t_n=5), b)
    with store.begin(world.engine) as connection:
        store.revoke(connection, "liver", "c", actor=ACTOR)
    overview = look(world, a)
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
    assert [line["action"] for line in overview["feed"]] == ["published", "published", "joined"]
    assert secret not in json.dumps(overview)


def test_a_member_sees_its_own_events(world: World) -> None:
    secret = world.federation()
    a, b = world.enrol(secret, "a"), world.enrol(secret, "a%")
    world.put(message("A/x"), world.enrol(secret, "A"))
    world.put(message("a"), a)
    world.put(message("a%/x"), b)
    overview = look(world, a)
    events = [(line["actor"], line["action"]) for line in overview["feed"]]
    assert events == [("a", "published"), ("a", "joined")]
    assert {line["actor"] for line in look(world, b)["feed"]} == {"a%"}
    with store.begin(world.engine) as connection:
        store.remove(connection, "liver", "a", actor=ACTOR)
    again = world.enrol(secret, "a")
    assert [line["action"] for line in look(world, again)["feed"]] == ["joined"]


def test_members_are_searched_and_cut_into_pages(world: World) -> None:
    secret = world.federation()
    tokens = [world.enrol(secret, name) for name in ("Anna", "anton", "b_b", "bob", "100%")]

    def rows(**params: Any) -> list[str]:
        return [row["name"] for row in look(world, tokens[0], **params)["members"]["rows"]]

    assert rows(search="AN") == ["Anna", "anton"]
    assert rows(search="_") == ["b_b"] and rows(search="%") == ["100%"]
    assert rows(limit=2, offset=4) == ["bob"]
    assert look(world, tokens[0], limit=1, search="b")["members"]["matching"] == 2


# Log-ins


def test_a_log_in_is_a_cookie_that_scripts_and_other_sites_cannot_use(world: World) -> None:
    token = world.enrol(world.federation(), "a")
    nobody = {"member": None, "federation": ""}
    assert world.ask("GET", "/v1/session").json() == nobody
    answer = world.ask("POST", "/v1/session", json={"token": token})
    assert answer.json() == {"member": "a", "federation": "liver"}
    cookie = answer.headers["Set-Cookie"]
    for part in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"):
        assert part in cookie
    assert "Secure" not in cookie
    assert world.ask("GET", OVERVIEW).status_code == 200  # the client keeps the cookie
    assert world.ask("POST", HERE + "/member/token").status_code == 401
    assert world.ask("DELETE", "/v1/session").status_code == 204
    assert world.ask("GET", "/v1/session").json() == nobody


def test_the_cookie_needs_tls_where_there_is_tls(tmp_path: Any) -> None:
    with World(f"sqlite:///{tmp_path}/hub.db", public_url="https://hub.example.org") as world:
        answer = world.ask(
            "POST", "/v1/session", json={"token": world.enrol(world.federation(), "a")}
        )
        assert "Secure" in answer.headers["Set-Cookie"]
        assert answer.headers["Set-Cookie"].startswith("__Host-fedbo-session=")


@pytest.mark.parametrize("token", ["", "x", "fedbo-m-" + "A" * 43])
def test_a_wrong_token_logs_nobody_in(world: World, token: str) -> None:
    world.enrol(world.federation(), "a")
    answer = world.ask("POST", "/v1/session", json={"token": token})
    assert answer.status_code == 401 and "Set-Cookie" not in answer.headers


def test_a_form_of_another_site_cannot_log_in(world: World) -> None:
    body = json.dumps({"token": world.enrol(world.federation(), "a")})
    headers = {"Content-Type": "text/plain"}
    answer = world.ask("POST", "/v1/session", content=body, headers=headers)
    assert answer.status_code == 422 and "Set-Cookie" not in answer.headers


def test_a_session_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has kept its cookie has nothing."""
    secret = world.federation()

    def cookie(token: str) -> dict[str, str]:
        world.client.cookies.clear()
        answer = world.ask("POST", "/v1/session", json={"token": token})
        assert token not in answer.headers["Set-Cookie"]
        return {"cookie": answer.headers["Set-Cookie"].partition(";")[0]}

    def is_over(kept: dict[str, str]) -> bool:
        world.client.cookies.clear()
        return world.ask("GET", OVERVIEW, headers=kept).status_code == 401

    token = world.enrol(secret, "a")
    first, second = cookie(token), cookie(token)
    assert first != second and not is_over(first)
    assert world.ask("DELETE", "/v1/session", headers=first).status_code == 204
    assert is_over(first) and not is_over(second)
    token = world.ask("POST", HERE + "/member/token", token).json()["token"]
    assert is_over(second)
    third = cookie(token)
    later = time.time() + store.VALID + 1
    monkeypatch.setattr("fedbo.hub.store.sessions.time.time", lambda: later)
    assert is_over(third)
    monkeypatch.undo()
    assert not is_over(third)
    many = [cookie(token) for _ in range(8)]
    assert is_over(third) and not any(map(is_over, many))
    with store.begin(world.engine) as connection:
        store.revoke(connection, "liver", "a", actor=ACTOR)
    assert all(map(is_over, many))
    assert world.rows()["session"] == []
    left = world.enrol(secret, "b")
    kept = cookie(left)
    assert world.ask("DELETE", HERE + "/member", left).status_code == 204
    assert is_over(kept)


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
