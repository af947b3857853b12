"""A hub that is killed under load loses nothing that it has acknowledged.

benchmarks/attack/kill.py does it 100 times; here it is 5 times with each database.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "attack" / "kill.py"


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_nothing_acknowledged_is_missing_after_kills(kind: str, tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    command = [sys.executable, str(SCRIPT), "--db", kind, "--kills", "5", "--json", str(found)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(found.read_text())
    assert (counts["hub"], counts["hub while it starts"]) == (4, 1)
    assert (counts["worker"], counts["site"]) == (1, 1)
    assert counts["acknowledged"] > 20
    bad = ("missing", "changed", "faults", "sites", "members")
    assert {count for name, count in counts.items() if name.startswith(bad)} == {0}
