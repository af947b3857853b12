"""The published landmine runs: how they are read."""

from __future__ import annotations

import json
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbo import FileRefused
from fedbo.table import Table
from fedbo_paper.data import look
from fedbo_paper.experiments.published import NAME, Published, beside, by_field

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
        (lambda given: given["inits"]["0"].update({"0": [[1.5, 0.0, 0.6]]}), "inits"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_refused(
    tmp_path: Path, change: Any, said: str
) -> None:
    given = content(TS=[[0.8, 0.9]], FTS_M100=[[0.8, 0.9]])
    change(given)
    with pytest.raises(FileRefused, match=said):
        Published.load(written(tmp_path, given))


def test_differences_are_paired_by_start_and_averaged_over_seeds(tmp_path: Path) -> None:
    """Two starts on field 0: ours .82 and .80, and .84 and .86, in two seeds; theirs .8 and .9."""
    published = loaded(tmp_path, content(TS=[[0.8, 0.9]], RGPE_M50=[[0.7]]))
    levels = {(0, 0): 0.82, (0, 1): 0.80, (1, 0): 0.84, (1, 1): 0.86}
    rows = [
        [
            *("TS", 0, 0, repeat, seed, t, level + 0.1 * (t >= 30), 0.5 if t else 0.1),
            *("published", "paper", 0, 0, nan, nan, 0, 0.01),
        ]
        for (repeat, seed), level in levels.items()
        for t in (0, *range(51))  # ours is .1 better from iteration 30 on
    ]
    columns = ("method", "M", "target", "repeat", "seed", "iteration", "best", "seconds")
    more = ("experiment", "preset", "N", "t_n", "d_n", "power", "every", "seconds_evaluation")
    table = beside(Table.from_rows((*columns, *more), rows), published)
    assert table["iteration"].tolist() == [10, 20, 30, 50]
    assert {*table["method"].tolist()} == {"TS"}
    apart = [0.81 - 0.8, 0.85 - 0.9]
    later = np.array([0.0, 0.0, 0.1, 0.1])
    np.testing.assert_allclose(table["difference"], np.mean(apart) + later)
    np.testing.assert_allclose(table["error"], np.std(apart, ddof=1) / np.sqrt(2))
    np.testing.assert_allclose(table["distance"], table["difference"] / table["error"])
    np.testing.assert_allclose(table["ours"] - table["published"], table["difference"])
    np.testing.assert_allclose(table["ours"], 0.83 + later)
    np.testing.assert_allclose(table["published"], 0.85)
    fields = by_field(Table.from_rows((*columns, *more), rows), published)
    assert fields["field"].tolist() == [0]
    np.testing.assert_allclose(fields["difference"], np.mean(apart) + 0.1)
    assert {*table["seconds"].tolist()} == {0.5} and {*table["published_seconds"].tolist()} == {1.5}


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
