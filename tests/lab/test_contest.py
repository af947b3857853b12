"""Contests on a tiny table: who meets whom, who knows what when, from the command to its JSON."""

from __future__ import annotations

import doctest
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo
from benchmarks.contest import compare, grounds, outside, peers, picture, runs, stored
from benchmarks.contest.runs import BEST_FIRST
from fedbo_paper.harness import store


@pytest.mark.parametrize("name", ["figures", "grounds", "peers", "stored", "terminal"])
def test_examples(name: str) -> None:
    assert doctest.testmod(import_module(f"benchmarks.contest.{name}")).failed == 0


def test_a_table_from_file_to_json_and_once_more_from_stored_runs(
    path: Path, command: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = path.with_name("out.json")
    short = ("--seeds", 2, "--jobs", 1, "--trials", 5, "--history", 8, "--no-outside")
    short += ("--cache", path.parent, "--json", out)
    command(compare.table, path, *short, "--policies", "FTS,RGPE,random,best-first")
    result = json.loads(out.read_text())
    assert result["targets"] == [0, 1, 2]
    assert (result["peers"], result["history"]) == (2, 8)
    # EI alone and TS alone were not asked for, but always compete
    assert [*result["policies"]] == ["EI", "TS", "FTS", "RGPE", "random", BEST_FIRST]
    regret = {name: policy["regret"]["5"] for name, policy in result["policies"].items()}
    for name, policy in result["policies"].items():
        assert 0 <= regret[name] <= 1 and len(policy["curve"]) == 5 and policy["seeds"] == 2
        assert [*policy["regret"]] == ["1", "2", "3", "5"]
        for key, other in compare.AGAINST.items():
            ratio, *_ = policy[key]["5"]  # the upper end may be infinite
            assert ratio == pytest.approx(regret[name] / regret[other])
        assert policy["to_target"] == [None, None]  # EI alone has not made 20 trials
    for name, values in result["runs"].items():  # from which all figures can be computed again
        assert np.shape(values) == (3, 2, 5)
        assert (np.diff(values, axis=-1) <= 0).all()
        assert np.mean(values, axis=(0, 1))[-1] == pytest.approx(regret[name], abs=1e-6)
    assert "Intervals over fewer than 10 targets" in capsys.readouterr().err
    monkeypatch.setattr(runs, "play", lambda *_: pytest.fail("a finished run runs again"))
    command(compare.table, path, *short, "--policies", "FTS,RGPE,best-first")
    assert json.loads(out.read_text())["policies"]["RGPE"] == result["policies"]["RGPE"]


def test_a_policy_of_ones_own(
    path: Path, command: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(compare, "COMPETITORS", {**compare.COMPETITORS})
    monkeypatch.setattr(runs, "POLICIES", {**runs.POLICIES})
    mine = Path("mine_in_a_contest.py")
    mine.write_text("import fedbo\n\n\nclass Mine(fedbo.EI, frozen=True):\n    pass\n\n\nX = 1\n")
    short = ("--seeds", 1, "--jobs", 1, "--trials", 5, "--history", 8, "--cache", "runs")
    name = f"{mine.stem}:Mine"
    command(compare.table, path, *short, "--policies", name, "--json", "out.json")
    result = json.loads(Path("out.json").read_text())
    assert result["runs"][name] == result["runs"]["EI"]  # whose queries it makes
    assert picture.drawn({"own": result}).axes[0].get_legend_handles_labels()[1] == [
        "EI alone",
        name,
    ]
    source = (*stored.FEDBO, mine.stem)  # a stored run is of this file, and of no other
    assert store.source_digest(*source) != store.source_digest(*stored.FEDBO)
    for wrong in (f"{mine.stem}:Your", f"{mine.stem}:X", "not_a_module:Mine"):
        with pytest.raises(SystemExit):
            command(compare.table, path, "--policies", wrong)
        assert f"{wrong} cannot compete" in " ".join(capsys.readouterr().err.split())


def test_columns_are_mapped_to_the_cube_and_doubles_left_out(path: Path) -> None:
    with np.load(path) as arrays:
        Y, config = arrays["accuracy"], arrays["config"]
    np.savez(path, accuracy=np.hstack([Y, Y[:, :2] + 1]), config=np.vstack([config, config[:2]]))
    ground = grounds.read_table(path)
    assert ground.X.shape == (40, 3)
    assert (ground.X.min(axis=0).tolist(), ground.X.max(axis=0).tolist()) == ([0] * 3, [1, 1, 0])
    np.testing.assert_array_equal(ground.Y, Y)


@pytest.mark.parametrize("changed", ["details", "source", "packages"])
def test_stored_scores_are_not_served_after_a_change(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    details = ["digest", 0]
    first = stored.stored(tmp_path, "tiny", 2, lambda: [0.1 + 0.2, 1e-300], *details)
    again = stored.stored(tmp_path, "tiny", 2, lambda: [0.0, 0.0], *details)
    assert first == again == [0.1 + 0.2, 1e-300]
    if changed == "source":
        monkeypatch.setattr(store, "source_digest", lambda *_: "other code")
    elif changed == "packages":
        monkeypatch.setattr(store, "library_versions", lambda *_: {"numpy": "9.9"})
    else:
        details[1] = 1
    assert stored.stored(tmp_path, "tiny", 2, lambda: [3.0, 4.0], *details) == [3.0, 4.0]


# Peers


def test_a_run_meets_random_peers_but_never_itself(ground: grounds.Listed) -> None:
    assert peers.met(ground, 2, seed=0) == peers.met(ground, 2, seed=0, most=4) == [0, 1, 3, 4]
    met = [peers.met(ground, 2, seed, most=2) for seed in range(20)]
    assert all(len({*tasks}) == 2 and 2 not in tasks for tasks in met)
    assert {n for tasks in met for n in tasks} == {0, 1, 3, 4}


def test_agents_alone_start_at_the_common_points(ground: grounds.Listed) -> None:
    for seed in (0, 3):
        first = [ground.score(1, params) for params in ground.initial(1, seed)]
        for name in ("EI", "TS", "random"):
            scores = runs.solitary(ground, name, 1, seed, 5).compute()
            assert scores[:3] == first and len(scores) == 5


def test_each_setting_adds_most_to_the_support() -> None:
    X = np.random.default_rng(0).random((12, 2))
    chosen = peers.most_supported(X, 3)

    def support(rows: list[int]) -> float:
        distance = np.linalg.norm(X[:, None] - X[rows], axis=-1)
        return float(np.exp(-((distance / (0.2 * np.sqrt(2))) ** 2) / 2).max(axis=1).sum())

    for k in range(3):
        left = [row for row in range(12) if row not in chosen[:k]]
        assert chosen[k] == max(left, key=lambda row: support([*chosen[:k], row]))
    assert peers.most_supported(np.array([[0.5], [0.1], [0.5], [0.1], [0.5]]), 3) == [0, 1]


def test_common_initial_points_fill_up(ground: grounds.Listed) -> None:
    initial = ground.initial(0, 0)
    histories = [[(initial[1], 2.0), (ground.params(3), 1.0)]] * 4
    first = peers.first_settings(ground, histories, initial)
    assert first == [initial[1], initial[0], initial[2]]


class Valley(grounds.Boxed):
    """Tasks with scores that are to be minimised."""

    def score(self, task: int, params: grounds.Params) -> float:
        return float(params["x"])


def test_peers_that_minimise_tell_their_lowest_score() -> None:
    space = fedbo.Space({"x": fedbo.Float(0, 1)}, direction="minimize")
    ground = Valley(space, 1, "valley", "")
    initial = ground.initial(0, 0)
    first = peers.first_settings(ground, [[(initial[2], 0.2), (initial[0], 0.3)]], initial)
    assert first == [initial[2], initial[0], initial[1]]


def test_more_peers_than_there_are(path: Path, command: Any) -> None:
    with pytest.raises(SystemExit, match="give 2 or less"):
        command(compare.table, path, "--peers", 3, "--policies", "FTS", "--jobs", 1)


# Samplers from outside


def test_somebody_from_outside_gets_the_nearest_that_is_left() -> None:
    ground = grounds.Listed(np.array([[0.0], [0.4], [1.0]]), np.ones((1, 3)))
    tried: list[dict[str, Any]] = []
    for expected in (0.4, 0.0, 1.0, 0.4):
        tried.append(ground.nearest(np.array([0.3]), tried))
        assert [*tried[-1].values()] == [expected]


@pytest.mark.parametrize("name", outside.SAMPLERS)
def test_outside_samplers_try_each_configuration_once(name: str) -> None:
    pytest.importorskip(outside.SAMPLERS[name])
    ground = grounds.synthetic(2, tasks=2, points=30)
    first = ground.initial(1, 0)
    scores = outside.play(ground, name, 1, 0, first, 8)
    assert scores[:3] == [ground.score(1, params) for params in first]
    assert len(scores) == len({*scores}) == 8
    assert outside.play(ground, name, 1, 0, first, 2) == scores[:2]


# Pictures


def test_a_picture_of_two_contests(tmp_path: Path, command: Any) -> None:
    policies = {
        name: {"seeds": 3, "curve": [0.5**i for i in range(50)] + [0.0]}
        for name in ("EI", "TS", "mine", BEST_FIRST, outside.TPE)
    }
    contest = {"default": "mine", "policies": policies}
    (tmp_path / "svm.json").write_text(json.dumps(contest))
    (tmp_path / "landmine.json").write_text(json.dumps({"boxes": {"log": contest}}))
    out = tmp_path / "new" / "regret.png"
    command(picture.main, out, tmp_path / "svm.json", tmp_path / "landmine.json")
    assert out.read_bytes().startswith(b"\x89PNG")
    (tmp_path / "svm.json").write_text('{"policies": {}}')
    with pytest.raises(SystemExit, match="is not the JSON of a contest"):
        command(picture.main, out, tmp_path / "svm.json")
