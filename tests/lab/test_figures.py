"""The contests' measures against closed forms and brute force."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.contest import figures, grounds


def test_regret_is_0_at_the_best_and_1_at_the_worst() -> None:
    ground = grounds.Listed(np.array([[0.0], [0.5], [1.0]]), np.array([[2.0, 4.0, 3.0]]))
    scores = {"TS": np.array([[[2.0, 3.0, 2.0, 4.0]]])}
    assert figures.regrets(ground, [0], scores)["TS"].tolist() == [[[1.0, 0.5, 0.5, 0.0]]]


def test_fewer_seeds_are_compared_on_those() -> None:
    a, b = np.array([[1.0], [2.0]]), np.array([[1.0, 100.0], [2.0, 100.0]])
    assert figures.ratio(a, b).value == 1.0


def test_trials_to_a_target_against_counting() -> None:
    rng = np.random.default_rng(4)
    regret, ei = (np.minimum.accumulate(rng.random((6, seeds, 30)), axis=-1) for seeds in (3, 5))
    needed, runs = [], 0
    for target in range(6):
        level = np.mean([run[19] for run in ei[target]])
        for run in regret[target]:
            runs += 1
            needed += [t for t, value in enumerate(run, start=1) if value <= level][:1]
    assert 0 < len(needed) < runs
    expected = (np.mean(needed), len(needed) / runs)
    assert figures.to_target(regret, ei) == pytest.approx(expected)


def test_delay_of_a_curve_that_lags() -> None:
    alone = 1 / np.arange(1.0, 61.0)
    late = np.concatenate([np.ones(3), alone[:-3]])
    assert figures.delay(alone, alone, 20) == (0.0, True)
    assert figures.delay(late, alone, 20) == (pytest.approx(3.0), True)
    assert figures.delay(alone, late, 20) == (pytest.approx(-3.0), True)
    assert figures.delay(np.ones(60), alone, 20) == (39.0, False)
