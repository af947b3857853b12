"""The portfolio of configurations, against brute force."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbo_paper.contests import contest, grounds, portfolio, table


def test_each_configuration_lowers_the_mean_of_the_least_regrets_most() -> None:
    R = np.random.default_rng(0).random((8, 12))
    chosen = portfolio.choose(R, 3)
    for k in range(3):
        means = {
            row: R[:, [*chosen[:k], row]].min(axis=1).mean()
            for row in range(12)
            if row not in chosen[:k]
        }
        assert chosen[k] == min(means, key=means.__getitem__)


def test_no_configuration_is_chosen_twice() -> None:
    assert sorted(portfolio.choose(np.zeros((2, 5)), 3)) == [0, 1, 2]


def test_a_peers_regret_is_known_where_it_was_and_predicted_elsewhere() -> None:
    X = np.linspace(0, 1, 41)[:, None]
    Y = -((X[:, 0] - 0.3) ** 2)[None]
    ground = grounds.Listed(X, Y)
    rows = [*range(0, 41, 4)]
    history = [(ground.params(row), ground.score(0, ground.params(row))) for row in rows]
    regret = portfolio.regrets(ground, history)
    told = Y[0, rows]
    np.testing.assert_allclose(regret[rows], (told.max() - told) / np.ptp(told))
    assert regret[rows].min() == 0 and regret[rows].max() == 1
    truth = (told.max() - Y[0]) / np.ptp(told)
    assert np.abs(regret - truth).max() < 0.1


def test_a_peer_with_equal_scores_prefers_nothing(ground: grounds.Listed) -> None:
    assert not portfolio.regrets(ground, [(ground.params(3), 0.5)]).any()


def test_three_configurations_replace_the_initial_points(ground: grounds.Listed) -> None:
    R = np.random.default_rng(1).random((5, 30))
    met = contest.peers(ground, 2, 0, 2)
    scores = portfolio.play(ground, R, 2, 0, 4, 2)[portfolio.NAME, 2, 0]
    assert len(scores) == 7
    assert scores[:3] == [float(ground.Y[2, row]) for row in portfolio.choose(R[met], 3)]
    strangers = [n for n in range(5) if n not in met]
    R[strangers] = 100 * np.random.default_rng(2).random((3, 30))
    assert portfolio.play(ground, R, 2, 0, 4, 2)[portfolio.NAME, 2, 0] == scores


@pytest.mark.slow
def test_it_says_in_every_table_that_it_shares_trials(
    path: Path, command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    out = path.with_name("out.json")
    short = ("--seeds", 2, "--jobs", 1, "--evaluations", 5, "--history", 5, "--json", out)
    command(table, path, *short, "--policies", "portfolio")
    result = json.loads(out.read_text())
    assert [*result["policies"]] == ["EI", "TS", "portfolio (shares trials)"]
    assert np.shape(result["runs"]["portfolio (shares trials)"]) == (3, 2, 8)
    text = capsys.readouterr().out
    assert text.count("portfolio (shares trials)") == text.count("policy ")
