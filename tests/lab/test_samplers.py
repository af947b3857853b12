"""Contests of samplers: alone, with constraints, and with own parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.contest import own, samplers
from benchmarks.contest.objectives import CONSTRAINED, OBJECTIVES
from fedbo_paper.data import MissingData


@pytest.mark.parametrize("title", [*OBJECTIVES, *CONSTRAINED])
def test_every_problem_can_be_tuned(title: str) -> None:
    objective = (OBJECTIVES | CONSTRAINED)[title]
    try:
        study = samplers.play(objective, samplers.RANDOM, seed=0, instance=1, trials=4)
    except MissingData as error:
        pytest.skip(str(error))
    values, margins, seconds = np.reshape(study, (3, 4))
    assert np.isfinite(values).all() and np.ptp(values) > 0
    assert np.isfinite(margins).all() if title in CONSTRAINED else np.isinf(margins).all()
    assert (np.diff(seconds) > 0).all()


def test_regret_counts_feasible_trials_only() -> None:
    values = np.array([[[3.0, 1.0, 2.0]], [[5.0, 4.0, 3.0]]])  # of two samplers, one seed
    margins = np.array([[[-1.0, -1.0, 0.0]], [[1.0, -1.0, 1.0]]])
    regret = samplers.regrets(values, margins, [samplers.FEDERATED, samplers.RANDOM])
    assert regret[samplers.FEDERATED].tolist() == [[1.5, 1.5, 0.0]]  # best 2, median 4, worst 5
    assert regret[samplers.RANDOM].tolist() == [[1.5, 1.5, 0.5]]


def test_instances_where_all_is_equal_are_left_out() -> None:
    values = np.array([[[3.0, 3.0], [1.0, 0.0]], [[3.0, 3.0], [1.0, 2.0]]])  # two seeds
    margins = np.ones_like(values)
    regret = samplers.regrets(values, margins, [samplers.FEDERATED, samplers.RANDOM])
    assert [r.tolist() for r in regret.values()] == [[[2 / 3, 0.0]], [[2 / 3, 2 / 3]]]


def test_constrained_contest(
    command: Any, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    short = ("--constrained", "--only", "two", "--samplers", "TPESampler", "--seeds", 2)
    command(samplers.main, *short, "--trials", 12, "--jobs", 1, "--cache", tmp_path)
    assert "feasible" in capsys.readouterr().out


def test_own_contest(command: Any, capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    ground = own.GROUNDS["shards"]._replace(
        tasks=2, error=lambda task, **params: params["subsample"]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(own.GROUNDS, "shards", ground)
        short = ("--grounds", "shards", "--seeds", 1, "--trials", 5, "--jobs", 1)
        command(own.main, *short, "--cache", tmp_path)
    assert "one model / TPE beside, together" in capsys.readouterr().out
