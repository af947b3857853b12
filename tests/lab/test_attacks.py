"""The attacks, with small numbers: damage is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ATTACKS = Path(__file__).parents[2] / "benchmarks" / "attack"


@pytest.mark.parametrize(
    "command",
    [
        "mutate.py --inputs 6000",
    ],
)
def test_an_attack_fails(command: str) -> None:
    name, *arguments = command.split()
    run = [sys.executable, str(ATTACKS / name), *arguments]
    done = subprocess.run(run, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
