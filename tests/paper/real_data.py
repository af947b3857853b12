"""Where the tests find real data."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedbo_paper.data import folders, look


def folder_with(name: str) -> Path:
    """The data folder that has this file, or the test is skipped."""
    path = look([name])
    if path is None:
        places = " or ".join(map(str, folders()))
        pytest.skip(f"{name} is not in {places}; FEDBO_DATA names a folder that has it")
    return path.parent
