"""docs/optuna.md runs as written: its files, its scripts and its commands, from top to bottom."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import optuna
import pytest

import fedbo
from fedbo.exchange import FolderExchange, Ledger

pytestmark = pytest.mark.slow

TEXT = (Path(__file__).parents[2] / "docs" / "optuna.md").read_text(encoding="utf-8")
PROGRAMS = {
    "fedbo": ["-m", "fedbo"],
    "optuna": ["-c", "import sys; from optuna.cli import main; sys.exit(main())"],
}


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    source = str(Path(fedbo.__file__).parents[1])
    own = {"FEDBO_STATE": str(folder / "state"), "MPLBACKEND": "agg", "PYTHONPATH": source}
    return subprocess.Popen(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env=os.environ | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )


def finish(process: subprocess.Popen[str]) -> None:
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, f"{process.args}\n{said}"


def command(folder: Path, line: str) -> None:
    program, *arguments = shlex.split(line)
    finish(start(folder, *PROGRAMS[program], *arguments))


def write(folder: Path, code: str) -> str | None:
    """Write a file of the page into a folder; its first line is its name, if it has one."""
    named = re.match(r"# (\w+\.(?:py|toml))\n", code)
    if named is None:
        return None
    (folder / named[1]).write_text(code, encoding="utf-8")
    return named[1]


def study(folder: Path, name: str) -> optuna.Study:
    return optuna.load_study(study_name=name, storage=f"sqlite:///{folder}/site_{name}.db")


def test_everything_runs_as_written(tmp_path: Path) -> None:
    for language, code in re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.M | re.S):
        file = write(tmp_path, code)
        if "set_constraint" in code and not hasattr(optuna.Trial, "set_constraint"):
            continue  # Optuna 5 brought it
        if language == "python":
            assert file is not None
            finish(start(tmp_path, file))
        for line in code.splitlines() if language == "sh" else []:
            command(tmp_path, line)
    assert all((tmp_path / name).stat().st_size > 5000 for name in ("history.png", "peers.png"))
    queries = [trial.system_attrs["fedbo:query"] for trial in study(tmp_path, "b").trials]
    assert len(queries) == 20 and any("site-a" in query.get("trust", {}) for query in queries)
    log = Ledger(tmp_path / "state" / "ledger.jsonl").read()
    assert {"site-a", "site-b"} <= {entry.agent for entry in log}
    assert ("old", "withdrawn") in {(entry.agent, entry.action) for entry in log}
    federation = fedbo.Federation.load(tmp_path / "federation.toml")
    senders = {m.sender for m in FolderExchange(tmp_path / "exchange").fetch(federation)}
    assert {"site-a", "site-b"} <= senders and "old" not in senders


def test_two_workers_at_once_on_a_storage_that_was_made_first(tmp_path: Path) -> None:
    for _, code in re.findall(r"^```(toml|python)\n(.*?)^```$", TEXT, re.M | re.S):
        write(tmp_path, code)
    command(tmp_path, "fedbo federation new --from-space space.toml")
    [make] = re.findall("^optuna create-study .*", TEXT, re.M)
    command(tmp_path, make)
    for worker in [start(tmp_path, "site_a.py"), start(tmp_path, "site_a.py")]:
        finish(worker)
    states = [trial.state for trial in study(tmp_path, "a").trials]
    assert states == [optuna.trial.TrialState.COMPLETE] * 40
    federation = fedbo.Federation.load(tmp_path / "federation.toml")
    [message] = FolderExchange(tmp_path / "exchange").fetch(federation)
    assert (message.sender, message.sequence) == ("site-a", 40)
