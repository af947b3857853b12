"""Contests on a tiny table, from the command to its JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbo_paper.contests import (
    compete,
    contest,
    families,
    grounds,
    hostile,
    kept,
    options,
    outside,
    screen,
    summary,
    table,
)
from fedbo_paper.contests.best_first import BEST_FIRST

pytestmark = pytest.mark.slow


def test_a_table_from_file_to_json(
    path: Path, command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    out = path.with_name("out.json")
    short = ("--seeds", 2, "--jobs", 1, "--trials", 5, "--no-outside", "--json", out)
    command(table, path, *short, "--policies", "FTS,RGPE,TAF,random,best-first")
    result = json.loads(out.read_text())
    assert result["default"] == contest.default_policy()
    assert result["targets"] == [0, 1, 2]
    assert (result["peers"], result["history"], result["together"]) == (2, 50, None)
    # EI alone and TS alone were not asked for, but always compete
    assert [*result["policies"]] == ["EI", "TS", "FTS", "RGPE", "TAF", "random", BEST_FIRST]
    regret = {name: figures["regret"]["5"] for name, figures in result["policies"].items()}
    against = {"ratio_ei": "EI", "ratio_ts": "TS", "ratio_best_first": BEST_FIRST}
    for name, figures in result["policies"].items():
        assert 0 <= regret[name] <= 1
        assert [*figures["regret"]] == ["1", "2", "3", "5"]
        for key, other in against.items():
            ratio, *_ = figures[key]["5"]  # the upper end may be infinite
            if regret[other]:
                assert ratio == pytest.approx(regret[name] / regret[other])
            else:  # a run may find the best of 40 configurations
                assert ratio is None
        difference = figures["difference_ei"]["5"][0]
        assert difference == pytest.approx(regret[name] - regret["EI"])
        assert figures["to_target"] == [None, None]  # EI alone has not made 20 trials
        assert len(figures["curve"]) == 5
        assert figures["seeds"] == 2
    assert result["policies"]["EI"]["difference_ei"]["5"] == [0, 0, 0]
    shown = capsys.readouterr()
    assert "mean normalised regret" in shown.out
    assert 0 < shown.out.index("ratio to EI alone") < shown.out.index("ratio to best-first")
    assert "tiny has 3 targets. Intervals over fewer than 10 targets" in shown.err
    # the regret of every run, from which all figures can be computed again
    assert [*result["runs"]] == [*result["policies"]]
    for name, values in result["runs"].items():
        runs = np.array(values)
        assert runs.shape == (3, 2, 5)
        assert (np.diff(runs, axis=-1) <= 0).all()
        assert runs[:, :, -1].mean() == pytest.approx(regret[name], abs=1e-6)


def test_a_contest_with_enough_targets_warns_of_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    summary.warn_of_few(10, "table")
    assert not capsys.readouterr().err


def test_figures_are_written_one_list_to_a_line(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    result = {"a": [1.5, None], "b": [[0.0, 1.0], [2.0]], "c": {}, "d": {"e": "f"}, "g": []}
    screen.finish(result | {"nan": float("nan")}, path)
    assert json.loads(path.read_text()) == result | {"nan": None}
    assert '  "b": [\n    [0.0, 1.0],\n    [2.0]\n  ],' in path.read_text()


def test_columns_are_mapped_to_the_cube_and_doubles_left_out(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(path) as arrays:
        Y, config = arrays["accuracy"], arrays["config"]
    np.savez(path, accuracy=np.hstack([Y, Y[:, :2] + 1]), config=np.vstack([config, config[:2]]))
    ground = grounds.read_table(path)
    assert ground.X.shape == (40, 3)
    assert ground.X.min(axis=0).tolist() == [0, 0, 0]
    assert ground.X.max(axis=0).tolist() == [1, 1, 0]
    np.testing.assert_array_equal(ground.Y, Y)
    assert "Left out 2 of 42 configurations: they repeat" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"accuracy": np.ones((2, 3))}, "expected also config"),
        ({"accuracy": np.ones((2, 3)), "config": np.ones((4, 1))}, "of shape"),
        ({"accuracy": np.full((2, 5), np.nan), "config": np.ones((5, 1))}, "0 finite configura"),
        ({"accuracy": np.ones((2, 5)), "config": np.eye(5)}, "0 tasks whose scores differ"),
    ],
)
def test_files_that_are_no_tables_are_refused(
    arrays: dict[str, np.ndarray], complaint: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(SystemExit, match=complaint):
        grounds.read_table(tmp_path / "bad.npz")
    with pytest.raises(SystemExit, match="cannot read"):
        grounds.read_table(tmp_path / "none.npz")


def test_agents_alone_start_at_the_same_points() -> None:
    X, Y = families.make("similar", 1, tasks=3, points=30)
    ground = grounds.Listed(X, Y)
    known = [contest.alone(ground, task, 0) for task in range(3)]
    scores = contest.play(ground, known, ["EI", "TS", "random"], 1, [0, 3], 5)
    for seed in (0, 3):
        first = [ground.score(1, params) for params in ground.initial(1, seed)]
        assert all(scores[name, 1, seed][:3] == first for name in ("EI", "TS", "random"))
        assert all(len(scores[name, 1, seed]) == 5 for name in ("EI", "TS", "random"))
    assert scores["TS", 1, 0][:3] != scores["TS", 1, 3][:3]


def test_an_agent_with_peers_has_the_common_points_as_its_design() -> None:
    ground = grounds.Listed(*families.make("similar", 1, tasks=3, points=30))
    known = [contest.alone(ground, task, 0, 5) for task in range(3)]
    policy = contest.DEFAULT()
    arrived = contest.messages(contest.federation(ground, policy), 0, known, 0)
    agent = contest.site(ground, policy, 0, 5, arrived)
    assert len(agent.inbox) == 2
    design = [ground.space.encode(params) for params in ground.initial(0, 5)]
    np.testing.assert_array_equal(agent.initial_design(), design)
    assert len(contest.run(ground, policy, arrived, 0, 5, 2)) == 2


def test_somebody_from_outside_gets_the_nearest_that_is_left() -> None:
    ground = grounds.Listed(np.array([[0.0], [0.4], [1.0]]), np.ones((1, 3)))
    tried: list[dict[str, float]] = []
    for expected in (0.4, 0.0, 1.0, 0.4):
        tried.append(ground.nearest(np.array([0.3]), tried))
        assert tried[-1] == {"x0": expected}


def test_outside_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Optuna is not installed everywhere, so random search replaces its sampler."""
    calls = []

    def play(
        ground: Any, name: str, target: int, seed: int, first: Any, trials: int
    ) -> list[float]:
        calls.append(name)
        return contest.run_random(ground, target, seed, trials)

    monkeypatch.setattr(outside, "play", play)
    ground = grounds.Listed(*families.make("similar", 2, tasks=2, points=30))
    firsts = [ground.initial(1, seed) for seed in (0, 0, 1)]
    runs = [
        compete.play_outside(ground, "Optuna GP", 1, seed, first, 4, tmp_path)
        for seed, first in zip((0, 0, 1), firsts, strict=True)
    ]
    assert len(calls) == 2 and runs[0] == runs[1] != runs[2]
    assert len({*runs[0]["Optuna GP", 1, 0]}) == 4
    compete.play_outside(ground, "Optuna GP", 1, 0, firsts[2], 4, tmp_path)
    assert len(calls) == 3  # it is told of other points


