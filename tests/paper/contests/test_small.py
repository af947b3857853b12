"""The tables made with scikit-learn are reproducible, and table.py can read them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fedbo_paper.contests import grounds, small


def test_the_sets_are_the_same_each_time() -> None:
    first, again = small.sets(), small.sets()
    assert len(first) == 44
    for (X, y), (X_again, y_again) in zip(first, again, strict=True):
        assert len(X) == len(y) <= small._MOST
        np.testing.assert_array_equal(X, X_again)
        np.testing.assert_array_equal(y, y_again)


def test_two_tables_that_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees learn nothing from constant inputs: that task is left out. A network guesses."""
    iris, wine = small.sets()[:2]
    constant = np.zeros((50, 2)), np.arange(50) % 2
    monkeypatch.setattr(small, "sets", lambda: [iris, wine, constant])
    monkeypatch.setattr(small, "_TREES", (2, 5))
    monkeypatch.setattr(small, "_CONFIGURATIONS", 12)
    monkeypatch.setattr(sys, "argv", ["small.py", str(tmp_path), "--jobs", "1"])
    small.main()
    for name, tasks, configurations, D in (("boosted", 2, 50, 3), ("network", 3, 12, 5)):
        ground = grounds.read_table(tmp_path / f"{name}.npz")
        assert (ground.tasks, *ground.X.shape) == (tasks, configurations, D)


def test_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["small.py", str(tmp_path / "none")])
    with pytest.raises(SystemExit, match="there is no folder"):
        small.main()
