"""Small fields, so that whole comparisons run without data and in a moment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedbo_paper.data.samples import Samples


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder whose 29 fields are made up."""

    def field(n: int) -> Samples:
        X = np.random.default_rng(n).normal(size=(60, 3))
        return Samples(X=X, y=(np.linalg.norm(X - 0.02 * n, axis=1) < 1.3).astype(np.int64))

    monkeypatch.setattr(
        "fedbo_paper.data.landmine.load", lambda folder: tuple(map(field, range(29)))
    )
    return tmp_path / "data"
