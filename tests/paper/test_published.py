"""The published landmine runs: how they are read, and how ours are compared with them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper.fake_runs import COLUMNS, fake_runs

from fedbo import files
from fedbo.table import Table
from fedbo_paper.data import look
from fedbo_paper.experiments.published import NAME, Published, compare
from fedbo_paper.experiments.spec import LABELS, MEASURED

POINTS = [[0.0, 0.0, 0.6], [1.0, 0.5, 0.7], [0.25, 1.0, 0.5]]


def content(**curves: list[list[float]]) -> dict[str, Any]:
    """A file's content: curves by method ("_" for "-"), one flat run of 51 numbers a value."""
    named = {}
    for name, fields in curves.items():
        runs = {
            str(f): {str(r): [best] * 51 for r, best in enumerate(of)}
            for f, of in enumerate(fields)
        }
        mean = np.mean([best for of in fields for best in of])
        named[name.replace("_", "-")] = {
            "mean": [mean] * 51,
            "se": [0.01] * 51,
            "seconds": 1.5,
            "runs": runs,
        }
    inits = {"0": {"0": POINTS, "1": POINTS}}
    return {"about": "made up", "curves": named, "inits": inits}


def written(folder: Path, given: dict[str, Any]) -> Path:
    (folder / NAME).write_text(json.dumps(given), encoding="utf-8")
    return folder


def loaded(folder: Path, given: dict[str, Any]) -> Published:
    published = Published.load(written(folder, given))
    assert published is not None
    return published


def ours(*best: tuple[str, int, int, int, float], iterations: tuple[int, ...] = (50,)) -> Table:
    """Runs with this best score: method, target, repeat, seed, score."""
    rows = [
        ("published", "paper", method, 0 if method == "TS" else 100, target, repeat, seed, t, score)
        for method, target, repeat, seed, score in best
        for t in iterations
    ]
    names = ("experiment", "preset", "method", "M", "target", "repeat", "seed", "iteration", "best")
    return Table.from_rows(names, rows)


# Reading


def test_without_the_file_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    assert Published.load(tmp_path) is None


def test_the_data_folder_is_looked_up_as_for_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDBO_DATA", str(written(tmp_path, content(TS=[[0.8]]))))
    assert Published.load() is not None


