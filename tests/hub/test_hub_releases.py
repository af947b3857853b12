"""Federations with a privacy plan at a hub: what is taken, handed out, released and refused."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import msgspec
import pytest
from hub.private import BINARY, HERE, PLAN, Lung, contribution, federation
from hub.world import ACTOR, World, message, news, problem, scalars, wanted
from sqlalchemy import Connection, Engine, event, select, text, update

from fedbo.agent import Agent
from fedbo.exchange.choice import withdrawal_of
from fedbo.federation import Federation, Plan
from fedbo.hub import admin, migrations, schedule, schema
from fedbo.hub.admin import Standing, is_due
from fedbo.hub.backup import backup, restore
from fedbo.hub.database import HubError, begin, open_database
from fedbo.hub.problems import PROBLEMS, Refused
from fedbo.hub.release_key import release_keys
from fedbo.hub.settings import Settings
from fedbo.identity import KeyPair
from fedbo.message import Message, Release
from fedbo.message.signed import key_text
from fedbo.privacy.release import release

AGREED = federation()
DAY = 86400.0


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    with World(database_url) as running:
        yield running


@pytest.fixture
def lung(world: World) -> Lung:
    return Lung(world, AGREED, "a", "b", "c")


# What is taken, and what is handed out


def test_a_whole_round_with_real_agents(lung: Lung) -> None:
    agents = {name: Agent(AGREED, name=name, seed=i) for i, name in enumerate(("a", "b", "c"))}
    for name, agent in agents.items():
        for _ in range(4):
            trial = agent.ask()
            agent.tell(trial, -((trial.params["x"] - 0.3) ** 2) - trial.params["y"])
        assert lung.put(agent.message(), name).json() == {"out": True}
        assert lung.put(agent.message(), name).json() == {"out": True}  # a retry
    assert lung.fetch("a") == []
    answer = lung.release()
    assert answer.status_code == 201, answer.text
    assert answer.json() | {"time": 0} == {
        "number": 1, "epoch": 0, "time": 0, "members": 3, "trials": 12, "is_lost": False,
    }  # fmt: skip
    lung.tokens["new"] = lung.world.enrol(lung.secret, "new")
    (published,) = lung.fetch("new")
    assert (published.sender, published.sequence, published.members) == ("hub", 1, 3)
    AGREED.check(published)
    newcomer = Agent(AGREED, name="new", seed=9)
    assert newcomer.receive([published]) == 1
    assert newcomer.ask().params
    assert lung.fetch("b") == [published]


def test_a_later_release_replaces_the_earlier(lung: Lung) -> None:
    lung.contribute("a", "b")
    assert lung.release().is_success
    first = news(lung.ask("POST", "/fetch", "c", **wanted()))
    (kept,) = first.handed
    again = news(lung.ask("POST", "/fetch", "c", **wanted(cursor=first.cursor)))
    assert not again.is_all and not again.handed and not again.gone
    lung.contribute("a", sequence=2)
    assert lung.release().is_success
    second = news(lung.ask("POST", "/fetch", "c", **wanted(cursor=again.cursor)))
    (replaced,) = second.handed
    assert replaced.number == kept.number and not second.is_all
    assert Release.decode(replaced.content).sequence == 2
    assert [one.sequence for one in lung.fetch("a")] == [2]


def test_what_is_not_a_contribution_is_refused(lung: Lung) -> None:
    plain = Federation(AGREED.space, features=20, seed=3)
    for wrong in (message("a", agreed=plain), message("a", agreed=AGREED)):
        assert problem(lung.put(wrong)) == "wrong-message"
    made = release(AGREED, [contribution(AGREED, "a")])
    refused = lung.put(made.encode())
    assert problem(refused) == "wrong-message" and "only the hub itself makes" in refused.text
    assert problem(lung.put(bytes(2000))) == "too-large"
    assert problem(lung.put(contribution(AGREED, "b"), "a")) == "wrong-sender"
    lung.contribute("a", sequence=2)
    older = lung.put(contribution(AGREED, "a", 1))
    assert older.json() == {"out": False}


def test_only_members_that_are_there_with_enough_trials_count(lung: Lung) -> None:
    lung.contribute("a", "b", "c")
    lung.contribute("b", sequence=2, t_n=2)  # fewer than the plan asks for
    with begin(lung.world.engine) as connection:
        admin.revoke(connection, "lung", "c", actor=ACTOR)
    assert lung.put(contribution(AGREED, "a/2", t_n=9)).json() == {"out": True}
    made = lung.release().json()
    assert (made["members"], made["trials"]) == (1, 9)  # the agent of a with most trials
    gone = lung.ask("DELETE", "/messages", "a", params={"sender": "a/2"})
    assert gone.json() == {"out": False, "was_out": True}
    assert lung.release().json()["trials"] == 5


def test_a_signed_contribution_that_was_withdrawn_does_not_count(lung: Lung) -> None:
    keys = KeyPair.generate()
    lung.tokens["d"] = lung.world.enrol(lung.secret, "d", keys)
    assert problem(lung.put(contribution(AGREED, "d"), "d")) == "wrong-key"
    sent = keys.sign(contribution(AGREED, "d"))
    assert lung.put(sent, "d").json() == {"out": True}
    lung.contribute("a")
    assert lung.release().json()["members"] == 2
    withdrawal = keys.sign(withdrawal_of(sent, keys))
    assert lung.put(withdrawal.encode(), "d").json() == {"out": False, "was_out": True}
    assert lung.put(sent, "d").json() == {"out": False}
    assert [one.sequence for one in lung.fetch("a")] == [1]  # and no withdrawal
    assert lung.release().json()["members"] == 1


def test_a_contribution_has_the_same_size_whatever_is_in_it() -> None:
    sizes = {
        len(contribution(AGREED, "a", cell=cell).encode()) for cell in range(len(AGREED.cells))
    }
    assert len(sizes) == 1


def test_no_byte_of_a_contribution_is_in_any_answer(lung: Lung) -> None:
    lung.contribute("a", "b", "c")
    secret = {name: contribution(AGREED, name) for name in ("a", "b", "c")}
    assert lung.release().is_success
    lung.contribute("c", sequence=2)
    secret["c"] = contribution(AGREED, "c", 2)
    paths = [
        path.format(federation="lung")
        for path, methods in lung.world.app.openapi()["paths"].items()
        if "get" in methods
    ]
    paths += ["/", "/docs", "/openapi.json", HERE + "/overview?sort=seen", HERE + "/releases"]
    asked: list[tuple[str, Any]] = [
        (who, lung.world.ask("GET", path, token, headers={"accept-encoding": "identity"}))
        for path in dict.fromkeys(paths)
        for who, token in {"": lung.operator, **lung.tokens}.items()
    ]
    for who in lung.tokens:
        asked.append((who, lung.ask("POST", "/fetch", who, **wanted())))
        asked.append((who, lung.ask("GET", "/messages", who, params={"sender": who})))
    assert len(asked) > 60
    for who, answer in asked:
        for name, one in secret.items():
            body = one.body.y  # type: ignore[union-attr]
            pieces = {body[i : i + 8] for i in range(0, len(body), 4)}
            shown = [piece for piece in pieces if piece in answer.content]
            is_own = who == name and answer.request.url.path.endswith("/messages")
            assert bool(shown) == is_own, (who, name, answer.request.url)
    overview = lung.ask("GET", "/overview", "a").json()
    assert overview["map"]["agents"] == [] and overview["progress"]["rows"] == []
    assert overview["releases"]["made"] == 1 and overview["releases"]["contributed"] == 3


def test_own_contributions_and_the_release_are_listed(lung: Lung) -> None:
    lung.contribute("a", "b")
    assert lung.release().is_success
    found = msgspec.msgpack.decode(lung.ask("GET", "/messages", "a").content)
    assert Message.decode(found[0][1]) == contribution(AGREED, "a")
    assert Release.decode(found[1][1]).sequence == 1 and len(found) == 2


def test_scalars_progress_and_agreed_epochs_are_refused(lung: Lung) -> None:
    shared = lung.ask("PUT", "/scalars", "a", content=scalars("a", AGREED).encode(), **BINARY)
    assert problem(shared) == "private-federation" and "does not cover" in shared.text
    for report in ({"sender": "a", "trials": 3}, {"sender": "a", "trials": 3, "best": 0.5}):
        assert problem(lung.ask("PUT", "/progress", "a", json=report)) == "private-federation"
    assert lung.ask("DELETE", "/progress", "a", params={"sender": "a"}).is_success
    with (
        begin(lung.world.engine) as connection,
        pytest.raises(Refused, match=r"share no scalars.*start an epoch with a federation"),
    ):
        admin.agree(connection, "lung", actor=ACTOR)


def test_nobody_can_have_the_name_of_who_makes_releases(lung: Lung) -> None:
    given = {"secret": lung.secret, "name": "hub"}
    refused = lung.world.ask("POST", "/v1/members", json=given)
    assert problem(refused) == "name-taken" and "publishes private releases" in refused.text


# What is refused, and what it costs


def test_the_budget_holds_in_all_epochs_together(lung: Lung) -> None:
    lung.contribute("a")
    assert lung.release().is_success
    later = AGREED.next_epoch(noise_variance=0.05)
    assert lung.ask("POST", "/epochs", json={"file": later.to_toml()}).is_success
    assert problem(lung.release()) == "nothing-to-release"
    made = contribution(later, "a", 2)
    assert lung.put(made).json() == {"out": True}
    assert lung.release().json()["number"] == 2
    assert [one.epoch for one in lung.fetch(epoch=0)] == [0]
    assert [(one.epoch, one.sequence) for one in lung.fetch(epoch=1)] == [(1, 2)]
    spent = lung.release()
    assert problem(spent) == "budget-spent"
    assert "all 2 releases" in spent.text and "in all of its epochs together" in spent.text
    assert len(lung.recorded()) == 2


def test_the_ledger_says_what_was_made_and_what_it_costs(lung: Lung) -> None:
    lung.contribute("a", "b")
    before = lung.ledger()
    assert before["spent"] == 0.0 and before["contributed"] == 2 and before["releases"] == []
    costs = [0.0]
    for number in (1, 2):
        assert lung.release().is_success
        found = lung.ledger()
        costs.append(found["spent"])
        assert [one["number"] for one in found["releases"]] == [*range(1, number + 1)]
    assert 0 < costs[1] < costs[2] <= PLAN.epsilon
    assert (found["epsilon"], found["delta"], found["planned"]) == (2.0, 1e-3, 2)
    assert lung.ask("GET", "/releases", "a").json() == found
    lines = lung.world.audit("released")
    assert [line["detail"]["number"] for line in lines] == [1, 2]
    assert {line["actor"] for line in lines} == {"operator ann"}
    metrics = lung.world.ask("GET", "/metrics", lung.operator).text
    assert "fedbo_hub_releases 2.0" in metrics


def test_without_an_accountant_the_cost_is_not_known(
    lung: Lung, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> float:
        raise ModuleNotFoundError

    monkeypatch.setattr(admin.releases, "_epsilon", missing)
    lung.contribute("a")
    assert lung.release().is_success
    assert lung.ledger()["spent"] is None
    assert lung.ask("GET", "/overview", "a").json()["releases"]["spent"] is None


def _make_all(lung: Lung) -> Any:
    lung.contribute("a")
    lung.make()
    lung.make()


def _unreconcile(lung: Lung) -> Any:
    with begin(lung.world.engine) as connection:
        connection.execute(update(schema.federation).values(is_unreconciled=True))


def _list_members(lung: Lung) -> Any:
    keys = KeyPair.generate()
    listed = federation(members={"a": keys.public, "hub": KeyPair.generate().public})
    file = {"file": listed.to_toml()}
    assert lung.ask("POST", "/epochs", json=file).is_success
    with begin(lung.world.engine) as connection:
        row = update(schema.message).where(schema.message.c.sender == "a")
        connection.execute(row.values(key=keys.public))


def _no_plan(lung: Lung) -> Any:
    lung.world.federation("liver")


def _contributed(prepare: Callable[[Lung], Any]) -> Callable[[Lung], Any]:
    def prepared(lung: Lung) -> None:
        lung.contribute("a")
        prepare(lung)

    return prepared


def _nothing(lung: Lung) -> None:
    pass


#: How to get each problem that only federations with a privacy plan have.
EXAMPLES: dict[str, tuple[Callable[[Lung], Any], Callable[[Lung], Any]]] = {
    "private-federation": (
        _nothing,
        lambda lung: lung.ask("PUT", "/progress", "a", json={"sender": "a", "trials": 3}),
    ),
    "no-privacy-plan": (
        _no_plan,
        lambda lung: lung.world.ask("GET", "/v1/federations/liver/releases", lung.operator),
    ),
    "nothing-to-release": (_nothing, Lung.release),
    "release-made": (_make_all, lambda lung: lung.release(number=1)),
    "budget-spent": (_make_all, Lung.release),
    "not-reconciled": (_contributed(_unreconcile), Lung.release),
    "no-release-key": (_contributed(_list_members), Lung.release),
}


@pytest.mark.parametrize("slug", sorted(EXAMPLES))
def test_every_problem_says_what_is_wrong_and_changes_nothing(lung: Lung, slug: str) -> None:
    prepare, example = EXAMPLES[slug]
    prepare(lung)
    before = lung.world.rows("audit")
    answer = example(lung)
    assert problem(answer) == slug
    assert (answer.status_code, answer.json()["title"]) == PROBLEMS[slug]
    assert lung.world.rows("audit") == before


def test_a_number_that_is_not_next_is_refused(lung: Lung) -> None:
    lung.contribute("a")
    refused = lung.release(number=2)
    assert problem(refused) == "wrong-request" and "1 is next" in refused.text


def test_a_release_without_enough_trials_says_how_many_are_missing(lung: Lung) -> None:
    lung.contribute("a", "b", t_n=2)
    refused = lung.release()
    assert problem(refused) == "nothing-to-release"
    assert "from 3 trials or more" in refused.text and "2 of its members" in refused.text


@pytest.mark.parametrize("number", [None, 1])
def test_those_who_release_at_the_same_moment_make_one(lung: Lung, number: int | None) -> None:
    lung.contribute("a", "b")
    start, answers = threading.Barrier(4), []

    def ask() -> None:
        start.wait()
        answers.append(lung.release(**({} if number is None else {"number": number})))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = [answer for answer in answers if answer.status_code == 201]
    if number is None:  # who looked after the first was made asks for the second
        assert 1 <= len(made) == len(lung.recorded()) <= 2
    else:
        assert len(made) == len(lung.recorded()) == 1
    refused = {problem(answer) for answer in answers if answer not in made}
    assert refused <= {"release-made", "budget-spent"}


def test_two_processes_never_make_the_same_release(lung: Lung, database_url: str) -> None:
    lung.contribute("a", "b")
    start, made = threading.Barrier(3), []

    def work() -> None:
        engine = open_database(database_url)
        start.wait()
        try:
            with begin(engine) as connection:
                made.append(admin.make_release(connection, "lung", actor=ACTOR, number=1))
        except Refused as refused:
            made.append(refused.slug)
        engine.dispose()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, made)).count("release-made") == 2
    assert [row.sequence for row in lung.recorded()] == [1]


# Signatures


def test_releases_are_signed_with_the_key_of_the_hub(
    new_database: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "state"))
    keys = KeyPair.load()
    file = str(keys.path)
    with World(new_database("sqlite"), release_key=file) as world:
        own = KeyPair.generate()
        agreed = federation(members={"a": own.public, "hub": keys.public})
        lung = Lung(world, agreed)
        lung.tokens["a"] = world.enrol(lung.secret, "a", own)
        assert lung.put(own.sign(contribution(agreed, "a"))).json() == {"out": True}
        with pytest.raises(Refused, match=r"lists 'hub' with the key .* this hub has no key"):
            lung.make()
        with pytest.raises(Refused, match=r"the key of this hub is .*set release_key"):
            lung.make(keys=KeyPair.generate())
        assert lung.release().is_success
        (published,) = lung.fetch()
        assert published.signer == key_text(keys.public)


def test_a_key_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(HubError, match=r"release_key: .*nowhere cannot be read"):
        release_keys(Settings(release_key=str(tmp_path / "nowhere")))
    wrong = tmp_path / "wrong.pem"
    wrong.touch(0o600)
    with pytest.raises(HubError, match=r"release_key: .*is not a private key"):
        release_keys(Settings(release_key=str(wrong)))


# The schedule


@pytest.mark.parametrize(
    ("standing", "now", "expected"),
    [
        (Standing(0, 0.0, 20, True), 7 * DAY, True),
        (Standing(0, 0.0, 20, True), 7 * DAY - 1, False),  # too early
        (Standing(0, 0.0, 19, True), 70 * DAY, False),  # too few
        (Standing(1, 0.0, 30, True), 8 * DAY, True),
        (Standing(1, 0.0, 30, False), 8 * DAY, False),  # nothing is new
        (Standing(3, 0.0, 30, True), 8 * DAY, False),  # all were made
    ],
)
def test_when_a_release_is_due(standing: Standing, now: float, expected: bool) -> None:
    plan = Plan(epsilon=2.0, delta=1e-3, releases=3, least_members=20, days=7.0)
    assert is_due(plan, standing, now) is expected


def test_without_least_members_only_the_operator_makes_releases() -> None:
    assert not is_due(PLAN, Standing(0, 0.0, 1000, True), 1e9)


@pytest.fixture
def planned(database_url: str) -> Iterator[Lung]:
    """A hub that looks for releases several times a second, and never waits a day for one."""
    plan = Plan(epsilon=2.0, delta=1e-3, releases=2, least_members=2)
    every, schedule.EVERY = schedule.EVERY, 0.05
    try:
        with World(database_url) as world, World(database_url):  # two processes
            yield Lung(world, federation(plan), "a", "b", "c")
    finally:
        schedule.EVERY = every


def test_a_hub_makes_releases_that_are_due(planned: Lung) -> None:
    planned.contribute("a")
    time.sleep(0.3)
    assert planned.recorded() == []
    planned.contribute("b")
    _wait_for(lambda: len(planned.recorded()) == 1)
    time.sleep(0.3)  # nothing is new
    assert len(planned.recorded()) == 1
    assert [one.members for one in planned.fetch("c")] == [2]
    planned.contribute("c")
    _wait_for(lambda: len(planned.recorded()) == 2)
    planned.contribute("a", sequence=2)
    time.sleep(0.3)  # all were made
    assert [row.members for row in planned.recorded()] == [2, 3]
    assert [line["actor"] for line in planned.world.audit("released")] == ["release schedule"] * 2


def test_a_hub_makes_no_release_that_it_cannot_sign(planned: Lung) -> None:
    keys = KeyPair.generate()
    plan = planned.agreed.privacy
    assert plan is not None
    listed = federation(plan, members=dict.fromkeys(["a", "b", "hub"], keys.public))
    assert planned.ask("POST", "/epochs", json={"file": listed.to_toml()}).is_success
    planned.contribute("a", "b")
    with begin(planned.world.engine) as connection:
        connection.execute(update(schema.message).values(key=keys.public))
    _wait_for(lambda: "no-release-key" in planned.world.lines.getvalue())
    assert planned.recorded() == []


def test_a_hub_that_stops_waits_for_a_look_at_the_database(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, closed = threading.Event(), []

    def look(connection: Connection) -> list[Any]:
        looking.set()
        time.sleep(0.3)
        return []

    monkeypatch.setattr(schedule, "EVERY", 0.01)
    monkeypatch.setattr(admin, "due_releases", look)
    with World(database_url) as world:
        event.listen(world.engine, "checkin", lambda *_: closed.append("given back"))
        event.listen(world.engine, "engine_disposed", lambda _: closed.append("disposed"))
        looking.wait()
    assert closed[-2:] == ["given back", "disposed"]


def test_a_federation_whose_release_fails_does_not_hold_up_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    service = Mock()
    service.read = AsyncMock(return_value=[Mock(), Mock()])
    for here, name in zip(service.read.return_value, ("liver", "lung"), strict=True):
        here.name = name

    async def make(_: object, here: admin.FederationRow) -> None:
        if here.name == "liver":
            raise ValueError("a contribution cannot be read")
        made.append(here.name)

    monkeypatch.setattr(schedule, "_make", make)
    asyncio.run(schedule.make_due_releases(service))
    assert made == ["lung"]
    assert service.log.error.call_args.kwargs == {"federation": "liver"}


def _wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "this took too long"
        time.sleep(0.02)


# Backups, restores and revisions


def test_after_a_restore_releases_must_be_reconciled(
    lung: Lung, tmp_path: Path, new_database: Callable[[str], str], database_url: str
) -> None:
    lung.contribute("a", "b")
    lung.make()
    lung.world.federation("liver")
    backup(lung.world.engine, tmp_path / "b")
    lung.make()
    kind = "postgresql" if database_url.startswith("sqlite") else "sqlite"  # the other one
    url = new_database(kind)
    restore(tmp_path / "b", url)
    with World(url) as world:
        restored = Lung.__new__(Lung)
        restored.__dict__.update({**lung.__dict__, "world": world})
        (kept,) = restored.recorded()
        assert kept == lung.recorded()[0]
        assert not restored.ledger()["is_reconciled"]
        refused = restored.release()
        assert problem(refused) == "not-reconciled"
        assert "fedbo hub reconcile lung --releases NUMBER" in refused.text
        with begin(world.engine) as connection:
            number = admin.find_federation(connection, "lung").id
            assert admin.make_due_release(connection, number) is None
            assert not admin.find_federation(connection, "liver").is_unreconciled
        with world.engine.connect() as connection:
            assert admin.due_releases(connection) == []
        for wrong in (0, 3):
            answer = restored.ask("POST", "/releases/reconcile", json={"releases": wrong})
            assert problem(answer) == "wrong-request" and "expected 1 to 2" in answer.text
        answer = restored.ask("POST", "/releases/reconcile", json={"releases": 2})
        assert answer.json() == {"releases": 2}
        found = restored.ledger()
        assert [one["is_lost"] for one in found["releases"]] == [False, True]
        assert found["is_reconciled"]
        assert found["spent"] == pytest.approx(lung.ledger()["spent"], rel=1e-6)
        assert problem(restored.release()) == "budget-spent"
        assert [one.sequence for one in restored.fetch("a")] == [1]
        assert world.audit("reconciled")[0]["detail"] == {"releases": 2, "lost": 1}


def test_a_restored_hub_goes_on_after_what_was_made(
    lung: Lung, tmp_path: Path, new_database: Callable[[str], str]
) -> None:
    lung.contribute("a")
    lung.make()
    backup(lung.world.engine, tmp_path / "b")
    engine = open_database(url := new_database("sqlite"))
    engine.dispose()
    restore(tmp_path / "b", url)
    engine = open_database(url)
    with begin(engine) as connection:
        assert admin.reconcile(connection, "lung", 1, actor=ACTOR) == 0
        assert admin.make_release(connection, "lung", actor=ACTOR).number == 2
    engine.dispose()


def _downgrade(engine: Engine) -> None:
    """Make the tables those of the first revision."""
    with begin(engine) as connection:
        connection.execute(text('DROP TABLE "release"'))
        for column in ("is_private", "is_unreconciled"):
            connection.execute(text(f"ALTER TABLE federation DROP COLUMN {column}"))
        connection.execute(text("UPDATE fedbo_revision SET version_num = '0001'"))


def test_a_database_of_the_first_revision_is_brought_up_to_date(database_url: str) -> None:
    engine = open_database(database_url)
    plain = Federation(AGREED.space, features=20, seed=3)
    with begin(engine) as connection:
        admin.create_federation(connection, "liver", plain, actor=ACTOR)
    _downgrade(engine)
    again = open_database(database_url)
    with begin(again) as connection:
        assert migrations.current(connection) == migrations.NEWEST
        here = admin.find_federation(connection, "liver")
        assert not here.is_private and not here.is_unreconciled
        assert admin.create_federation(connection, "lung", AGREED, actor=ACTOR).is_private
        assert connection.execute(select(schema.release)).all() == []
    engine.dispose()
    again.dispose()


def test_one_plan_has_one_federation(database_url: str) -> None:
    """Two would number their releases alike, and members would think that a record was lost."""
    engine = open_database(database_url)
    with begin(engine) as connection:
        admin.create_federation(connection, "liver", AGREED, actor=ACTOR)
        with pytest.raises(Refused, match="'liver' at this hub has the same file") as caught:
            admin.create_federation(connection, "lung", AGREED, actor=ACTOR)
    assert caught.value.slug == "wrong-federation"
    engine.dispose()
