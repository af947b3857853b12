"""`fedbo reproduce` as its users run it, and the paper's claims on seeds of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from paper.commands import SEED, findings, listen_to_ctrl_c, reproduce
from paper.real_data import folder_with

from fedbo.table import Table
from fedbo_paper.experiments import results
from fedbo_paper.experiments.spec import LABELS, MEASURED

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def fig1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fig1")
    reproduce("fig1", "--quick", "--seed", SEED, "--jobs", "2", out=out)
    return out


def test_figure_1_says_what_section_5_1_says(fig1: Path) -> None:
    found = findings(fig1)
    verdicts = {name: finding.verdict for (name, _), finding in found.items()}
    assert verdicts["near-peers-help-40"] == "holds"
    assert verdicts["near-peers-help-100"] == "holds"
    assert verdicts["far-peers-comparable-mean-100"] != "does not hold"
    assert verdicts["messages-once-or-always-40"] != "does not hold"
    assert verdicts["no-regret-far"] == "holds"
    assert found["many-observations-M-matters", "paper"].value > 0
    assert found["more-observations-help", "paper"].value > 0


def test_everything_is_in_the_folder(fig1: Path) -> None:
    runs, summary = Table.from_csv(fig1 / "runs.csv"), Table.from_csv(fig1 / "summary.csv")
    assert runs.columns == (*LABELS, *MEASURED)
    assert runs.height == 20 * 14 * 51
    assert {*summary["runs"].tolist()} == {20}
    figures = ("fig1", "fig1-cumulative", "fig1-messages")
    names = (f"{name}.{kind}" for name in figures for kind in ("png", "svg", "pdf"))
    for name in (*names, "report.html"):
        assert (fig1 / name).stat().st_size > 100
    page = (fig1 / "report.html").read_text()
    HTMLParser().feed(page)
    assert "data:image/svg+xml" in page and f"fedbo reproduce fig1 --quick --seed {SEED}" in page
    assert "it decides no claim" in page and "Section 5.1" not in page


def test_the_summary_is_of_the_runs(fig1: Path) -> None:
    runs, summary = Table.from_csv(fig1 / "runs.csv"), Table.from_csv(fig1 / "summary.csv")
    arm = {"method": "FTS", "M": 100, "t_n": 40, "d_n": 0.02, "every": 0, "iteration": 10}
    regrets, row = runs.where(**arm)["simple_regret"], summary.where(**arm)
    assert row["simple_regret"] == pytest.approx(regrets.mean())
    assert row["simple_regret_error"] == pytest.approx(regrets.std(ddof=1) / np.sqrt(20))


def test_ctrl_c_keeps_what_is_finished(fig1: Path, tmp_path: Path) -> None:
    """And going on ends with the CSV of a run that was never stopped, but for the seconds."""
    command = [sys.executable, "-m", "fedbo", "reproduce", "fig1", "--quick", "--seed", SEED]
    process = subprocess.Popen(
        [*command, "--jobs", "2", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=listen_to_ctrl_c,
    )
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and len([*tmp_path.glob("runs/*.csv")]) < 5:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=300)
    done = len([*tmp_path.glob("runs/*.csv")])
    assert process.returncode == 130 and "run the same command to resume" in said
    assert 5 <= done < 280 and not (tmp_path / "runs.csv").exists()
    for path in (fig1 / "runs").iterdir():  # all but a few of the rest were done meanwhile
        if not (tmp_path / "runs" / path.name).exists() and done < 276:
            (tmp_path / "runs" / path.name).write_bytes(path.read_bytes())
            done += 1
    reproduce("fig1", "--quick", "--seed", SEED, "--jobs", "1", out=tmp_path)
    whole, resumed = (Table.from_csv(out / "runs.csv") for out in (fig1, tmp_path))
    assert results.digest(whole) == results.digest(resumed)


def test_glass_without_its_data_says_what_to_fetch(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    failed = reproduce(
        *("fig2", "--only", "glass", "--data", str(tmp_path / "empty")),
        out=tmp_path / "out",
        check=False,
    )
    assert failed.returncode == 1
    assert "fedbo data fetch gleam" in failed.stderr and "--stand-in" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_landmine_has_every_method_and_messages_as_long_as_the_paper_says(tmp_path: Path) -> None:
    data = folder_with("LandmineData.mat")
    some = ("--only", "landmine", "--quick", "--seed", SEED, "--jobs", "2", "--data", str(data))
    reproduce("fig2", *some, out=tmp_path)
    found = findings(tmp_path)
    fewer = found["fewer-parameters-than-taf", "paper"]
    assert (fewer.verdict, fewer.high) == ("by definition", 51.51)
    runs = Table.from_csv(tmp_path / "runs.csv")
    assert {*runs["method"].tolist()} == {"TS", "FTS", "RGPE", "TAF"}
    for method in ("TS", "FTS", "RGPE", "TAF"):
        best = {n: runs.where(method=method, iteration=n)["best"].mean() for n in (0, 50)}
        assert best[50] - best[0] > 0.05
