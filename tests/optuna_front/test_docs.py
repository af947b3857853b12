"""The page on the sampler runs as written: its files, scripts and commands, from top to bottom."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import optuna
import pytest
from contracts.exchange import heard

import fedbo
from fedbo.exchange import FolderExchange, Ledger

pytestmark = pytest.mark.slow

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "sampler.md").read_text(encoding="utf-8")
PROGRAMS = {
    "fedbo": ["-m", "fedbo"],
    "optuna": ["-c", "import sys; from optuna.cli import main; sys.exit(main())"],
}
SHARED = ("journal.py", "proxy.py", "proxied.py")  # for several workers
ACCEPTED = ("GrpcStorageProxy", "optuna.storages._grpc")  # what Optuna calls experimental


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    source = str(Path(fedbo.__file__).parents[1])
    own = {"FEDBO_STATE": str(folder / "state"), "MPLBACKEND": "agg", "PYTHONPATH": source}
    own |= {"HOME": str(folder)}  # Ray writes there
    own |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    accepted = [option for text in ACCEPTED for option in ("-W", f"ignore:{text}")]
    return subprocess.Popen(
        [sys.executable, "-W", "error", *accepted, *arguments],
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
        if language == "python" and file not in SHARED:
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
    senders = {m.sender for m in heard(FolderExchange(tmp_path / "exchange"), federation)}
    assert {"site-a", "site-b", "site-f"} <= senders and "old" not in senders


@pytest.mark.parametrize("worker", ["site_a.py", "postgresql", "journal.py", "proxied.py"])
def test_two_workers_at_once(worker: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with socket.create_server(("localhost", 0)) as free:
        text = TEXT.replace("13000", str(free.getsockname()[1]))
    if worker == "postgresql":
        address, worker = request.getfixturevalue("postgresql_server"), "site_a.py"
        text = text.replace("sqlite:///site_a.db", address)
    for _, code in re.findall(r"^```(toml|python)\n(.*?)^```$", text, re.M | re.S):
        write(tmp_path, code)
    command(tmp_path, "fedbo federation new --from-space space.toml")
    [make] = re.findall("^optuna create-study .*", text, re.M)
    command(tmp_path, make)
    with ExitStack() as servers:
        if worker == "proxied.py":
            server = servers.enter_context(start(tmp_path, "proxy.py"))
            servers.callback(server.kill)
        for process in [start(tmp_path, worker) for _ in range(2)]:
            finish(process)
    federation = fedbo.Federation.load(tmp_path / "federation.toml")
    [message] = heard(FolderExchange(tmp_path / "exchange"), federation)
    assert message.sequence == 40
