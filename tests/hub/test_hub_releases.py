"""Federations with a privacy plan at a hub: what is taken, handed out, released and refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from contracts.hub_rows import ACTOR, message
from hub.world import (
    PLAN,
    Lung,
    World,
    contribution,
    newcomer,
    private_federation,
    problem,
)
from msgspec.structs import replace
from sqlalchemy import update

from fedbo.agent import Agent
from fedbo.federation import Federation, Plan
from fedbo.hub import service, store
from fedbo.hub.problems import Refused
from fedbo.hub.service import release_keys
from fedbo.hub.settings import Settings
from fedbo.hub.store import HubError, begin, schema
from fedbo.hub.store.backup import backup, restore
from fedbo.message import Release
from fedbo.testing.keys import keys_of, new_keys
from fedbo.trust import KeyPair, verify

AGREED = private_federation()


@pytest.fixture
def lung(world: World) -> Lung:
    return Lung(world, AGREED, "a", "b", "c")


@pytest.fixture
def both(database_url: str) -> Iterator[Lung]:
    """With either database."""
    with World(database_url) as running:
        yield Lung(running, AGREED, "a", "b", "c")


def put(lung: Lung, content: Any, who: str, **given: Any) -> Any:
    return lung.world.put(content, lung.tokens[who], here=lung.here, **given)


# What is taken, and what is handed out


def test_a_whole_round_with_real_agents(both: Lung) -> None:
    agents = {
        name: Agent(AGREED, name=name, seed=i, keys=keys_of(name)) for i, name in enumerate("abc")
    }
    for name, agent in agents.items():
        for _ in range(4):
            trial = agent.ask()
            agent.tell(trial, -((trial.params["x"] - 0.3) ** 2) - trial.params["y"])
        assert put(both, agent.message(), name).json() == {"out": True}
    assert both.fetch("a") == []
    made = both.make()
    assert (made.number, made.members, made.trials, made.is_lost) == (1, 3, 12, False)
    both.tokens["new"] = both.world.enrol(both.secret, "new")
    (published,) = both.fetch("new")
    assert (published.sender, published.sequence, published.members) == ("hub", 1, 3)
    new = Agent(AGREED, name="new", seed=9)
    assert new.receive([published.encode()]) == 1
    assert new.ask().params


def test_a_later_release_replaces_the_earlier(lung: Lung) -> None:
    def fetch(cursor: str) -> Any:
        return lung.world.fetch(lung.tokens["c"], cursor, here=lung.here)

    lung.contribute("a", "b")
    lung.make()
    first = fetch("")
    again = fetch(first.cursor)
    assert not again.is_all and not again.handed and not again.gone
    lung.contribute("a", sequence=2)
    lung.make()
    second = fetch(again.cursor)
    assert second.handed[0].number == first.handed[0].number and not second.is_all
    assert Release.decode(second.handed[0].content).sequence == 2


def test_what_is_not_a_contribution_is_refused(lung: Lung) -> None:
    plain = Federation(AGREED.space, features=20, seed=3)
    for wrong in (message("a", agreed=plain), message("a", agreed=AGREED)):
        assert problem(put(lung, wrong, "a")) == "wrong-message"
    sent = contribution(AGREED, "a")
    elsewhere = keys_of("a").sign(replace(sent, body=replace(sent.body, basis=b"abcd")))
    for wrong in (elsewhere, contribution(AGREED, "a", cell=99)):  # which it would have to use
        assert problem(put(lung, wrong, "a")) == "wrong-message"
    lung.contribute("a")
    lung.make()
    (made,) = lung.fetch()
    assert problem(put(lung, made, "a")) == "wrong-message"
    assert problem(put(lung, bytes(5000), "a")) == "too-large"
    assert problem(put(lung, contribution(AGREED, "b"), "a")) == "wrong-sender"


def test_only_members_that_are_there_with_enough_trials_count(lung: Lung) -> None:
    lung.contribute("a", "b", "c")
    lung.contribute("b", sequence=2, t_n=2)  # fewer than the plan asks for
    with begin(lung.world.engine) as connection:
        store.revoke(connection, "lung", "c", actor=ACTOR)
    assert put(lung, contribution(AGREED, "a/2", t_n=9), "a").json() == {"out": True}
    made = lung.make()
    assert (made.members, made.trials) == (1, 9)  # the agent of a with most trials
    lung.withdraw(contribution(AGREED, "a/2"))
    assert lung.make().trials == 5


def test_a_contribution_that_was_withdrawn_does_not_count(lung: Lung) -> None:
    lung.contribute("a", "b")
    assert lung.make().members == 2
    lung.withdraw(contribution(AGREED, "b"))
    assert [release.sequence for release in lung.fetch("a")] == [1]  # and no withdrawal
    assert lung.make().members == 1


def test_no_byte_of_a_contribution_is_in_any_answer(lung: Lung) -> None:
    lung.contribute("a", "b", "c")
    secret = {name: contribution(AGREED, name) for name in ("a", "b", "c")}
    lung.make()
    lung.contribute("c", sequence=2)
    secret["c"] = contribution(AGREED, "c", 2)
    openapi = lung.world.app.openapi()["paths"]
    paths = [path.format(federation="lung") for path in openapi if "get" in openapi[path]]
    paths += ["/", "/docs", "/openapi.json", lung.here + "/overview?limit=1"]
    answers: list[tuple[str, Any]] = [
        (who, lung.world.ask("GET", path, token))
        for path in dict.fromkeys(paths)
        for who, token in {"": None, **lung.tokens}.items()
    ]
    for who, token in lung.tokens.items():
        lung.world.fetch(token, here=lung.here)
        answers.append((who, lung.ask("GET", "/messages", who, params={"sender": who})))
    assert len(answers) > 40
    for who, answer in answers:
        for name, sent in secret.items():
            body = sent.body.y.tobytes()
            pieces = {body[i : i + 8] for i in range(0, len(body), 4)}
            shown = [piece for piece in pieces if piece in answer.content]
            is_own = who == name and answer.request.url.path.endswith("/messages")
            assert bool(shown) == is_own, (who, name, answer.request.url)
    overview = lung.ask("GET", "/overview", "a").json()
    assert len(overview["releases"]["releases"]) == 1
    assert overview["releases"]["contributed"] == 3


def test_nobody_can_have_the_name_of_who_makes_releases(lung: Lung) -> None:
    body = newcomer(lung.secret, "hub", federation="lung", agreed=AGREED)
    assert problem(lung.world.ask("POST", "/v1/members", json=body)) == "name-taken"


# What is refused, and what it costs


def test_the_ledger_says_what_was_made_and_what_it_costs(both: Lung) -> None:
    both.contribute("a", "b")
    before = both.ledger()
    assert before.spent == 0.0 and before.contributed == 2 and before.releases == []
    costs = [0.0]
    for number in (1, 2):
        both.make()
        ledger = both.ledger()
        costs.append(ledger.spent or 0.0)
        assert [row.number for row in ledger.releases] == [*range(1, number + 1)]
    assert 0 < costs[1] < costs[2] <= PLAN.epsilon
    assert (ledger.epsilon, ledger.delta, ledger.planned) == (2.0, 1e-3, 2)
    shown = both.ask("GET", "/overview", "a").json()["releases"]
    assert shown == ledger.model_dump()
    lines = both.world.audit("released")
    assert [line["detail"]["number"] for line in lines] == [1, 2]
    assert both.refuses() == "budget-spent"
    assert len(both.recorded()) == 2


@pytest.mark.parametrize("number", [None, 1])
def test_those_who_release_at_the_same_moment_make_one(both: Lung, number: int | None) -> None:
    both.contribute("a", "b")
    start, made, refused = threading.Barrier(4), list[int](), set[str]()

    def ask() -> None:
        start.wait()
        try:
            made.append(both.make(number=number).number)
        except Refused as error:
            refused.add(error.slug)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == len(both.recorded()) == (2 if number is None else 1)
    assert refused == {"release-made" if number else "budget-spent"}


def test_one_plan_has_one_federation(lung: Lung) -> None:
    """Two would number their releases alike, and members would think that a record was lost."""
    with pytest.raises(Refused) as refused:
        lung.world.federation("liver", AGREED)
    assert refused.value.slug == "wrong-federation"


# Signatures


def test_releases_are_signed_with_the_key_of_the_hub(
    new_database: Callable[[str], str], tmp_path: Path
) -> None:
    keys = KeyPair.own(tmp_path)
    with World(new_database("sqlite"), release_key=str(keys.path)) as world:
        members = {"a": keys_of("a").public, "hub": keys.public}
        agreed = private_federation(members=members)
        lung = Lung(world, agreed, "a")
        lung.contribute("a")
        with pytest.raises(Refused) as refused:
            lung.make(keys=new_keys())
        assert refused.value.slug == "no-release-key"
        lung.make()
        (published,) = lung.fetch()
        assert published.key == keys.public
        verify(published)


def test_without_a_key_of_its_own_the_hub_signs_as_its_user(lung: Lung) -> None:
    lung.contribute("a", "b")
    lung.make()
    (published,) = lung.fetch()
    assert published.key == KeyPair.load().public
    verify(published)


def test_a_key_that_cannot_be_used(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.touch(0o600)
    for place in (tmp_path / "nowhere", wrong):
        with pytest.raises(HubError, match="release_key: "):
            release_keys(Settings(release_key=str(place)))


# The schedule


def test_a_hub_makes_releases_that_are_due(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(epsilon=2.0, delta=1e-3, releases=2, least_members=2)
    monkeypatch.setattr(service, "_LOOK", 0.05)
    with World(database_url) as world, World(database_url):  # two processes
        lung = Lung(world, private_federation(plan), "a", "b", "c")
        lung.contribute("a")
        time.sleep(0.3)
        assert lung.recorded() == []
        lung.contribute("b")
        _wait_for(lambda: len(lung.recorded()) == 1)
        lung.contribute("c")
        time.sleep(0.3)  # only one contribution is new
        assert [release.members for release in lung.fetch("c")] == [2]
        lung.contribute("a", sequence=2)
        _wait_for(lambda: len(lung.recorded()) == 2)
        lung.contribute("a", "b", sequence=3)
        time.sleep(0.3)  # all were made
        assert [row.members for row in lung.recorded()] == [2, 3]
        actors = [line["actor"] for line in world.audit("released")]
        assert actors == ["release schedule"] * 2


def test_a_release_that_fails_does_not_hold_up_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(epsilon=2.0, delta=1e-3, releases=2, least_members=1)
    lung = Lung(world, private_federation(plan), "a")
    lung.contribute("a")
    other = Federation(AGREED.space, features=20, seed=4, privacy=plan)
    token = world.enrol(world.federation("liver", other), "a")
    sent = contribution(other, "a")
    assert world.put(sent, token, here="/v1/federations/liver").is_success
    with begin(world.engine) as connection:
        broken = schema.message.c.federation == 1
        connection.execute(update(schema.message).where(broken).values(content=b"broken"))
    world.service.make_due_releases()
    assert [line["federation"] for line in world.audit("released")] == ["liver"]
    events = [line for line in world.log() if line["event"] == "not-released"]
    assert [line["federation"] for line in events] == ["lung"]


def _wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "this took too long"
        time.sleep(0.02)


# Restores


def test_after_a_restore_the_last_release_must_be_known(
    both: Lung, tmp_path: Path, new_database: Callable[[str], str], database_url: str
) -> None:
    both.contribute("a", "b")
    both.make()
    both.world.federation("liver")
    backup(both.world.engine, tmp_path / "b")
    both.make()
    kind = "postgresql" if database_url.startswith("sqlite") else "sqlite"  # the other one
    url = new_database(kind)
    restore(tmp_path / "b", url)
    with World(url) as world:
        restored = Lung.__new__(Lung)
        restored.__dict__.update({**both.__dict__, "world": world})
        (kept,) = restored.recorded()
        assert kept == both.recorded()[0]
        assert restored.ledger().is_restored
        assert restored.refuses() == "suspended"
        with begin(world.engine) as connection:
            number = store.find_federation(connection, "lung").id
            assert store.make_due_release(connection, number, keys=new_keys()) is None
            assert store.due_releases(connection) == []
        for wrong in (None, 0, 3):
            with pytest.raises(Refused), begin(world.engine) as connection:
                store.admit(connection, "lung", ["a"], wrong, actor=ACTOR)
        with begin(world.engine) as connection:
            assert store.admit(connection, "lung", ["a"], 2, actor=ACTOR) == 1
        ledger = restored.ledger()
        assert [row.is_lost for row in ledger.releases] == [False, True]
        assert not ledger.is_restored and ledger.contributed == 1
        assert ledger.spent == pytest.approx(both.ledger().spent, rel=1e-6)
        assert restored.refuses() == "budget-spent"
        assert [release.sequence for release in restored.fetch("a")] == [1]
        assert world.audit("admitted")[-1]["detail"] == {"releases": 2, "lost": 1}
