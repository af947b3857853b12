"""Settings of the tests of studies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest


@pytest.fixture(autouse=True)
def _quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The user's log and keys are in a folder that tests can look into, and Optuna is quiet."""
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "state"))
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)
