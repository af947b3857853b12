"""Studies at a real hub: names, members who come and go, epochs, and a hub that is down."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from contracts.hub import HubProcess, Office
from sqlalchemy import select
from typer.testing import CliRunner

from fedbo import Federation, Float, Space
from fedbo.cli import app as cli
from fedbo.exchange import ExchangeWarning, Ledger, exchange_at
from fedbo.exchange.hub.member import Member
from fedbo.exchange.hub.memberships import Memberships
from fedbo.hub import schema
from fedbo.identity import KeyPair
from fedbo.optuna import FederatedSampler, record

pytestmark = [pytest.mark.usefixtures("patient"), pytest.mark.slow]

FEDERATION = Federation(Space({"x": Float(0, 1)}, direction="minimize"), features=20)


class Town:
    """A hub, a federation at it, and users with folders of their own."""

    def __init__(self, hub: HubProcess, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert hub.address.startswith("http://127.0.0.1:")  # anything else would be a folder
        self.hub, self.office = hub, Office(hub.db)
        self.name = f"t{abs(hash(folder)):x}"
        self._folder, self._monkeypatch = folder, monkeypatch
        self.office.create(self.name, FEDERATION)
        self.address = f"{hub.address}/{self.name}"

    def become(self, user: str) -> None:
        """From now on, this process is another user's."""
        self._monkeypatch.setenv("FEDBO_STATE", str(self._folder / user))

    def enrol(self, user: str, *, signed: bool = True) -> None:
        self.become(user)
        key = KeyPair.load().public if signed else b""
        self.office.enrol(self.hub.address, self.name, user, key)

    def sampler(self, name: str | None = None, **options: Any) -> FederatedSampler:
        given = {"every": 1} | options
        return FederatedSampler(FEDERATION, self.address, name=name, **given)

    def study(self, name: str | None = None, **options: Any) -> optuna.Study:
        return optuna.create_study(sampler=self.sampler(name, **options))

    def senders(self) -> list[str]:
        """Whose messages the hub hands out."""
        with self.office.engine.connect() as connection:
            rows = connection.execute(
                select(schema.message.c.sender, schema.message.c.sequence)
                .join(schema.federation, schema.federation.c.id == schema.message.c.federation)
                .where(schema.federation.c.name == self.name, schema.message.c.is_out)
            )
            self.sequences = {row.sender: row.sequence for row in rows}
        return sorted(self.sequences)


@pytest.fixture(scope="module")
def a_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(f"sqlite:///{tmp_path_factory.mktemp('hub')}/hub.db") as hub:
        yield hub


