"""The command line, as a person meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import fedbo
from fedbo.cli import app as cli
from fedbo.cli import checks


def invoke(*args: str) -> Result:
    wide = {"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}
    return CliRunner().invoke(cli.app, args, env=wide)


def python(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    source = str(Path(fedbo.__file__).parents[1])
    return subprocess.run(
        [sys.executable, *args],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": source, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=1200,
    )


def test_version() -> None:
    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"fedbo {fedbo.__version__}\n")


def test_help_names_the_commands_and_their_options() -> None:
    assert "demo" in invoke("--help").stdout
    text = invoke("demo", "-h").stdout
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
    result = invoke("demo", *args)
    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.split())
    assert not any(tmp_path.iterdir())


def test_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> object:
        return None if name in ("sklearn", "joblib") else find_spec(name)

    monkeypatch.setattr(checks, "find_spec", found)
    result = invoke("demo")
    assert result.exit_code == 1
    assert result.stderr == (
        "This command needs scikit-learn and joblib, which fedbo does not install by default: "
        "pip install 'fedbo[experiments]'\n"
    )


def test_commands_come_in_an_order_that_helps() -> None:
    text = invoke("--help").stdout
    lines = [line.split()[1] for line in text.splitlines() if line.startswith("│ ")]
    commands = [word for word in lines if not word.startswith("-")]
    assert commands[:5] == ["federation", "study", "join", "hub", "flower"]
    assert commands[5:9] == ["exchange", "release", "identity", "ledger"]
    assert commands[9:] == ["data", "demo", "reproduce"]


def test_light_commands_load_nothing_heavy() -> None:
    loaded = python("-c", "import sys, fedbo.cli.app; print(*sys.modules)").stdout.split()
    assert "typer" in loaded
    assert not {"sklearn", "matplotlib", "joblib", "rich.live"} & set(loaded)
