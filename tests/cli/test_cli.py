"""The command line, as a person meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from cli.terminal import run, said

import fedbo
from fedbo.cli import checks, ledger


def test_version() -> None:
    assert run("--version") == f"fedbo {fedbo.__version__}\n"


def test_commands_come_in_an_order_that_helps() -> None:
    lines = [line.split()[1] for line in run("--help").splitlines() if line.startswith("│ ")]
    commands = [word for word in lines if not word.startswith("-")]
    assert commands == [
        *("federation", "study", "join", "hub", "flower", "exchange", "release", "identity"),
        *("ledger", "data", "demo", "reproduce"),
    ]
    text = run("demo", "-h")
    for option in ("--agents", "--trials", "--repeats", "--seed", "--out", "--stay"):
        assert option in text


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--agents", "many"], "valid int"),
        (["--out", "demo.bmp"], "demo.bmp ends in '.bmp', expected one of .png, .pdf, .svg"),
        (["--out", "nowhere/demo.png"], "nowhere does not exist: create it first"),
        (["--agent", "3"], "No such option"),
    ],
)
def test_errors_come_first_and_are_clear(
    args: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert complaint in said("demo", *args, code=2)
    assert not any(tmp_path.iterdir())


def test_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(name: str) -> object:
        return None if name in ("sklearn", "joblib") else find_spec(name)

    monkeypatch.setattr(checks, "find_spec", installed)
    assert said("demo", code=1) == (
        "This command needs scikit-learn and joblib, which fedbo does not install by default: "
        "pip install 'fedbo[experiments]'"
    )


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: object) -> None:
        raise KeyError(path)

    monkeypatch.setattr(ledger, "Ledger", broken)
    with pytest.raises(AssertionError):  # of the helper: it is no SystemExit
        run("ledger", code=1)


def test_light_commands_load_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, fedbo.cli.app; print(*sys.modules)"],
        env=os.environ | {"PYTHONPATH": str(Path(fedbo.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    loaded = set(done.stdout.split())
    assert "typer" in loaded
    assert not {"sklearn", "matplotlib", "joblib", "rich.live", "optuna", "sqlalchemy"} & loaded
