"""Every example runs, and its page has what it printed and drew."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedbo

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_runs(name: str, tmp_path: Path) -> None:
    if name == "fleet" and not shutil.which("lsof"):
        pytest.skip("lsof is missing")
    done = subprocess.run(
        [sys.executable, ROOT / "docs/gallery.py", "--quick", "--out", tmp_path, name],
        env=os.environ
        | {"PYTHONPATH": str(Path(fedbo.__file__).parents[1]), "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    page = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    assert "```text\n" in page and f"({name}-1.png)" in page
    assert (tmp_path / f"{name}-1.png").stat().st_size > 10_000
    assert f"({name}.md)" in (tmp_path / "index.md").read_text(encoding="utf-8")
