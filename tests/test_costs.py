"""What fedbo costs is stated in one place, so that no two pages contradict each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["README.md", "docs/optuna.md", "docs/guide.md"])
def test_only_one_page_has_figures_of_cpu_time(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert not re.findall(r"\d ms\b|\d+ (?:times as long|×)", text)
    assert "speed.md" in text
