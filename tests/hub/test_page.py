"""What the hub tells its page, and the files that a browser loads."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hub.world import AGREED, M, World, message
from sqlalchemy import Engine, insert, select, update

from fedbo.exchange.hub.wire import MEDIA_TYPE
from fedbo.federation import Federation
from fedbo.hub import admin, schema
from fedbo.hub.database import begin
from fedbo.hub.page import activity, overview
from fedbo.hub.page.activity import HOURS, Hours
from fedbo.hub.page.kept import Kept
from fedbo.message.signed import key_text

OVERVIEW = "/v1/federations/liver/overview"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept because it is young."""
    monkeypatch.setattr(overview, "_SUMMARY_PAUSE", 0.0)
    monkeypatch.setattr(overview, "_MAP_PAUSE", 0.0)
    monkeypatch.setattr("fedbo.hub.page.kept._SHARE", float("inf"))


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    with World(database_url) as world:
        yield world


@pytest.fixture
def quick(new_database: Callable[[str], str]) -> Iterator[World]:
    """A hub on SQLite, for what does not depend on the database."""
    with World(new_database("sqlite")) as world:
        yield world


def publish(world: World, token: str, sender: str, **given: Any) -> None:
    body = message(sender, **given).encode()
    headers = {"Content-Type": MEDIA_TYPE}
    path = "/v1/federations/liver/messages"
    assert world.ask("PUT", path, token, content=body, headers=headers).json() == {"out": True}


