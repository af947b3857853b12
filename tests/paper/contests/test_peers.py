"""Which peers a run meets, and what they know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo_paper.contests import contest, grounds, har, table

SHORT = ("--seeds", 2, "--jobs", 1, "--trials", 5, "--no-outside")


def test_a_run_meets_random_peers_but_never_itself(ground: grounds.Listed) -> None:
    assert contest.peers(ground, 2, seed=0) == [0, 1, 3, 4]
    assert contest.peers(ground, 2, seed=0, most=4) == [0, 1, 3, 4]
    met = [contest.peers(ground, 2, seed, most=2) for seed in range(20)]
    assert all(len({*each}) == 2 and 2 not in each for each in met)
    assert {n for each in met for n in each} == {0, 1, 3, 4}
    assert met == [contest.peers(ground, 2, seed, most=2) for seed in range(20)]


def test_a_short_history_is_the_beginning_of_a_long_one(ground: grounds.Listed) -> None:
    assert contest.alone(ground, 1, 0, 4) == contest.alone(ground, 1, 0, 7)[:4]


def test_all_policies_meet_the_same_peers(
    ground: grounds.Listed, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: dict[tuple[str, int], list[str]] = {}

    def run(
        _: Any, policy: fedbo.Policy, received: list[fedbo.Message], target: int, seed: int, n: int
    ) -> list[float]:
        met[type(policy).__name__, seed] = [message.sender for message in received]
        return [0.0] * n

    monkeypatch.setattr(contest, "run", run)
    known, default = [contest.alone(ground, n, 0, 3) for n in range(5)], contest.default_policy()
    contest.play(ground, known, ["EI", "TS", "FTS", "RGPE", default, "random"], 0, [0, 3, 6], 2, 2)
    for seed in (0, 3, 6):
        expected = [f"task-{n}" for n in contest.peers(ground, 0, seed, 2)]
        assert met["FTS", seed] == met["RGPE", seed] == met[default, seed] == expected
        assert met["EI", seed] == met["TS", seed] == []


@pytest.mark.slow
def test_few_peers_with_short_histories_from_command_to_json(
    path: Path, command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    out = path.with_name("out.json")
    few = ("--peers", 1, "--history", 2, "--policies", "FTS")
    command(table, path, *SHORT, *few, "--json", out)
    result = json.loads(out.read_text())
    assert (result["peers"], result["history"], result["together"]) == (1, 2, None)
    assert "tiny, 1 peer with 2 trials each: mean" in capsys.readouterr().out
    assert np.shape(result["runs"]["FTS"]) == (3, 2, 5)


def test_more_peers_than_there_are(path: Path, command: Any) -> None:
    with pytest.raises(SystemExit, match="--peers is 3, but each of the 3 tasks has 2 others"):
        command(table, path, *SHORT, "--peers", 3, "--policies", "FTS")


@pytest.mark.parametrize(
    ("module", "arguments", "complaint"),
    [
        (table, ("x.npz", "--history", 51), "'51' is not a whole number from 1 to 50"),
        (table, ("x.npz", "--history", 0), "'0' is not a whole number from 1 to 50"),
        (table, ("x.npz", "--together", 1), "--together is 1, expected 2 or more sites"),
        (table, ("x.npz", "--together", 4, "--peers", 2), "--together and --peers exclude"),
        (table, ("x.npz", "--together", 4, "--history", 50), "--together and --history exclude"),
        (table, ("x.npz", "--together", 4, "--policies", "best-first"), "excludes best-first"),
        (har, ("--together", 4, "--policies", "TPE-told-the-best"), "excludes TPE-told-the-best"),
        (table, ("x.npz", "--together", 4, "--policies", "Optuna GP"), "excludes Optuna GP"),
    ],
)
def test_options_that_make_no_sense(
    module: Any,
    arguments: tuple[object, ...],
    complaint: str,
    command: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="2"):
        command(module, *arguments)
    assert complaint in capsys.readouterr().err
