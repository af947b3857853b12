"""The runner: the same numbers with any number of processes, and however often it is stopped."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest
from paper.real_data import folder_with

from fedbo.table import Table
from fedbo_paper.data import MissingData
from fedbo_paper.experiments import results, runner
from fedbo_paper.experiments.plan import Plan, plan
from fedbo_paper.experiments.runner import key
from fedbo_paper.experiments.spec import experiments, wanted
from fedbo_paper.harness import workers
from fedbo_paper.harness.store import Store

FIG1 = wanted("fig1", quick=True, seed=1)


def few(n: int) -> Plan:
    """The first runs of figure 1."""
    whole = plan(FIG1[0], None)
    return msgspec.structs.replace(whole, runs=whole.runs[:n])


def run(plan: Plan, folder: Path, jobs: int = 1, progress: runner.Progress = print) -> None:
    runner.run([plan], Store(folder, key), None, partial(workers.run, jobs=jobs), progress)


def finished(plan: Plan, folder: Path) -> Table:
    tables = [(run, Store(folder, key).get(run)) for run in plan.runs]
    return results.tidy([(run, table) for run, table in tables if table is not None])


def test_every_experiment_file_is_read_and_planned_for_its_figures() -> None:
    for name, spec in experiments().items():
        assert spec.iterations == 50 and spec.initial in (1, 3), name
        shown = {figure for arms in spec.arms for figure in arms.figures}
        assert shown == set(spec.targets), name


def test_figure_2_is_what_the_paper_says() -> None:
    """Section 5.2: 6 targets, 5 initialisations of 3 inputs, M = 50, 100, 150, 200."""
    spec = experiments()["landmine"]
    arms = spec.arms_of(("fig2",), 28, 2.0)
    assert {(arm.method, arm.M) for arm in arms} == {
        ("TS", 0),
        *((method, M) for method in ("FTS", "RGPE", "TAF") for M in (50, 100, 150, 200)),
    }
    assert all(targets == (0, 1, 2, 3, 4, 5) for targets in arms.values())
    assert all(arm.power == 2.0 for arm in arms if arm.method == "FTS")
    assert all((arm.N, arm.t_n) == (28, 50) for arm in arms if arm.method != "TS")


def test_the_number_of_processes_changes_no_number(tmp_path: Path) -> None:
    some = few(6)
    run(some, tmp_path / "one")
    run(some, tmp_path / "two", jobs=2)
    one, two = finished(some, tmp_path / "one"), finished(some, tmp_path / "two")
    assert one.height == two.height == 6 * 51
    assert results.digest(one) == results.digest(two)


def test_what_is_finished_is_not_run_again(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    run(few(4), tmp_path)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    run(few(6), tmp_path, progress=lambda *at: seen.append(at))
    assert [at for at in seen if at[0] == "runs"] == [("runs", n, 6) for n in (4, 5, 6)]
    assert all(path.stat().st_mtime_ns == at for path, at in times.items())


def test_a_damaged_file_is_run_again(tmp_path: Path) -> None:
    some = few(1)
    run(some, tmp_path)
    [path] = tmp_path.iterdir()
    whole = finished(some, tmp_path)
    path.write_bytes(path.read_bytes()[:1000])
    run(some, tmp_path)
    assert results.digest(finished(some, tmp_path)) == results.digest(whole)


def test_nothing_to_run_is_an_error_that_says_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"there is no 'fig9', expected fig1, fig2, .* or all"):
        wanted("fig9")
    with pytest.raises(ValueError, match="its experiments are synthetic"):
        wanted("fig1", only="landmine")
    with pytest.raises(ValueError, match="its experiments are published"):
        wanted("published", presets=("default",))


def test_an_option_of_another_problem_is_refused() -> None:
    with pytest.raises(ValueError, match="scoring: not an option of har; leave it out"):
        wanted("fig2", only="har", problem={"scoring": "probability"})
    both = wanted("fig2", problem={"scoring": "probability"})
    assert [selection.problem for selection in both if selection.experiment == "har"] == [{}]


def test_published_runs_that_are_not_there_are_missing_data(tmp_path: Path) -> None:
    folder = folder_with("LandmineData.mat")
    (tmp_path / "LandmineData.mat").write_bytes((folder / "LandmineData.mat").read_bytes())
    with pytest.raises(MissingData, match=r"landmine_published.json is not in"):
        plan(wanted("published")[0], tmp_path)
    assert plan(wanted("fig2", only="landmine")[0], tmp_path).runs  # does without
