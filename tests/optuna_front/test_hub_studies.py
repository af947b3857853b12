"""Studies at a real hub: names, members who come and go, and a hub that is down."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from cli.terminal import said
from contracts.hub import HubProcess, Office
from contracts.studies import FEDERATION, inbox, run
from sqlalchemy import select

from fedbo.exchange.hub.member import Member
from fedbo.exchange.hub.memberships import Memberships
from fedbo.hub.store import schema
from fedbo.optuna import FederatedSampler
from fedbo.trust import KeyPair

pytestmark = [pytest.mark.usefixtures("patient"), pytest.mark.slow]


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

    def enrol(self, user: str) -> None:
        self.become(user)
        self.office.enrol(self.hub.address, self.name, user, KeyPair.load().public)

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
def town(a_hub: HubProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Town:
    return Town(a_hub, tmp_path, monkeypatch)


def name_of(study: optuna.Study) -> str:
    return study.sampler.agent.name  # type: ignore[attr-defined,no-any-return]


# Members


def test_studies_of_two_members_hear_one_another_and_forget_who_leaves(town: Town) -> None:
    town.enrol("clinic")
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


# fedbo study


def study_command(command: str, storage: str, to: str, *args: str, code: int = 0) -> str:
    given = ["study", command, "--storage", storage, "--study", "old", "--to", to, *args]
    return said(*given, code=code)


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
    text = study_command("publish", storage, town.address, code=1)
    assert "you are not a member" in text and f"fedbo join {town.address} --invite" in text
    town.enrol("clinic")
    text = study_command("preview", storage, town.address, "--name", "liver")
    assert "message that would be published" in text and "clinic/liver" in text
    assert town.senders() == []
    text = study_command("publish", storage, town.address, "--name", "liver")
    assert f"The message of clinic/liver was published at {town.address}." in text
    assert town.senders() == ["clinic/liver"]
    town.enrol("lab")
    newcomer = town.study()
    run(newcomer)
    assert inbox(newcomer) == ["clinic/liver"]
    town.become("clinic")
    assert "was withdrawn" in study_command("withdraw", storage, town.address)
    assert "clinic/liver" not in town.senders()


def test_only_its_member_withdraws_the_message_of_a_deleted_study(town: Town, storage: str) -> None:
    withdraw = "exchange", "withdraw", town.address, "clinic/liver", "--yes"
    town.enrol("clinic")
    study_command("publish", storage, town.address, "--name", "liver")
    town.enrol("lab")
    assert "no message of 'clinic/liver' that you can withdraw" in said(*withdraw, code=1)
    assert town.senders() == ["clinic/liver"]
    town.become("clinic")
    assert "about 11 trials was withdrawn" in said(*withdraw)
    assert town.senders() == []