@pytest.fixture
def own_hub(tmp_path: Path) -> Iterator[HubProcess]:
    """A hub that a test may stop."""
    hub = HubProcess(f"sqlite:///{tmp_path}/hub.db").start()
    yield hub
    hub.kill()
    hub._log.close()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request to a hub that is down fails at once."""
    monkeypatch.setattr("fedbo.exchange.hub.client.BUDGET", 0.2)


@pytest.fixture
def town(a_hub: HubProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Town:
    return Town(a_hub, tmp_path, monkeypatch)


def run(study: optuna.Study, n: int = 1) -> None:
    """Run trials; each knows what the hub had before it."""
    for _ in range(n):
        study.optimize(lambda trial: (trial.suggest_float("x", 0, 1) - 0.3) ** 2, n_trials=1)
        courier = study.sampler._courier  # type: ignore[attr-defined]
        assert courier.flush(60.0)
        for _ in range(2):  # what is asked for is fetched with the first of two errands
            courier.send(lambda: None)
            assert courier.flush(60.0)
        study.sampler.flush()  # type: ignore[attr-defined]


def inbox(study: optuna.Study) -> list[str]:
    return sorted(study.sampler.agent.inbox.senders)  # type: ignore[attr-defined]


def name_of(study: optuna.Study) -> str:
    known = record.identity(study)
    assert known is not None
    return known.name


# Members


@pytest.mark.parametrize("signed", [True, False])
def test_studies_of_two_members_hear_one_another_and_forget_who_leaves(
    town: Town, signed: bool
) -> None:
    town.enrol("clinic", signed=signed)
    liver, lung = town.study("liver"), town.study()
    run(liver, 2)
    run(lung, 2)
    town.enrol("lab")
    other = town.study()
    run(other, 2)
    assert town.senders() == sorted(["clinic/liver", name_of(lung), name_of(other)])
    assert re.fullmatch("clinic/agent-[0-9a-f]{8}", name_of(lung))
    assert inbox(other) == sorted(["clinic/liver", name_of(lung)])
    town.become("clinic")
    assert liver.sampler.withdraw(liver)  # type: ignore[attr-defined]
    town.become("lab")
    run(other, 2)
    assert inbox(other) == [name_of(lung)]
    town.become("clinic")
    [membership] = Memberships().all()
    assert Member(membership, Memberships()).leave()
    town.become("lab")
    run(other, 2)
    assert inbox(other) == []
    assert town.senders() == [name_of(other)]


@pytest.mark.parametrize("signed", [True, False])
def test_a_study_goes_on_when_its_member_has_left_and_come_back(town: Town, signed: bool) -> None:
    town.enrol("clinic", signed=signed)
    study = town.study("liver")
    run(study, 2)
    [membership] = Memberships().all()
    assert Member(membership, Memberships()).leave()
    assert town.senders() == []
    town.enrol("clinic", signed=signed)
    run(study)
    town.senders()
    assert town.sequences == {"clinic/liver": 3}


def test_without_a_membership_a_study_tunes_alone_until_there_is_one(town: Town) -> None:
    town.enrol("lab")
    run(town.study("peer"), 2)
    town.become("clinic")
    study = town.study("liver")
    with pytest.warns(ExchangeWarning) as caught:
        run(study, 3)
    [text] = [str(warning.message) for warning in caught]
    assert f"run fedbo join {town.address} --invite INVITATION" in text
    assert "the study tunes alone" in text
    town.enrol("clinic")
    run(study, 3)
    assert town.senders() == ["clinic/liver", "lab/peer"]
    assert inbox(study) == ["lab/peer"]


def test_a_new_key_is_used_at_once(town: Town) -> None:
    town.enrol("clinic")
    study = town.study("liver")
    run(study, 2)
    [membership] = Memberships().all()
    Member(membership, Memberships()).rekey(KeyPair.retire())
    run(study, 2)
    town.senders()
    assert town.sequences == {"clinic/liver": 4}


def test_a_later_epoch_is_told_of_once_and_the_study_goes_on(town: Town) -> None:
    town.enrol("clinic")
    study = town.study("liver")
    run(study, 2)
    town.office.begin_epoch(town.name, FEDERATION.next_epoch(length_scale=0.7))
    with pytest.warns(ExchangeWarning, match="epoch 1 of the federation has begun") as caught:
        run(study, 3)
    assert len(caught) == 1
    assert f"fedbo join {town.address}" in str(caught[0].message)
    assert len(study.trials) == 5
    assert study.sampler.agent.federation.epoch == 0  # type: ignore[attr-defined]


def test_progress_reaches_the_hub_if_it_is_wanted(town: Town) -> None:
    town.enrol("clinic")
    shown, silent = town.study("shown", progress=True), town.study("silent")
    run(silent, 2)
    run(shown, 2)
    with town.office.engine.connect() as connection:
        [row] = connection.execute(select(schema.progress)).all()
    assert (row.sender, row.trials, row.best) == ("clinic/shown", 2, shown.best_value)
    assert [entry.agent for entry in Ledger().read() if entry.kind == "progress"] == [
        "clinic/shown"
    ] * 2


# A hub that is down


def test_a_study_that_starts_without_its_hub_catches_up(
    own_hub: HubProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    town = Town(own_hub, tmp_path, monkeypatch)
    town.enrol("clinic")
    own_hub.kill()
    study = town.study("liver")
    with pytest.warns(ExchangeWarning) as caught:
        run(study, 3)
    assert len(caught) == 1
    own_hub.start()
    town.enrol("lab")
    run(town.study("peer"), 1)
    town.become("clinic")
    run(study, 2)
    assert town.senders() == ["clinic/liver", "lab/peer"]
    assert town.sequences["clinic/liver"] == 5
    assert inbox(study) == ["lab/peer"]


def test_each_outage_is_one_warning_and_nothing_is_lost(
    own_hub: HubProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    town = Town(own_hub, tmp_path, monkeypatch)
    town.enrol("clinic")
    study = town.study("liver", every=None)
    run(study, 2)
    for _ in range(2):
        before = len(study.trials)
        own_hub.kill()
        with pytest.warns(ExchangeWarning) as caught:
            run(study, 3)
        assert len(caught) == 1
        assert "until it works again" in str(caught[0].message)
        own_hub.start()
        run(study, before)  # without a warning, and until another message was due
        town.senders()
        assert town.sequences["clinic/liver"] > before


def test_the_last_message_is_sent_when_the_study_is_run_again(
    own_hub: HubProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    town = Town(own_hub, tmp_path, monkeypatch)
    town.enrol("clinic")
    study = town.study("liver", every=3)
    run(study, 3)
    own_hub.kill()
    with pytest.warns(ExchangeWarning):
        run(study, 3)
    town.senders()
    assert town.sequences == {"clinic/liver": 3}
    own_hub.start()
    study.sampler = town.sampler(every=3)  # another process, next week
    run(study, 2)
    town.senders()
    assert town.sequences == {"clinic/liver": 6}


# fedbo publish


def publish(storage: str, to: str, *args: str, code: int = 0) -> str:
    command = ["publish", "--storage", storage, "--study", "old", "--to", to, *args]
    wide = {"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}
    result = CliRunner().invoke(cli.app, command, env=wide)
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


@pytest.fixture
def storage(tmp_path: Path) -> str:
    """Where a study of a usual sampler is."""
    address = f"sqlite:///{tmp_path}/site.db"
    study = optuna.create_study(
        study_name="old", storage=address, sampler=optuna.samplers.RandomSampler(seed=0)
    )
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=11)
    return address


def test_a_study_that_exists_is_published_with_the_file_of_the_hub(
    town: Town, storage: str
) -> None:
    town.become("clinic")
    said = publish(storage, town.address, code=1)
    assert "you are not a member" in said and f"fedbo join {town.address} --invite" in said
    town.enrol("clinic")
    assert "message that would be published" in publish(storage, town.hub.address, "--preview")
    assert town.senders() == []
    said = publish(storage, town.hub.address, "--name", "liver", "--scalars")
    assert f"The message of clinic/liver was published at {town.hub.address}." in said
    assert "scalars 2 numbers" in said
    assert town.senders() == ["clinic/liver"]
    assert "Nothing was changed." in publish(storage, town.hub.address, "--scalars")
    [shared] = exchange_at(town.address).shared(FEDERATION)
    assert (shared.sender, shared.t_n) == ("clinic/liver", 11)
    town.enrol("lab")
    newcomer = town.study()
    run(newcomer)
    assert inbox(newcomer) == ["clinic/liver"]


@pytest.mark.filterwarnings("always")
def test_a_deleted_message_is_published_again_under_another_name(town: Town, storage: str) -> None:
    town.enrol("clinic")
    publish(storage, town.address, "--name", "liver")
    [membership] = Memberships().all()
    assert Member(membership, Memberships()).leave()
    town.enrol("clinic")
    said = publish(storage, town.address, code=1)
    assert "has deleted this one, and does not take it again" in said
    assert town.senders() == []
    publish(storage, town.address, "--name", "again")
    assert town.senders() == ["clinic/again"]


@pytest.mark.filterwarnings("always")
def test_an_earlier_epoch_can_be_published_with_a_warning(
    town: Town, storage: str, tmp_path: Path
) -> None:
    town.enrol("clinic")
    FEDERATION.save(tmp_path / "federation.toml")
    later = FEDERATION.next_epoch(length_scale=0.7)
    town.office.begin_epoch(town.name, later)
    said = publish(storage, town.address, "--federation", str(tmp_path / "federation.toml"))
    assert "epoch 1 of the federation has begun" in said
    assert f"federation {later.fingerprint}, epoch 1" in publish(storage, town.address)


def test_fedbo_join_runs_two_studies_of_one_member(
    town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    town.enrol("clinic")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    Path("train_at_hub.py").write_text("def score(x):\n    return x\n")
    command = ["join", town.address, "--storage", "sqlite:///a.db", "--trials", "2"]
    for more in (["--study", "one"], ["--study", "two", "--name", "lung", "--progress"]):
        given = [*command, *more, "--objective", "train_at_hub:score"]
        result = CliRunner().invoke(cli.app, given, env={"COLUMNS": "200"})
        assert result.exit_code == 0, result.output
    first, second = town.senders()
    assert re.fullmatch("clinic/agent-[0-9a-f]{8}", first) and second == "clinic/lung"
    assert f"Peers know it as '{second}'" in " ".join(result.output.split())
    assert [entry.agent for entry in Ledger().read() if entry.kind == "progress"][-1] == second
    preview = CliRunner().invoke(cli.app, [*command[:4], "--study", "two", "--preview"])
    assert second in preview.output
    gone = CliRunner().invoke(cli.app, [*command[:4], "--study", "one", "--withdraw"])
    assert gone.exit_code == 0, gone.output
    assert town.senders() == [second]


def test_a_hub_that_is_down_is_an_error(
    own_hub: HubProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str
) -> None:
    town = Town(own_hub, tmp_path, monkeypatch)
    town.enrol("clinic")
    own_hub.kill()
    assert own_hub.address in publish(storage, town.address, code=1)
    assert Ledger().read() == []
