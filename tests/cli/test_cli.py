"""The command line, as a person meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import EntryPoint
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
    for option in ("--agents", "--trials", "--repeats", "--seed", "--out", "--csv", "--stay"):
        assert option in text


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--agents", "1"], "agents is 1, expected 2 to 24"),
        (["--agents", "many"], "valid int"),
        (["--trials", "3"], "trials is 3, expected 4 to 1000: 3 are initial points"),
        (["--out", "demo.bmp"], "demo.bmp ends in '.bmp', expected one of .png, .pdf, .svg"),
        (["--out", "nowhere/demo.png"], "nowhere does not exist: create it first"),
        (["--csv", "."], ". is a folder, expected a file"),
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


def test_missing_hub_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        checks, "find_spec", lambda name: None if name == "fastapi" else find_spec(name)
    )
    result = invoke("demo")
    assert result.exit_code == 1
    assert "pip install 'fedbo[hub]'" in result.stderr


def test_commands_come_in_an_order_that_helps() -> None:
    text = invoke("--help").stdout
    lines = [line.split()[1] for line in text.splitlines() if line.startswith("│ ")]
    commands = [word for word in lines if not word.startswith("-")]
    assert commands[:5] == ["federation", "join", "publish", "hub", "flower"]
    assert commands[5:10] == ["exchange", "release", "identity", "ledger", "explain"]
    assert commands[10:] == ["data", "demo", "reproduce"]


def plugged(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    """Have other packages register these commands."""
    entries = [EntryPoint(name, value, "fedbo.commands") for name, value in values.items()]
    monkeypatch.setattr(cli, "entry_points", lambda group: entries)


def test_a_broken_command_of_another_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    plugged(
        monkeypatch,
        absent="no_such_package.cli:app",
        nonsense="fedbo:__version__",
        demo="fedbo_paper.cli.demo:demo",
        data="fedbo_paper.cli.data:app",
    )
    result = invoke("--help")
    assert result.exit_code == 0
    assert "demo" in result.stdout and "data" in result.stdout and "join" in result.stdout
    assert "absent" not in result.stdout and "nonsense" not in result.stdout
    complaints = result.stderr.splitlines()
    assert len(complaints) == 2
    assert complaints[0] == (
        "Warning: fedbo absent (no_such_package.cli:app) did not load: "
        "ModuleNotFoundError: No module named 'no_such_package'"
    )
    assert complaints[1].startswith("Warning: fedbo nonsense (fedbo:__version__) did not load: ")
    assert invoke("data", "--help").exit_code == invoke("demo", "--help").exit_code == 0


def test_other_commands_do_not_load_a_broken_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plugged(monkeypatch, slow="no_such_package:slow", join="no_such_package:not_ours")
    for args in (["--version"], ["join", "--help"], ["federation", "show", "--help"]):
        result = invoke(*args)
        assert (result.exit_code, result.stderr) == (0, "")
    result = invoke("slow")
    assert result.exit_code == 2
    assert "No such command 'slow'" in result.stderr and "no_such_package" in result.stderr


def test_light_commands_load_nothing_heavy() -> None:
    loaded = python("-c", "import sys, fedbo.cli.app; print(*sys.modules)").stdout.split()
    assert "typer" in loaded
    assert not {"sklearn", "matplotlib", "joblib", "rich.live"} & set(loaded)
