"""A script whose study ends sends its last message to a hub, with all that it knows then.

``python tests/optuna_front/test_last.py 100`` runs the script of docs/reference/members.md so many
times against a hub on this machine, and prints what was lost and what was warned of; pytest runs it
three times.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fedbo import Federation, Float, Int, Space
from fedbo.exchange import HubExchange
from fedbo.trust import KeyPair

ROOT = Path(__file__).parents[2]
SPACE = Space({"lr": Float(1e-5, 1, log=True), "depth": Int(1, 8)}, direction="minimize")
TRIALS = 20


class End(NamedTuple):
    """What one run of the script has left."""

    sequence: int  # of the message at the hub; 0 if there is none
    said: str  # by the script


def script(address: str) -> str:
    """Return the script of docs/reference/members.md for another hub."""
    text = (ROOT / "docs" / "reference" / "members.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n(# tune\.py\n.*?)^```$", text, re.M | re.S)
    return code.replace("https://localhost:8765", address)


def ends(folder: Path, runs: int) -> Iterator[End]:
    """Run the script so many times, each time as another member."""
    from contracts.hub import HubProcess, Office

    federation = Federation(SPACE)
    federation.save(folder / "federation.toml")
    with HubProcess(f"sqlite:///{folder}/hub.db") as hub:
        office = Office(hub.db)
        office.create("town", federation)
        (folder / "tune.py").write_text(script(hub.address))
        for i in range(runs):
            os.environ["FEDBO_STATE"] = str(folder / f"state-{i}")
            office.enrol(hub.address, "town", f"site-{i}", KeyPair.load().public)
            (folder / "site.db").unlink(missing_ok=True)
            ended = subprocess.run(
                [sys.executable, "-W", "always", "tune.py"],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
                capture_output=True,
                text=True,
            )
            assert ended.returncode == 0, ended.stderr
            said = [line for line in ended.stderr.splitlines() if not line.startswith("[I ")]
            name = f"site-{i}/liver"
            held = [each.message for each in HubExchange(hub.address).holdings()]
            sequences = [message.sequence for message in held if message and message.sender == name]
            yield End(max(sequences, default=0), "\n".join(said))


@pytest.mark.slow
def test_a_script_that_ends_sends_all_that_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path))  # `ends` changes it
    assert [*ends(tmp_path, 3)] == [End(TRIALS, "")] * 3


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    with tempfile.TemporaryDirectory() as scratch:
        left = [*ends(Path(scratch), int(sys.argv[1]))]
    lost = [end.sequence for end in left if end.sequence < TRIALS]
    told = {end.said for end in left} - {""}
    print(f"{len(left)} runs, {len(lost)} lost {lost}, {len(told)} warnings {told or ''}")
