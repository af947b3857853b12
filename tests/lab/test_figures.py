"""The contests' measures against closed forms and brute force."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from benchmarks.contest import figures, grounds


def test_regret_is_0_at_the_best_and_1_at_the_worst() -> None:
    ground = grounds.Listed(np.array([[0.0], [0.5], [1.0]]), np.array([[2.0, 4.0, 3.0]]))
    scores = {"TS": np.array([[[2.0, 3.0, 2.0, 4.0]]])}
    assert figures.regrets(ground, [0], scores)["TS"].tolist() == [[[1.0, 0.5, 0.5, 0.0]]]


def test_ratio_is_paired() -> None:
    b = np.random.default_rng(2).lognormal(0, 2, (30, 4))
    estimate = msgspec.structs.astuple(figures.ratio(0.5 * b, b))
    assert estimate == pytest.approx((0.5, 0.5, 0.5, 30))


def test_fewer_seeds_are_compared_on_those() -> None:
    a, b = np.array([[1.0], [2.0]]), np.array([[1.0, 100.0], [2.0, 100.0]])
    assert msgspec.structs.astuple(figures.difference(a, b)) == (0, 0, 0, 2)


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


def test_runs_that_do_as_ei_alone_all_reach_the_target() -> None:
    """Though the mean of equal regrets may be less than each, by rounding."""
    ei = np.full((4, 3, 20), 0.1)
    assert figures.to_target(ei, ei) == (1.0, 1.0)
    trials, share = figures.to_target(ei, 0 * ei)
    assert np.isnan(trials) and share == 0.0


def test_delay_of_a_curve_that_lags() -> None:
    alone = 1 / np.arange(1.0, 61.0)
    late = np.concatenate([np.ones(3), alone[:-3]])
    assert figures.delay(alone, alone, 20) == (0.0, True)
    assert figures.delay(late, alone, 20) == (pytest.approx(3.0), True)
    assert figures.delay(alone, late, 20) == (pytest.approx(-3.0), True)
    assert figures.delay(np.ones(60), alone, 20) == (39.0, False)


def test_a_regret_below_the_floor_counts_as_0() -> None:
    alone, other = np.array([1.0, 0.0, 0.0]), np.array([1.0, 0.0005, 0.0005])
    assert not figures.delay(other, alone, 1)[1]
    delay, is_reached = figures.delay(other, alone, 1, floor=0.001)
    assert is_reached and delay == pytest.approx(0.0, abs=0.001)
