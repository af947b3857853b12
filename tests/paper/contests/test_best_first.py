"""What people would do instead, against brute force."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo_paper.contests import best_first, contest, grounds, outside, table
from fedbo_paper.contests.best_first import BEST_FIRST


def test_each_setting_adds_most_to_the_support() -> None:
    X = np.random.default_rng(0).random((12, 2))
    chosen = best_first.most_supported(X, 3)

    def support(rows: list[int]) -> float:
        distance = np.linalg.norm(X[:, None] - X[rows], axis=-1)
        return float(np.exp(-((distance / (0.2 * np.sqrt(2))) ** 2) / 2).max(axis=1).sum())

    for k in range(3):
        left = [row for row in range(12) if row not in chosen[:k]]
        assert chosen[k] == max(left, key=lambda row: support([*chosen[:k], row]))


def test_the_same_setting_is_chosen_once() -> None:
    assert best_first.most_supported(np.array([[0.5], [0.1], [0.5], [0.1], [0.5]]), 3) == [0, 1]


def test_common_initial_points_fill_up(ground: grounds.Listed) -> None:
    initial = ground.initial(0, 0)
    told = [[(initial[1], 2.0), (ground.params(3), 1.0)]] * 4
    first = best_first.first_settings(ground, told, initial)
    assert first == [initial[1], initial[0], initial[2]]


def test_peers_that_minimise_tell_their_lowest_score() -> None:
    class Valley(grounds.Boxed):
        def score(self, task: int, params: grounds.Params) -> float:
            return 0.0

    space = fedbo.Space({"x": fedbo.Float(1, 3)}, direction="minimize")
    ground = Valley(space, 2, "valley", "")
    told = [[({"x": 1.5}, 0.2), ({"x": 2.5}, 0.1)], [({"x": 1.2}, 0.3)]]
    first = best_first.first_settings(ground, told, ground.initial(0, 0))
    assert first == [{"x": 2.5}, {"x": 1.2}, ground.initial(0, 0)[0]]


def test_a_run_tries_them_first_and_tells_of_no_stranger(ground: grounds.Listed) -> None:
    known = [contest.alone(ground, task, 0, 6) for task in range(5)]
    met = contest.peers(ground, 2, 0, 2)
    scores = contest.play(ground, known, [BEST_FIRST], 2, [0], 5, 2)[BEST_FIRST, 2, 0]
    first = best_first.first_settings(ground, [known[n] for n in met], ground.initial(2, 0))
    assert len(scores) == 5
    assert scores[:3] == [ground.score(2, params) for params in first]
    for n in {0, 1, 3, 4} - {*met}:
        known[n] = [(params, -score) for params, score in known[n]]
    assert contest.play(ground, known, [BEST_FIRST], 2, [0], 5, 2)[BEST_FIRST, 2, 0] == scores


@pytest.mark.slow
def test_tpe_is_told_the_same_settings(path: Path, command: Any) -> None:
    pytest.importorskip("optuna")
    out = path.with_name("out.json")
    short = ("--seeds", 2, "--jobs", 1, "--trials", 5, "--history", 5, "--json", out)
    policies = "best-first,TPE-told-the-best"
    command(table, path, *short, "--policies", policies, "--cache", path.with_name("cache"))
    result = json.loads(out.read_text())
    assert [*result["policies"]] == ["EI", "TS", BEST_FIRST, outside.TOLD]
    runs = {name: np.array(values) for name, values in result["runs"].items()}
    np.testing.assert_array_equal(runs[BEST_FIRST][..., :3], runs[outside.TOLD][..., :3])
    assert result["policies"][outside.TOLD]["ratio_best_first"]["3"][0] in (1, None)