def look(world: World, token: str, **params: Any) -> dict[str, Any]:
    answer = world.ask("GET", OVERVIEW, token, params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_overview_says_what_there_is(world: World) -> None:
    secret, operator = world.federation(), world.operator()
    a, b = (world.enrol(secret, name) for name in ("a", "b"))
    world.enrol(secret, "c")
    publish(world, a, "a/liver", t_n=10)
    publish(world, a, "a/lung", t_n=20)
    publish(world, b, "b", t_n=5)
    report = {"trials": 12, "best": 0.75, "saved": 3.5}
    for sender in ("a/liver", "a/lung"):
        body = {"sender": sender, **report, "best": 0.5 if sender == "a/lung" else 0.75}
        path = "/v1/federations/liver/progress"
        assert world.ask("PUT", path, a, json=body).status_code == 200
    gone = {"name": "c"}
    world.ask("POST", "/v1/federations/liver/members/revoke", operator, json=gone)
    found = look(world, operator)
    size = sum(len(message(sender, t_n=1).encode()) for sender in ("a/liver", "a/lung", "b"))
    assert found["federation"] == {
        "name": "liver",
        "epoch": 0,
        "fingerprint": str(AGREED.fingerprint),
        "created": pytest.approx(time.time(), abs=60),
        "direction": "maximize",
    }
    assert found["figures"] == {
        "members": 2, "revoked": 1, "agents": 3, "messages": 3, "bytes": size, "hour": 3, "day": 3,
    }  # fmt: skip
    first, second, third = found["members"]["rows"]
    assert (first["name"], first["agents"], first["messages"], first["trials"]) == ("a", 2, 2, 30)
    assert first["progress"] == {"trials": 24, "best": 0.75, "saved": 7.0}
    assert second["progress"] is None and not second["is_revoked"] and third["is_revoked"]
    assert found["progress"]["agents"] == 2 and found["progress"]["saved"] == 7.0
    assert [row["sender"] for row in found["progress"]["rows"]] == ["a/liver", "a/lung"]
    assert [agent["sender"] for agent in found["map"]["agents"]] == ["a/liver", "a/lung", "b"]
    assert sum(found["activity"]["published"]) == 3 == found["activity"]["published"][-1]
    assert found["health"]["state"] == "good"
    assert found["feed"][0]["action"] == "revoked" and found["feed"][0]["subject"] == "c"
    assert [one["uses"] for one in found["invitations"]] == [997]
    assert secret not in json.dumps(found)


def test_a_member_sees_its_own_events_and_no_invitations(world: World) -> None:
    secret, operator = world.federation(), world.operator()
    a, b = world.enrol(secret, "a"), world.enrol(secret, "a%")
    publish(world, world.enrol(secret, "A"), "A/x")
    publish(world, a, "a")
    publish(world, b, "a%/x")
    found = look(world, a)
    assert found["invitations"] == []
    assert [(one["actor"], one["action"]) for one in found["feed"]] == [
        ("a", "published"),
        ("a", "joined"),
    ]
    assert {one["actor"] for one in look(world, b)["feed"]} == {"a%"}
    with begin(world.engine) as connection:
        admin.remove(connection, "liver", "a", actor="operator ann")
    again = world.enrol(secret, "a")
    assert [one["action"] for one in look(world, again)["feed"]] == ["joined"]
    assert len(look(world, operator)["feed"]) > 4


def test_the_overview_is_not_sent_again_until_something_changes(
    quick: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_BUCKET", 10**9)
    secret, operator = quick.federation(), quick.operator()
    token = quick.enrol(secret, "a")

    def ask(tag: str, who: str = operator, **params: Any) -> tuple[int, str]:
        headers = {"If-None-Match": tag} if tag else {}
        answer = quick.ask("GET", OVERVIEW, who, headers=headers, params=params)
        assert answer.status_code == 200 or answer.content == b""
        return answer.status_code, answer.headers["ETag"]

    _, tag = ask("")
    assert ask(tag) == (304, tag) == ask(f'W/{tag}, "other"')
    assert ask(tag, token)[0] == 200 and ask(tag, search="x")[0] == 200
    publish(quick, token, "a")
    status, later = ask(tag)
    assert status == 200 and later != tag and ask(later) == (304, later)
    body = {"uses": 1, "days": 1}
    quick.ask("POST", "/v1/federations/liver/invitations", operator, json=body)
    assert ask(later)[0] == 200


def test_members_are_searched_sorted_and_cut_into_pages(world: World) -> None:
    secret, operator = world.federation(), world.operator()
    names = ["Anna", "anton", "b_b", "bob", "100%"]
    for name in names:
        world.enrol(secret, name)
    with begin(world.engine) as connection:
        for i, name in enumerate(names):
            row = update(schema.member).where(schema.member.c.name == name)
            connection.execute(row.values(seen=1000.0 + i))

    def rows(**params: Any) -> list[str]:
        return [row["name"] for row in look(world, operator, **params)["members"]["rows"]]

    assert rows(search="AN", sort="seen") == ["anton", "Anna"]
    assert rows(search="_") == ["b_b"] and rows(search="%") == ["100%"]
    assert rows(sort="seen", limit=2) == ["100%", "bob"]
    assert rows(sort="seen", limit=2, offset=4) == ["Anna"]
    page = look(world, operator, limit=2, search="b")["members"]
    assert page["matching"] == 2 and page["offset"] == 0 and page["limit"] == 2
    assert rows(search="nobody") == []


@pytest.mark.parametrize(
    "params",
    [{"limit": 201}, {"limit": 0}, {"offset": -1}, {"sort": "token"}, {"search": "\x00"},
     {"search": "x" * 65}, {"offset": 10**30}],
)  # fmt: skip
def test_a_wrong_question_is_a_problem(quick: World, params: dict[str, Any]) -> None:
    quick.federation()
    answer = quick.ask("GET", OVERVIEW, quick.operator(), params=params)
    assert answer.status_code == 422 and answer.json()["type"] == "/problems/wrong-request"


def test_one_federation_does_not_see_another(quick: World) -> None:
    secret = quick.federation()
    other = quick.enrol(quick.federation("lung"), "spy")
    quick.enrol(secret, "a")
    assert quick.ask("GET", OVERVIEW, other).status_code == 404
    assert quick.ask("GET", OVERVIEW).status_code == 401
    own = quick.ask("GET", OVERVIEW.replace("liver", "lung"), other).json()
    assert [row["name"] for row in own["members"]["rows"]] == ["spy"]
    assert {one["actor"] for one in own["feed"]} == {"spy"}


def test_alike_agents_are_near_each_other_and_name_each_other(quick: World) -> None:
    token = quick.enrol(quick.federation(), "a")
    rng = np.random.default_rng(1)
    kinds = rng.standard_normal((2, M))
    for i in range(6):
        publish(quick, token, f"a/{i}", omega=kinds[i % 2] + 0.05 * rng.standard_normal(M))
    agents = look(quick, token)["map"]["agents"]
    places = np.array([[agent["x"], agent["y"]] for agent in agents])
    gaps = np.linalg.norm(places[:, None] - places[None], axis=-1)
    kind = np.arange(6) % 2
    is_same = kind[:, None] == kind[None]
    assert gaps[is_same].max() < 0.5 * gaps[~is_same].min()
    for i, agent in enumerate(agents):
        peers = [j for j, cosine in agent["alike"] if cosine > 0.9]
        assert len(peers) == 2 and all(j % 2 == i % 2 and j != i for j in peers)


def test_the_map_shows_the_latest_and_fits_beliefs(
    quick: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedbo.hub.page.map.MOST_ON_MAP", 3)
    token = quick.enrol(quick.federation(), "a")
    for i in range(5):
        publish(quick, token, f"a/{i}")
    found = look(quick, token)["map"]
    assert found["total"] == 5
    assert [agent["sender"] for agent in found["agents"]] == ["a/2", "a/3", "a/4"]
    huge = Federation(AGREED.space, features=5000, kind="belief")
    from fedbo.hub.page.map import _most

    assert _most(huge) == 2 and _most(AGREED) == 3


def test_a_federation_without_messages_is_shown_too(quick: World) -> None:
    quick.federation()
    found = look(quick, quick.operator())
    assert found["map"]["agents"] == [] and found["health"]["state"] == "new"
    assert found["figures"]["bytes"] == 0 and found["progress"]["agents"] == 0


def test_health_says_what_needs_attention(quick: World) -> None:
    secret, operator = quick.federation(), quick.operator()
    token = quick.enrol(secret, "a")
    with begin(quick.engine) as connection:
        connection.execute(update(schema.member).values(seen=time.time() - 2 * 86400))
    assert look(quick, operator)["health"]["state"] == "quiet"
    for i in range(6):
        body = message(f"b/{i}").encode()
        headers = {"Content-Type": MEDIA_TYPE}
        path = "/v1/federations/liver/messages"
        assert quick.ask("PUT", path, token, content=body, headers=headers).status_code == 403
    health = look(quick, operator)["health"]
    assert health["state"] == "attention"
    assert [check["text"] for check in health["checks"] if not check["is_good"]][-1] == "6"


def test_a_new_epoch_is_shown(quick: World) -> None:
    secret, operator = quick.federation(), quick.operator()
    token = quick.enrol(secret, "a")
    publish(quick, token, "a")
    assert look(quick, operator)["map"]["total"] == 1
    body = {"file": AGREED.next_epoch(noise_variance=0.5).to_toml()}
    path = "/v1/federations/liver/epochs"
    assert quick.ask("POST", path, operator, json=body).status_code == 201
    found = look(quick, operator)
    assert found["federation"]["epoch"] == 1 and found["map"]["agents"] == []
    assert found["federation"]["fingerprint"] != str(AGREED.fingerprint)


def test_hours_that_are_over_are_counted_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000 * 3600.0 + 600
    monkeypatch.setattr(activity.time, "time", lambda: now)
    actions = ("published", "refused", "joined", "left")

    def add(*hours: float, federation: str = "liver") -> None:
        lines = [
            {"time": hour * 3600.0, "federation": federation, "action": actions[i % 4]}
            | {"actor": "a", "subject": "", "detail": "{}"}
            for i, hour in enumerate(hours)
        ]
        with begin(engine) as connection:
            connection.execute(insert(schema.audit), lines)

    def count(hours: Hours) -> list[list[int]]:
        with engine.connect() as connection:
            found = hours.count(connection, "liver")
        assert found.start == (int(now // 3600) - HOURS + 1) * 3600.0
        return [found.published, found.refused, found.other]

    add(1000.1, 1000.1, 999.5, 998.2, 500.0)
    add(1000.1, federation="lung")
    kept = Hours()
    first = count(kept)
    assert [sum(series) for series in first] == [1, 1, 2] and first[0][-1] == 1
    assert first[2][-2:] == [1, 0] and first[2][-3] == 1
    now += 3600
    add(1001.1, 1000.9)
    assert count(kept) == count(Hours())
    assert [series[-1] for series in count(kept)] == [1, 0, 0]
    now += HOURS * 3600
    assert [sum(series) for series in count(kept)] == [0, 0, 0]


def test_what_is_kept_is_computed_when_it_changed_and_not_too_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr("fedbo.hub.page.kept.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("fedbo.hub.page.kept._SHARE", 0.1)
    calls: list[int] = []

    async def compute() -> int:
        calls.append(len(calls))
        clock[0] += 1.0  # it is slow
        await asyncio.sleep(0)
        return calls[-1]

    async def run() -> None:
        kept: Kept[int] = Kept(2.0)
        found = await asyncio.gather(*(kept.latest("x", compute) for _ in range(5)))
        assert {one.value for one in found} == {0}  # computed once for all
        clock[0] += 100.0
        assert (await kept.latest("x", compute)).value == 0
        assert await kept.latest("y", compute) == (1, "y")
        clock[0] += 9.0  # a tenth of the time at most
        assert await kept.latest("z", compute) == (1, "y")
        clock[0] += 2.0
        assert await kept.latest("z", compute) == (2, "z")

    asyncio.run(run())


# the session


def test_a_session_is_a_cookie_that_scripts_and_other_sites_cannot_use(quick: World) -> None:
    token = quick.enrol(quick.federation(), "a")
    nobody = {"role": None, "name": "", "federation": ""}
    assert quick.ask("GET", "/v1/session").json() == nobody
    answer = quick.ask("POST", "/v1/session", json={"token": token})
    assert answer.json() == {"role": "member", "name": "a", "federation": "liver"}
    cookie = answer.headers["Set-Cookie"]
    for part in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43"):
        assert part in cookie
    assert "Secure" not in cookie and token not in answer.text
    assert quick.ask("GET", OVERVIEW).status_code == 200  # the client keeps the cookie
    path = "/v1/federations/liver/member/token"
    assert quick.ask("POST", path).status_code == 403
    assert quick.ask("DELETE", "/v1/session", headers={"X-Fedbo": "1"}).status_code == 204
    assert quick.ask("GET", "/v1/session").json() == nobody


def test_the_cookie_needs_tls_where_there_is_tls(new_database: Callable[[str], str]) -> None:
    with World(new_database("sqlite"), public_url="https://hub.example.org") as world:
        token = world.operator()
        answer = world.ask("POST", "/v1/session", json={"token": token})
        assert "Secure" in answer.headers["Set-Cookie"]


def test_a_session_ends(quick: World) -> None:
    secret = quick.federation()
    quick.ask("POST", "/v1/session", json={"token": quick.enrol(secret, "a")})
    assert quick.ask("GET", "/v1/session").json()["name"] == "a"
    with begin(quick.engine) as connection:
        connection.execute(update(schema.session).values(expires=time.time() - 1))
    time.sleep(1.1)  # a session is believed for a second
    assert quick.ask("GET", "/v1/session").json()["role"] is None
    assert quick.ask("GET", OVERVIEW).status_code == 401


@pytest.mark.parametrize("token", ["", "x", "fedbo-o-" + "A" * 43])
def test_a_wrong_token_opens_no_session(quick: World, token: str) -> None:
    quick.operator()
    answer = quick.ask("POST", "/v1/session", json={"token": token})
    assert answer.status_code == 401 and "Set-Cookie" not in answer.headers
    with quick.engine.connect() as connection:
        assert connection.execute(select(schema.session.c.id)).all() == []


def test_guessing_tokens_is_slowed_down(new_database: Callable[[str], str]) -> None:
    with World(new_database("sqlite"), failures=3) as world:
        statuses = [
            world.ask("POST", "/v1/session", json={"token": f"guess {i}"}).status_code
            for i in range(5)
        ]
    assert statuses == [401, 401, 401, 429, 429]


def test_a_form_of_another_site_cannot_log_in(quick: World) -> None:
    body = json.dumps({"token": quick.operator()})
    headers = {"Content-Type": "text/plain"}
    answer = quick.ask("POST", "/v1/session", content=body, headers=headers)
    assert answer.status_code == 422 and "Set-Cookie" not in answer.headers


# the files


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "text/html"), ("/docs", "text/html"), ("/static/hub.js", "text/javascript"),
     ("/static/hub.css", "text/css"), ("/static/favicon.svg", "image/svg+xml"),
     ("/static/swagger-ui-bundle.js", "text/javascript"), ("/static/swagger-ui.css", "text/css")],
)  # fmt: skip
def test_files_are_served_with_a_policy(quick: World, path: str, kind: str) -> None:
    answer = quick.ask("GET", path)
    assert answer.status_code == 200 and answer.headers["Content-Type"].startswith(kind)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Encoding"] == "gzip"
    plain = quick.ask("GET", path, headers={"Accept-Encoding": "identity"})
    assert plain.content == answer.content
    tag = {"If-None-Match": answer.headers["ETag"]}
    again = quick.ask("GET", path, headers=tag)
    assert again.status_code == 304 and again.content == b""
    head = quick.ask("HEAD", path)
    assert head.status_code == 200 and head.content == b""


def test_the_page_asks_no_other_address_and_has_nothing_inline(quick: World) -> None:
    for path in ("/", "/docs"):
        text = quick.ask("GET", path).text
        assert "://" not in text and "<style" not in text and " style=" not in text
        assert text.count("<script") == text.count("></script>")  # all of them are files
        assert not any(f" on{event}=" in text for event in ("click", "load", "submit", "error"))


@pytest.mark.parametrize(
    "path",
    ["/static/", "/static/index.html", "/static/../app.py", "/static/%2e%2e/app.py",
     "/static/redoc.standalone.js", "/index.html", "/static/hub.js/"],
)  # fmt: skip
def test_nothing_else_is_served(quick: World, path: str) -> None:
    answer = quick.ask("GET", path)
    assert answer.status_code == 404 and answer.json()["type"] == "/problems/not-found"


def test_keys_are_shown_as_people_compare_them(quick: World) -> None:
    from fedbo.identity import KeyPair

    keys = KeyPair.generate()
    operator = quick.operator()
    quick.enrol(quick.federation(), "a", keys)
    (row,) = look(quick, operator)["members"]["rows"]
    assert row["key"] == key_text(keys.public)
