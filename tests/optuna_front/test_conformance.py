"""Optuna's own conformance suite, without peers and with peers in every space."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)

from fedbo import Agent, Federation, Message
from fedbo.exchange import Exchange, FolderExchange, Ledger
from fedbo.model.summary import quantise
from fedbo.optuna import FederatedSampler

pytestmark = pytest.mark.usefixtures("patient")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


class Strangers(Exchange):
    """Five peers for whatever federation it is asked about, who know nothing but are polite."""

    address = "nowhere"

    def __init__(self) -> None:
        self.asked = 0
        self.published: list[Message] = []

    def publish(self, message: Message) -> bool:
        self.published.append(message)
        return True

    def fetch(self, federation: Federation) -> list[Message]:
        self.asked += 1
        return [_message(federation, i) for i in range(5)]

    def withdraw(self, *_: Any, **__: Any) -> bool:
        return False


def _message(federation: Federation, i: int) -> Message:
    rng = np.random.default_rng(i)
    levels, scales = quantise(rng.standard_normal((1, federation.coordinates)), rng)
    counts = np.bincount(
        rng.integers(len(federation.cells), size=10), minlength=len(federation.cells)
    )
    return Message.of_compact(
        levels[0],
        scales[0],
        counts,
        fingerprint=federation.fingerprint,
        epoch=federation.epoch,
        sender=f"stranger-{i}",
        sequence=1,
        t_n=10,
    )


class TestAlone(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return FederatedSampler


@pytest.mark.filterwarnings("ignore:parameter .* was .*, but trial")  # the study is told so
class TestWithPeers(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self, tmp_path: Path) -> Callable[[], BaseSampler]:
        ledger = Ledger(tmp_path / "releases.jsonl")
        return lambda: FederatedSampler(exchange=Strangers(), seed=0, ledger=ledger)


def test_studies_of_one_space_hear_each_other(tmp_path: Path) -> None:
    def objective(trial: optuna.Trial) -> float:
        choice = trial.suggest_categorical("choice", [None, 1, True, "a"])
        return trial.suggest_float("x", -1, 1) ** 2 + (choice is None)

    agents: list[Agent | None] = []
    for _ in range(3):
        exchange, ledger = FolderExchange(tmp_path / "exchange"), Ledger(tmp_path / "log.jsonl")
        sampler = FederatedSampler(exchange=exchange, ledger=ledger)
        optuna.create_study(sampler=sampler).optimize(objective, n_trials=4)
        agents.append(sampler.agent)
        assert sampler._courier is not None and sampler._courier.flush(60.0)
    assert [len(agent.inbox) for agent in agents if agent is not None] == [0, 1, 2]


def test_the_suite_really_has_peers(tmp_path: Path) -> None:
    strangers = Strangers()
    sampler = FederatedSampler(
        exchange=strangers, seed=0, every=1, ledger=Ledger(tmp_path / "releases.jsonl")
    )
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1) ** 2, n_trials=10)
    sources = {t.system_attrs.get("fedbo:query", {}).get("source") for t in study.trials}
    assert "pool" in sources and strangers.asked and sampler._courier.flush(60.0)
    assert strangers.published[-1].sequence == 10
