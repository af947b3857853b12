"""The README: its program runs as it is written, and its links lead to files of the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
HERE = r"\((https://(?:github|raw\.githubusercontent)\.com/fedbo/fedbo/[^)#]*)"


def test_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    [program] = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    exec(program, {})
    [shown] = re.findall(r"print\(.*# (.*)", program)
    assert capsys.readouterr().out == shown + "\n"


def test_links_lead_to_files() -> None:
    assert not re.findall(r"\]\((?!https:)", TEXT)  # it is shown on PyPI too
    links = re.findall(HERE, TEXT)
    assert len(links) > 5
    assert not [link for link in links if not (ROOT / link.split("/main/")[1]).exists()]
