"""The attacks, with small numbers: nothing acknowledged is lost, and damage is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ATTACKS = Path(__file__).parents[2] / "benchmarks" / "attack"


@pytest.mark.parametrize(
    "command",
    [
        "mutate.py --messages 3000",
        pytest.param("kill.py --db sqlite --kills 5", marks=pytest.mark.slow),
        pytest.param("kill.py --db postgresql --kills 5", marks=pytest.mark.slow),
    ],
)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kill.py reads /proc")
def test_an_attack_fails(command: str) -> None:
    name, *arguments = command.split()
    run = [sys.executable, str(ATTACKS / name), *arguments]
    done = subprocess.run(run, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