def test_initial_points_are_scaled_linearly_to_their_box(tmp_path: Path) -> None:
    published = loaded(tmp_path, content(TS=[[0.8]]))
    assert published.initial(0, 1) == [
        {"C": pytest.approx(1e-4), "gamma": pytest.approx(0.01)},
        {"C": pytest.approx(10.0), "gamma": pytest.approx(5.005)},
        {"C": pytest.approx(2.500075), "gamma": pytest.approx(10.0)},
    ]
    assert published.initial(0, 2) == published.initial(6, 0) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda given: given["curves"]["TS"]["runs"]["0"]["1"].pop(), r"mean has 51 numbers"),
        (lambda given: given["curves"]["TS"]["mean"].append(1.2), r"<= 1.0.*mean"),
        (lambda given: given["curves"]["TS"].pop("se"), "missing required field `se`"),
        (lambda given: given["curves"].update(UCB={}), "curves"),
        (lambda given: given["inits"]["0"].update({"0": [[1.5, 0.0, 0.6]]}), "inits"),
        (lambda given: given["inits"]["0"].update({"0": []}), "inits"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_refused(
    tmp_path: Path, change: Any, said: str
) -> None:
    given = content(TS=[[0.8, 0.9]], FTS_M100=[[0.8, 0.9]])
    change(given)
    with pytest.raises(files.FileRefused, match=said):
        Published.load(written(tmp_path, given))


@pytest.mark.parametrize("data", [b"", b'{"curves": {', b"\xff\xfe", b"[]"])
def test_a_damaged_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(files.FileRefused):
        Published.load(tmp_path)


def test_their_runs_have_the_columns_of_ours(tmp_path: Path) -> None:
    table = loaded(tmp_path, content(TS=[[0.8]], FTS_M100=[[0.7, 0.9]], TAF_M50=[[0.6]])).table()
    assert table.columns == (*LABELS, *MEASURED) == COLUMNS
    assert table.height == 4 * 51
    assert set(table["experiment"]) == {"landmine"} and set(table["preset"]) == {"published"}
    federated = table.where(method="FTS", repeat=1)
    assert federated["best"].tolist() == [0.9] * 51
    assert federated["iteration"].tolist() == list(range(51))
    assert set(federated["power"]) == {2.0}
    assert np.isnan(table["seconds"]).all() and np.isnan(table["parameters_received"]).all()


# Comparing


def test_seeds_are_averaged_within_a_pair_first(tmp_path: Path) -> None:
    published = loaded(tmp_path, content(TS=[[0.80, 0.90], [0.70]]))
    runs = ours(
        *(("TS", 0, 0, seed, 0.80 + d) for seed, d in enumerate((0.00, 0.02))),
        *(("TS", 0, 1, seed, 0.90 + d) for seed, d in enumerate((0.05, 0.01))),
        *(("TS", 1, 0, seed, 0.70 + d) for seed, d in enumerate((-0.06, 0.04))),
    )
    table = compare(runs, published)
    differences = np.array([0.01, 0.03, -0.01])
    assert table.height == 1 and table["method"].tolist() == ["TS"]
    assert table["iteration"].tolist() == [50]
    assert table["ours"][0] == pytest.approx(0.81)
    assert table["published"][0] == pytest.approx(0.80)
    assert table["difference"][0] == pytest.approx(differences.mean())
    assert table["standard_error"][0] == pytest.approx(differences.std(ddof=1) / math.sqrt(3))
    assert (table["pairs"][0], table["seeds"][0], table["met"][0]) == (3, 2, True)


def test_what_is_further_than_two_standard_errors_is_not_met(tmp_path: Path) -> None:
    published = loaded(tmp_path, content(TS=[[0.8, 0.8]], FTS_M100=[[0.8, 0.8]]))
    near = [("TS", 0, r, 0, 0.8 + d) for r, d in enumerate((0.009, 0.029))]  # 0.019 ± 0.010
    far = [("FTS", 0, r, 0, 0.8 + d) for r, d in enumerate((0.031, 0.011))]  # 0.021 ± 0.010
    table = compare(ours(*near, *far), published)
    assert table["method"].tolist() == ["TS", "FTS"] and table["met"].tolist() == [True, False]


def test_only_pairs_and_iterations_that_both_have_are_compared(tmp_path: Path) -> None:
    published = loaded(tmp_path, content(TS=[[0.8, 0.8]]))
    more = [("TS", 0, 7, 0, 0.1), ("TS", 9, 0, 0, 0.1), ("FTS", 0, 0, 0, 0.1)]
    two = [("TS", 0, 0, 0, 0.8), ("TS", 0, 1, 0, 0.8)]
    table = compare(ours(*two, *more, iterations=(0, 5, 10, 30)), published)
    assert table["iteration"].tolist() == [10, 30]
    assert table["pairs"].tolist() == [2, 2] and table["difference"].tolist() == [0.0, 0.0]
    assert table["met"].all()
    assert not compare(ours(two[0]), published).height, "one pair has no standard error"


def test_other_experiments_and_presets_are_left_alone(tmp_path: Path) -> None:
    published = loaded(tmp_path, content(TS=[[0.8] * 5] * 6, FTS_M100=[[0.8] * 5] * 6))
    runs = fake_runs(("landmine", "published"))
    table = compare(runs, published)
    assert table == compare(runs.where(experiment="published"), published)
    assert table["iteration"].tolist() == [10, 20, 30, 50] * 2
    assert set(table["pairs"]) == {30} and set(table["seeds"]) == {3}
    assert not compare(runs.where(experiment="landmine"), published).height


# The file itself, where it is


@pytest.mark.skipif(look([NAME]) is None, reason=f"{NAME} is not in the data folder")
def test_the_published_file_has_what_its_table_says() -> None:
    published = Published.load()
    assert published is not None and len(published.curves) == 13
    for curve in published.curves.values():
        runs = np.array([[curve.runs[f][r] for r in range(5)] for f in range(6)])
        assert np.allclose(runs.mean(axis=(0, 1)), curve.mean, atol=1e-4)
        for field in range(6):
            for run in range(5):
                first = max(auc for *_, auc in published.inits[field][run])
                assert runs[field, run, 0] == pytest.approx(first, abs=1e-5)
    shown = [0.8098, 0.8120, 0.8200, 0.8213]
    assert np.allclose(np.array(published.curves["TS"].mean)[[10, 20, 30, 50]], shown, atol=1e-4)
    assert published.table().height == 13 * 30 * 51
