"""Optuna's own conformance suite, without peers and with peers in every space."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import optuna
import pytest
from optuna.samplers import BaseSampler

from fedbo import Federation, Message, trust
from fedbo.federation.shared import Shared
from fedbo.model.summary import quantise
from fedbo.optuna import FederatedSampler
from fedbo.optuna.study import Asked, Mirror, read_origin
from fedbo.trust import Trusted

suite = pytest.importorskip("optuna.testing.pytest_samplers", reason="Optuna 4.8 brought it")


def _stranger(federation: Federation, i: int) -> Trusted:
    """The message of a peer who knows nothing but is polite."""
    rng = np.random.default_rng(i)
    levels, scales = quantise(rng.standard_normal((1, Shared.of(federation).coordinates)), rng)
    cells = len(Shared.of(federation).cells)
    counts = np.bincount(rng.integers(cells, size=10), minlength=cells)
    header = {"sender": f"stranger-{i}", "sequence": 1, "t_n": 10}
    header |= {"fingerprint": federation.fingerprint, "basis": Shared.of(federation).basis.digest}
    message = Message.of_compact(levels[0], scales[0], counts, **header)
    return trust.open(federation, None, message)


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every agent has five peers, whatever the space of its study."""
    ask = Mirror.ask

    def ask_with_peers(mirror: Mirror, number: int) -> Asked:
        mirror.hear([_stranger(mirror.agent.federation, i) for i in range(5)])
        return ask(mirror, number)

    monkeypatch.setattr(Mirror, "ask", ask_with_peers)


class TestAlone(
    suite.BasicSamplerTestCase, suite.RelativeSamplerTestCase, suite.SingleOnlySamplerTestCase
):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return FederatedSampler


@pytest.mark.usefixtures("strangers")
class TestWithPeers(
    suite.BasicSamplerTestCase, suite.RelativeSamplerTestCase, suite.SingleOnlySamplerTestCase
):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: FederatedSampler(seed=0)


@pytest.mark.usefixtures("strangers")
def test_the_suite_really_has_peers() -> None:
    study = optuna.create_study(sampler=FederatedSampler(seed=0))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1) ** 2, n_trials=10)
    origins = [read_origin(trial) for trial in study.trials]
    assert "pool" in {origin.source for origin in origins if origin}
