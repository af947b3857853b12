"""`fedbo reproduce` as a program, and what its runs say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from fedbo.table import Table
from fedbo_paper.experiments.claims import Finding, judge

SEED = "4711"  # of its own: not the one that figures are drawn from


def reproduce(*args: str, out: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fedbo", "reproduce", *args, "--out", str(out)]
    environment = {**os.environ, "COLUMNS": "200", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, check=check, env=environment, timeout=1800
    )


def findings(folder: Path) -> dict[tuple[str, str], Finding]:
    judged = judge(Table.from_csv(folder / "runs.csv"))
    return {(finding.id, finding.preset): finding for finding in judged}


def listen_to_ctrl_c() -> None:
    """For a new process: what runs in the background of a shell is told to ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
