"""Each tutorial works as copied: its files, its commands, and what the reader should see."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pages import follow

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"


@pytest.mark.parametrize("name", ["optuna", "finished-studies", "hub", "policy", "private"])
def test_works_as_copied(name: str, tmp_path: Path) -> None:
    checkout = {"FEDBO": str(TUTORIALS.parents[1])}
    follow(TUTORIALS / f"{name}.md", tmp_path, PYTHONWARNINGS="error", **checkout)


@pytest.mark.skipif(not shutil.which("lsof"), reason="lsof is missing")
def test_a_fleet_works_as_copied(tmp_path: Path) -> None:
    # Flower and Ray give warnings of their own.
    follow(TUTORIALS / "flower.md", tmp_path, RAY_USAGE_STATS_ENABLED="0")


def test_the_readme_works_as_copied(tmp_path: Path) -> None:
    follow(TUTORIALS.parents[1] / "README.md", tmp_path, PYTHONWARNINGS="error")
