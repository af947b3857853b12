"""Two sites that should help one another, and do not fit: each is told why."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from fedbo.exchange import ExchangeWarning
from fedbo.optuna import FederatedSampler

pytestmark = pytest.mark.usefixtures("patient")


def run(folder: Path, name: str, high: float, trials: int = 3) -> FederatedSampler:
    """Run a study without a federation file; its parameter reaches up to ``high``."""
    sampler = FederatedSampler(exchange=folder, name=name, seed=0)
    study = optuna.create_study(sampler=sampler)
    for _ in range(trials):
        study.optimize(lambda trial: trial.suggest_float("lr", 0, high), n_trials=1)
        sampler.flush(60.0)
    return sampler


def test_a_different_range_is_reported_though_there_is_no_federation_file(tmp_path: Path) -> None:
    run(tmp_path / "exchange", "site-a", high=1.0)
    with pytest.warns(ExchangeWarning) as caught:
        run(tmp_path / "exchange", "site-b", high=2.0)
    [text] = [str(warning.message) for warning in caught]
    assert text.startswith("1 message of another federation is here")
    assert "the parameters, their ranges or choices, or the direction differ" in text
    assert "without a file, the same parameters and ranges" in text
    assert caught[0].filename == __file__


def test_the_same_range_is_enough_without_a_federation_file(tmp_path: Path) -> None:
    run(tmp_path / "exchange", "site-a", high=1.0)
    sampler = run(tmp_path / "exchange", "site-b", high=1.0)
    assert sampler.agent is not None
    assert sampler.agent.inbox.senders == ["site-a"]
