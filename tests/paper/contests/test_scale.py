"""What a million agents cost, and what they are worth: both commands, with a few thousand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from fedbo import population
from fedbo.space.axis import Value
from fedbo_paper.contests import crowds, scale
from fedbo_paper.contests.crowds import CROWDS, Crowd


def command(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(scale, "LENGTH", 5)
    monkeypatch.setattr(scale, "EVERY", 2)
    for module in (scale, population):  # so that 100 agents are more than can be heard
        monkeypatch.setattr(module, "MOST", 50)
    monkeypatch.setattr(sys, "argv", ["scale.py", *map(str, arguments)])
    scale.main()


def test_what_agents_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "cost.json"
    command(monkeypatch, "--agents", 2000, "--targets", 1, "--json", out)
    found = json.loads(out.read_text())
    assert (found["agents"], found["trials"]) == (2000, 20_000)
    assert found["message_bytes"] < 200 and 0.1 < found["population_mb"] < 0.3
    assert found["peak_mb"] > found["population_mb"]
    assert {*found["cpu_ms"]} == {
        f"{N} {rule}" for N in (1000, 2000) for rule in ("uniform", "alike")
    }
    assert "a query with 2,000 agents over one with 1,000" in capsys.readouterr().out


def test_a_study_continues_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--agents", 100, "--study", tmp_path / "cells", "--seeds", 1, "--targets", 1]
    out, drawn = tmp_path / "study.json", tmp_path / "study.png"
    command(monkeypatch, *arguments, "--json", out, "--picture", drawn)
    found = json.loads(out.read_text())
    assert [*found["crowds"]] == [*CROWDS] and drawn.read_bytes().startswith(b"\x89PNG")
    rules = {"uniform", "alike"}
    last = {"alike": set(), "one in 10": {"own kind"}, "one in 200": {"own kind"}}
    for name, arms in found["crowds"].items():
        expected = {f"100 {rule}" for rule in rules | last.get(name, {"latest"})}
        assert {*arms} == {"0 alone", "10 all"} | expected
        assert arms["0 alone"]["to alone"]["5"][0] == pytest.approx(1.0)
    each = [arms["100 alike"]["to uniform"]["5"][0] for arms in found["crowds"].values()]
    assert found["together"]["100 alike"]["to uniform"]["5"][0] == pytest.approx(np.mean(each))
    monkeypatch.setattr(scale, "play", None)  # everything is there
    command(monkeypatch, *arguments, "--json", out)
    assert json.loads(out.read_text()) == found


@pytest.mark.parametrize("name", CROWDS)
def test_a_target_is_like_some_of_its_crowd(name: str) -> None:
    """By hand: amplitudes of one kind have the correlation 1 / 1.09, and of two kinds 0."""
    crowd = Crowd(name, 0, 5000, 3)
    trait, objective = crowd.target(3)
    a = crowd._amplitudes(crowd.traits, np.random.default_rng(2))
    likeness = a @ objective.a / (np.linalg.norm(a, axis=1) * np.linalg.norm(objective.a))
    theirs = crowd.traits == trait if CROWDS[name] else crowd.traits > 0.99
    assert likeness[theirs].mean() == pytest.approx(1 / 1.09, abs=0.05)
    if CROWDS[name]:
        assert theirs.mean() == pytest.approx(1 / CROWDS[name], abs=0.02)
    else:
        before = np.abs(crowd.traits - 0.8) < 0.02
        assert likeness[before].mean() == pytest.approx(np.exp(-0.5) / 1.09, abs=0.25)
        theirs = crowd.traits > 0.4
    if CROWDS[name] != 1:
        assert likeness[~theirs].mean() == pytest.approx(0.0, abs=0.25)


def test_histories_are_those_of_agents_that_optimise() -> None:
    crowd = Crowd("one in 10", 1, crowds.BATCH + 5, 2)
    batches = [*crowd.histories()]
    assert [len(X) for X, _ in batches] == [crowds.BATCH, 5]
    X, y = batches[0]
    assert X.shape == (crowds.BATCH, crowds.TRIALS, 2) and X.dtype == np.float32
    assert X.min() >= 0.0 and X.max() <= 1.0
    assert y[:, :5].mean() > y[:, 5:].mean() + y[:, 5:].std()
    again = next(iter(crowd.histories()))
    np.testing.assert_array_equal(again[1], y)


def test_the_optimum_of_a_target_is_its_largest_value() -> None:
    _, objective = Crowd("drifting", 2, 10, 2).target(0)
    grid = np.linspace(0.0, 1.0, 101)
    values = []
    for a in grid[::4]:
        for b in grid[::4]:
            params: dict[str, Value] = {"x0": float(a), "x1": float(b)}
            values.append(objective.score(params))
    assert max(values) <= objective.optimum + 1e-6
    assert objective.optimum - max(values) < 0.1
    assert abs(np.mean(values)) < 0.1 and abs(np.std(values) - 1.0) < 0.1
