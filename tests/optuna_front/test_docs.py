"""docs/optuna.md runs as written: its files, its scripts and its commands, from top to bottom."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import optuna
import pytest

import fedbo
from fedbo.exchange import FolderExchange, Ledger

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "optuna.md").read_text(encoding="utf-8")


class Block(NamedTuple):
    language: str
    code: str

    @property
    def file(self) -> str | None:
        """The name in its first line, if it has one."""
        named = re.match(r"# (\w+\.(?:py|toml))\n", self.code)
        return named and named[1]


BLOCKS = [Block(*found) for found in re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.M | re.S)]
FILES = {block.file: block.code for block in BLOCKS}
PROGRAMS = {
    "fedbo": ("-m", "fedbo"),
    "optuna": ("-c", "import sys; from optuna.cli import main; sys.exit(main())"),
}


class Folder:
    """Where a reader tries things out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        source = str(Path(fedbo.__file__).parents[1])
        self._env = os.environ | {
            "FEDBO_STATE": str(path / "state"),
            "MPLBACKEND": "agg",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": source,
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-W", "error", *arguments],
            cwd=self.path,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def finish(self, process: subprocess.Popen[str]) -> str:
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, f"{process.args}\n{out}\n{err}"
        return out

    def write(self, block: Block) -> None:
        assert block.file is not None
        (self.path / block.file).write_text(block.code, encoding="utf-8")

    def command(self, line: str) -> str:
        program, *arguments = shlex.split(line)
        return self.finish(self.start(*PROGRAMS[program], *arguments))

    def run(self, block: Block) -> None:
        if block.language == "sh":
            for line in block.code.splitlines():
                said = self.command(line)
                assert said.strip() or not line.startswith("fedbo ")
        else:
            self.write(block)
            if block.language == "python":
                self.finish(self.start(str(block.file)))

    def study(self, name: str) -> optuna.Study:
        storage = f"sqlite:///{self.path / f'site_{name}.db'}"
        return optuna.load_study(study_name=name, storage=storage)


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The folder of somebody who has done it all."""
    folder = Folder(tmp_path_factory.mktemp("from top to bottom"))
    for block in BLOCKS:
        folder.run(block)
    return folder


@pytest.mark.slow
def test_everything_runs_as_written(read: Folder) -> None:
    for picture in ("history.png", "peers.png"):
        assert (read.path / picture).stat().st_size > 5000
    assert read.study("a").best_value < 2.0
    assert len(read.study("b").trials) == 20


@pytest.mark.slow
def test_the_second_site_counted_on_the_first(read: Folder) -> None:
    queries = [trial.system_attrs["fedbo:query"] for trial in read.study("b").trials]
    assert any("site-a" in query.get("trust", {}) for query in queries)


@pytest.mark.slow
def test_what_left_is_in_the_log_and_what_was_withdrawn_is_gone(read: Folder) -> None:
    log = Ledger(read.path / "state" / "ledger.jsonl").read()
    assert {"site-a", "site-b", "old"} <= {entry.agent for entry in log}
    assert ("old", "withdrawn") in {(entry.agent, entry.action) for entry in log}
    federation = fedbo.Federation.load(read.path / "federation.toml")
    senders = {m.sender for m in FolderExchange(read.path / "exchange").fetch(federation)}
    assert {"site-a", "site-b"} <= senders
    assert "old" not in senders


@pytest.mark.slow
def test_two_workers_at_once_on_a_storage_that_was_made_first(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for name in ("space.toml", "site_a.py"):
        folder.write(Block("", FILES[name]))
    folder.command("fedbo federation new --from-space space.toml")
    [make] = re.findall("^optuna create-study .*", TEXT, re.M)
    folder.command(make)
    for worker in [folder.start("site_a.py"), folder.start("site_a.py")]:
        folder.finish(worker)
    study = folder.study("a")
    assert [trial.state for trial in study.trials] == [optuna.trial.TrialState.COMPLETE] * 40
    federation = fedbo.Federation.load(tmp_path / "federation.toml")
    [message] = FolderExchange(tmp_path / "exchange").fetch(federation)
    assert message.sender == "site-a"
