"""Runs of whole federations, and from these to the files of `fedbo reproduce dp`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from paper.commands import reproduce as command
from paper.real_data import folder_with
from typer.testing import CliRunner

import fedbo_paper.cli.reproduce as cli
from fedbo.cli.app import app
from fedbo.table import Table
from fedbo_paper.dp import results
from fedbo_paper.dp.comparison import (
    CURVES,
    Comparison,
    Job,
    initial_points,
    perform,
)
from fedbo_paper.dp.methods import Alone, Served
from fedbo_paper.dp.server import PrivateMean, Regions
from fedbo_paper.harness import workers
from fedbo_paper.problems.problems import Landmine
from fedbo_paper.reproduce import Outcome

SMALL = Comparison(seeds=2, agents=5, rounds=3)


def job(method: Alone | Served, **changes: int) -> Job:
    small = {"seed": 0, "agents": 5, "initial": 3, "rounds": 3} | changes
    return Job(problem=Landmine(), method=method, **small)


@pytest.mark.slow
def test_a_run_has_every_trial_and_is_the_same_again(data: Path) -> None:
    private = job(Served(name="DP", aggregate=PrivateMean()))
    table = perform(private, data)
    assert table.height == private.rows == 5 * (3 + 3)
    assert (np.bincount(table["agent"]) == 6).all()
    assert (np.bincount(table["round"]) == [15, 5, 5, 5]).all()
    assert {*table.where(round=0)["source"].tolist()} == {"initial"}
    assert {*table.where(round=1)["source"].tolist()} == {"pool"}  # p_1 = 0
    again = perform(private, data)
    assert table.csv() == again.csv()


def test_initial_points_lie_in_the_agent_s_region(data: Path) -> None:
    tasks = Landmine().tasks(data)
    for starts in (1, 2):
        regions = Regions(2, starts)
        for n in range(5):
            given = initial_points(job(Alone(name="TS", starts=starts)), tasks, n)
            X = np.array([tasks.space.encode(params) for params in given])
            assert (regions.index(X) == n % regions.count).all() and len(X) == 3


@pytest.mark.slow
def test_a_comparison_is_complete_paired_and_resumed(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, stages = tmp_path / "out", []
    here = partial(workers.run, jobs=1)
    summary = results.reproduce(
        SMALL, out, data=data, run=here, progress=lambda *stage: stages.append(stage)
    )
    jobs = len(CURVES) * 2
    assert stages[0] == ("runs", 0, jobs) and stages[-1] == ("runs", jobs, jobs)
    assert {*summary["method"].tolist()} == {curve.method.name for curve in CURVES}
    for name in ("dp.csv", "dp.png", "dp.svg", "dp.pdf", "dp.html"):
        assert (out / name).stat().st_size > 100
    runs = {run: perform(run, data) for run in SMALL.jobs() if run.method.name in ("TS", "EI")}
    last = summary.where(round=3)
    means = {
        name: np.mean(
            [results.loss(t, 5, 3)[:, 3].mean() for r, t in runs.items() if r.method.name == name]
        )
        for name in ("TS", "EI")
    }
    assert last.where(method="EI")["loss"][0] == pytest.approx(means["EI"])
    assert last.where(method="EI")["difference"][0] == pytest.approx(means["EI"] - means["TS"])
    first = summary.where(round=0)  # the initial points are the same
    starts = {curve.method.name: curve.method.starts for curve in CURVES}
    assert (
        len(
            {loss for m, loss in zip(first["method"], first["loss"], strict=True) if starts[m] == 2}
        )
        == 1
    )

    def fail(*_: object) -> None:
        raise AssertionError("a finished run was run again")

    monkeypatch.setattr(results, "perform", fail)
    before = (out / "dp.csv").read_bytes()
    results.reproduce(SMALL, out, data=data, run=here)
    assert (out / "dp.csv").read_bytes() == before


@pytest.mark.slow
def test_on_real_fields_everybody_improves() -> None:
    folder = folder_with("LandmineData.mat")
    for method in (Alone(name="TS"), Served(name="DP", aggregate=PrivateMean())):
        table = perform(Job(problem=Landmine(), method=method, seed=4711, rounds=8), folder)
        level = results.loss(table, 29, 8).mean(axis=0)
        assert 0.2 < level[-1] < level[0] - 0.02


@pytest.mark.slow
def test_options_of_another_experiment_are_refused(tmp_path: Path) -> None:
    for args, said in (
        (("dp", "--preset", "default", "--box", "log"), "--box, --preset: not an option of dp"),
        (("fig1", "--seeds", "3"), "--seeds: not an option of fig1"),
    ):
        failed = command(*args, out=tmp_path, check=False)
        assert failed.returncode == 2
        assert said in " ".join(failed.stderr.replace("│", " ").split())


@pytest.mark.parametrize("missing", [{}, {"landmine": "LandmineData.mat is missing"}])
def test_all_runs_dp_behind_the_figures_if_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: dict[str, str]
) -> None:
    """With its own settings; without the landmine data it is skipped, and the command says so."""
    compared: list[tuple[object, ...]] = []
    nothing = Outcome(Table({}), [], "none", missing, Table({}))
    monkeypatch.setattr(cli, "_run", lambda *work: nothing)
    monkeypatch.setattr(cli, "_compare", lambda *given: compared.append(given))
    monkeypatch.setattr(cli, "_report", lambda *given: None)
    arguments = ["reproduce", "all", "--seeds", "3", "--quick", "--out", str(tmp_path)]
    said = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert said.exit_code == 0
    assert [given[:2] for given in compared] == ([] if missing else [(True, 3)])
    assert ("Skipped: dp" in said.output) == bool(missing)
    only = CliRunner().invoke(app, [*arguments[:2], "--only", "har", "--out", str(tmp_path)])
    assert only.exit_code == 0 and len(compared) == (0 if missing else 1)
