"""A tiny table, and commands that run in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.contest import grounds

Command = Callable[..., None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    table = grounds.synthetic(2, tasks=3, points=40)
    config = np.column_stack([100 * table.X[:, 0] - 20, table.X[:, 1], np.full(40, 7.0)])
    np.savez(tmp_path / "tiny.npz", accuracy=table.Y, config=config)
    return tmp_path / "tiny.npz"


@pytest.fixture
def ground() -> grounds.Listed:
    return grounds.synthetic(1, tasks=5, points=30)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command: ``command(compare.table, path, "--seeds", 2)``."""

    def run(main: Callable[[], None], *arguments: object) -> None:
        monkeypatch.setattr(sys, "argv", ["contest.py", *map(str, arguments)])
        main()

    return run
