"""A tiny table, and commands that run in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fedbo_paper.contests import families, grounds

Command = Callable[..., None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    X, Y = families.make("similar", 2, tasks=3, points=40)
    config = np.column_stack([100 * X[:, 0] - 20, X[:, 1], np.full(40, 7.0)])
    np.savez(tmp_path / "tiny.npz", accuracy=Y, config=config)
    return tmp_path / "tiny.npz"


@pytest.fixture
def ground() -> grounds.Listed:
    return grounds.Listed(*families.make("similar", 1, tasks=5, points=30))


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a module's command: ``command(table, path, "--seeds", 2)``."""

    def run(module: ModuleType, *arguments: object) -> None:
        name = f"{module.__name__.rpartition('.')[2]}.py"
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        module.main()

    return run
