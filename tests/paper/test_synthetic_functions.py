"""The functions and peers of section 5.1 against their description in appendix D."""

from __future__ import annotations

import numpy as np
import pytest

from fedbo_paper.problems.synthetic import AGENTS, Synthetic, SyntheticTasks

SMALL = Synthetic(size=60, length_scale=0.1)


@pytest.fixture(scope="module")
def tasks() -> SyntheticTasks:
    return Synthetic().tasks()


def test_functions_have_the_covariance_of_the_se_kernel() -> None:
    draws = 5_000
    tasks = SMALL.tasks()
    F = np.array([tasks.unscaled(target) for target in range(draws)])
    x = np.linspace(0, 1, SMALL.size)
    K = np.exp(-0.5 * ((x[:, None] - x) / SMALL.length_scale) ** 2)
    standard_error = np.sqrt((1.0 + K**2) / draws)  # of an entry, for normal numbers of mean 0
    z = (F.T @ F / draws - K) / standard_error
    assert np.abs(z).max() < 5.0
    assert np.abs(F.mean(axis=0)).max() < 5.0 / np.sqrt(draws)


def test_a_function_depends_on_its_index_only(tasks: SyntheticTasks) -> None:
    forwards = [tasks.function(target).copy() for target in range(5)]
    other = Synthetic().tasks()
    for target in reversed(range(5)):
        np.testing.assert_array_equal(other.function(target), forwards[target])
    assert np.abs(forwards[0] - forwards[1]).max() > 0.1


def test_a_peer_is_d_n_away_everywhere_on_either_side(tasks: SyntheticTasks) -> None:
    away = [tasks.peer_function(3, n, 1.2) - tasks.function(3) for n in range(AGENTS)]
    np.testing.assert_allclose(np.abs(away), 1.2, atol=1e-12)
    heads = np.array(away) > 0
    n = heads.size
    assert abs(heads.mean() - 0.5) < 4 * 0.5 / np.sqrt(n)
    repeated = (heads[:, 1:] == heads[:, :-1]).mean()  # neighbours are independent
    assert abs(repeated - 0.5) < 4 * 0.5 / np.sqrt(n)
    assert abs((heads[1:] == heads[:-1]).mean() - 0.5) < 4 * 0.5 / np.sqrt(n)  # so are peers


def test_observations_of_peers_have_the_noise_and_lie_anywhere(tasks: SyntheticTasks) -> None:
    rows, noise = [], []
    for n in range(AGENTS):
        g_n = tasks.peer_function(3, n, 0.02)
        observed = tasks.observed(3, n, 100, 0.02, seed=5)
        at = [round(params["x"] * 999) for params, _ in observed]
        assert len(set(at)) == 100
        rows += at
        noise += [score - g_n[i] for i, (_, score) in zip(at, observed, strict=True)]
    assert np.var(noise) == pytest.approx(0.01, rel=4 * np.sqrt(2 / len(noise)))
    assert abs(np.mean(noise)) < 4 * 0.1 / np.sqrt(len(noise))
    counts = np.histogram(rows, bins=10, range=(0, 1000))[0]
    assert np.abs(counts - 500).max() < 4 * np.sqrt(500)


def test_runs_that_differ_in_t_n_or_d_n_only_are_paired(tasks: SyntheticTasks) -> None:
    many = tasks.observed(3, 7, 100, 0.02, seed=5)
    assert tasks.observed(3, 7, 40, 0.02, seed=5) == many[:40]
    unlike = tasks.observed(3, 7, 100, 1.2, seed=5)
    assert [params for params, _ in unlike] == [params for params, _ in many]
    gaps = np.subtract([y for _, y in unlike], [y for _, y in many])
    np.testing.assert_allclose(np.abs(gaps), 1.18, atol=1e-12)


def test_the_objective_is_f_with_noise_from_its_seed(tasks: SyntheticTasks) -> None:
    objective = tasks.objective(2, seed=1)
    params = tasks.points[123]
    assert objective.truth(params) == tasks.function(2)[123]
    assert max(map(objective.truth, tasks.points)) == objective.optimum
    scores = np.array([objective(params) for _ in range(4000)])
    assert scores.mean() == pytest.approx(objective.truth(params), abs=4 * 0.1 / np.sqrt(4000))
    assert scores.var() == pytest.approx(0.01, rel=4 * np.sqrt(2 / 4000))
    again = tasks.objective(2, seed=1)
    assert [again(params) for _ in range(3)] == scores[:3].tolist()
    assert tasks.objective(2, seed=2)(params) != scores[0]
