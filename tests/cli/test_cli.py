"""The command line, as a person meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from typer.testing import CliRunner, Result

import fedbo
from fedbo.cli import app as cli
from fedbo.cli import checks
from fedbo.table import Table
from fedbo_paper.demo.demo import Demo, play

SMALL = ["demo", "--agents", "5", "--trials", "5", "--repeats", "1"]


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
    for option in ("--agents", "--trials", "--repeats", "--seed", "--jobs", "--out", "--csv"):
        assert option in text


def test_demo_reports_draws_and_writes(tmp_path: Path) -> None:
    picture, csv = tmp_path / "demo.png", tmp_path / "demo.csv"
    result = invoke(*SMALL, "--jobs", "1", "--out", str(picture), "--csv", str(csv))
    assert result.exit_code == 0, result.output
    assert "the mean best accuracy" in result.stdout
    assert f"The figure is in {picture}." in result.stdout
    assert np.ptp(imread(picture)[..., :3]) > 0.5
    table = Table.from_csv(csv)
    assert table.height == 5 * 5 * 2
    assert set(table["mode"]) == {"alone", "together"}


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--agents", "1"], "agents is 1, expected 2 to 24"),
        (["--agents", "many"], "valid int"),
        (["--trials", "3"], "trials is 3, expected 4 to 1000: 3 are initial points"),
        (["--jobs", "0"], "--jobs"),
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


def test_ctrl_c_before_anything_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedbo_paper.demo.screen.play_all", interrupted)
    result = invoke(*SMALL, "--out", str(tmp_path / "demo.png"))
    assert result.exit_code == 130
    assert "Stopped after 0 of 50 trials. No repeat is finished" in result.stdout
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_as_a_program_with_two_processes(tmp_path: Path) -> None:
    done = python("-m", "fedbo", *SMALL, "--jobs", "2", "--csv", "demo.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "One repeat gives no standard error" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert (tmp_path / "fedbo-demo.png").stat().st_size > 10_000
    table = Table.from_csv(tmp_path / "demo.csv")
    here = play(Demo(agents=5, trials=5, repeats=1), 0, "together")
    assert np.array_equal(table.where(mode="together")["param_C"], here["param_C"])


def test_commands_come_in_an_order_that_helps() -> None:
    text = invoke("--help").stdout
    lines = [line.split()[1] for line in text.splitlines() if line.startswith("│ ")]
    commands = [word for word in lines if not word.startswith("-")]
    assert commands[:6] == ["federation", "join", "exchange", "identity", "ledger", "explain"]
    assert commands[6:] == ["data", "demo", "reproduce"]


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