@pytest.mark.parametrize("changed", ["details", "source", "packages"])
def test_kept_scores_are_not_served_after_a_change(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    details = ["digest", 0]
    first = kept.kept(tmp_path, "tiny", 2, lambda: [0.1 + 0.2, 1e-300], *details)
    again = kept.kept(tmp_path, "tiny", 2, lambda: [0.0, 0.0], *details)
    assert first == again == [0.1 + 0.2, 1e-300]
    if changed == "source":
        monkeypatch.setattr(kept, "source_digest", lambda *_: "other code")
    elif changed == "packages":
        monkeypatch.setattr(kept, "library_versions", lambda *_: {"numpy": "9.9"})
    else:
        details[1] = 1
    assert kept.kept(tmp_path, "tiny", 2, lambda: [3.0, 4.0], *details) == [3.0, 4.0]


@pytest.mark.parametrize("name", outside.SAMPLERS)
def test_outside_samplers_try_each_configuration_once(name: str) -> None:
    pytest.importorskip(outside.SAMPLERS[name])
    ground = grounds.Listed(*families.make("similar", 2, tasks=2, points=30))
    first = ground.initial(1, 0)
    scores = outside.play(ground, name, 1, 0, first, 8)
    assert scores == outside.play(ground, name, 1, 0, first, 8)
    assert scores[:3] == [ground.score(1, params) for params in first]
    assert len(scores) == len({*scores}) == 8
    assert outside.play(ground, name, 1, 0, first, 2) == scores[:2]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botorch", None)
    ground = grounds.Listed(*families.make("similar", 1, tasks=2, points=20))
    with pytest.raises(SystemExit, match="needs botorch, which is not installed: run in the env"):
        outside.play(ground, outside.BOTORCH, 0, 0, [], 1)
    with pytest.raises(ValueError, match="sampler is 'GP', expected one of Optuna TPE"):
        outside.play(ground, "GP", 0, 0, [], 1)


def test_without_optuna_its_samplers_are_left_out_and_only_refused_if_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(outside, "is_installed", lambda name: False)
    parser = options.contest_parser("")
    options.add_policies(parser)
    options.add_peers(parser)
    assert not {*outside.SAMPLERS} & {*options.chosen(parser.parse_args([]))}
    said = capsys.readouterr().err
    assert "BoTorch logEI needs botorch, which is not installed" in said and "make bench" in said
    with pytest.raises(SystemExit, match="make bench"):
        options.chosen(parser.parse_args(["--policies", "TS,Optuna GP"]))
    with pytest.raises(SystemExit):
        parser.parse_args(["--policies", "TSS"])
    assert "'TSS' is unknown, expected some of EI, TS, FTS" in capsys.readouterr().err


def test_hostile_peers() -> None:
    X, Y = families.make("similar", 2, tasks=5, points=60)
    ground = grounds.Listed(X, Y)
    met: Any = {sort: [[sort]] * 5 for sort in ("honest", "negated", "unrelated")}
    half = hostile.peers("half", ground, met, 2, 0)
    assert sum(history == ["negated"] for n, history in enumerate(half) if n != 2) == 2
    worst = int(Y[2].argmin())
    for history in hostile.peers("worst", ground, met, 2, 0):
        best, _ = max(history, key=lambda trial: trial[1])
        assert ground.row(best) == worst
    agreed = contest.federation(ground, contest.DEFAULT())
    honest = contest.message(agreed, 1, contest.alone(ground, 1, 0), 0)
    noise = hostile.only_noise(honest, np.random.default_rng(0))
    agreed.check(noise)
    assert np.linalg.norm(noise.nu) == pytest.approx(np.linalg.norm(honest.nu), rel=1e-5)
    assert not np.allclose(noise.nu, honest.nu)


def test_delays_and_verdicts_are_against_ei_alone() -> None:
    """An agent that does as EI alone has no delay."""
    ei = np.broadcast_to(0.9 ** np.arange(50), (4, 2, 50))
    found = hostile.figures(ei, ei)
    assert [found["delay"][n].value for n in ("5", "10", "20")] == [0, 0, 0]
    assert found["ratio_ei"]["50"].value == pytest.approx(1)
    verdicts = hostile.verdicts({"svm": {"noise": found}})
    assert {name: each["holds"] for name, each in verdicts.items()} == dict.fromkeys(
        ("mean delay", "longest delay", "ratio at 50"), True
    )
    late = hostile.figures(np.minimum(1.2 * ei, 1.0), ei)
    verdicts = hostile.verdicts({"svm": {"half": late}})
    assert not verdicts["half hostile, ratio at 10 and 20"]["holds"]


@pytest.mark.slow
def test_hostile_from_command_to_json(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in {"DIMENSIONS": (1,), "INSTANCES": 1, "TASKS": 3}.items():
        monkeypatch.setattr(hostile, name, value)
    out = tmp_path / "out.json"
    short = ("--seeds", 1, "--jobs", 1, "--trials", 10, "--ground", "synthetic")
    command(hostile, *short, "--json", out, "--family", "noise,worst,half")
    result = json.loads(out.read_text())
    assert [*result["grounds"]["synthetic"]] == ["worst", "noise", "half"]
    for figures in result["grounds"]["synthetic"].values():
        assert {*figures["delay"]} == {"5", "10"}
        point, low, high = figures["delay"]["5"]
        assert low <= high and -5 <= point <= 9
        expected = figures["regret"]["5"] / figures["solo_ei"]["5"]
        assert figures["ratio_ei"]["5"][0] == pytest.approx(expected)
    assert [*result["runs"]["synthetic"]] == ["EI", "worst", "noise", "half"]
    assert np.shape([*result["runs"]["synthetic"].values()]) == (4, 3, 1, 10)
    assert {*result["verdicts"]} >= {"mean delay", "longest delay"}
    assert "synthetic has 3 targets" in (shown := capsys.readouterr()).err
    assert "DOES NOT HOLD" in (text := shown.out) or "holds" in text
