"""What the report says of runs: only of what was asked for, with the figures of these runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from paper.fake_runs import fake_runs

from fedbo.table import Table
from fedbo_paper.experiments.published import Curve, Published
from fedbo_paper.experiments.selection import wanted
from fedbo_paper.experiments.spec import Selection
from fedbo_paper.report.choices import choices, commands
from fedbo_paper.report.contents import contents
from fedbo_paper.report.report import Contents

pytestmark = pytest.mark.slow

EVERYTHING = wanted(["all"], presets=("paper", "default"))
RUNS = fake_runs(targets=2, repeats=2, iterations=50)
QUANTITIES = ("random", "message", "best", "height", "highest", "message_gain", "best_gain")
WORTH = Table.from_rows(
    ("quantity", "mean", "standard_error", "low", "high", "targets", "values"),
    [[name, 0.6, 0.01, 0.5, 0.7, 29, 290] for name in QUANTITIES],
)
RUN = tuple([0.6, *[0.7] * 50])
CURVE = Curve(
    mean=RUN, se=(0.01,) * 51, seconds=1.0, runs={f: {r: RUN for r in (0, 1)} for f in (0, 1)}
)
PUBLISHED = Published(curves={"TS": CURVE, "FTS-M100": CURVE}, inits={})


def said(selections: list[Selection], tmp_path: Path, **missing: str) -> Contents:
    worths = [("landmine", "paper", WORTH)]
    return contents(RUNS, selections, missing, worths, PUBLISHED, tmp_path)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    return said(EVERYTHING, tmp_path_factory.mktemp("everything"), glass="Fetch it.")


def test_all_that_was_run_is_said(everything: Contents) -> None:
    page = everything
    assert {finding.preset for finding in page.findings} == {"paper", "default", "published"}
    assert {"fig1", "fig2", "fig3", "published", "diagnostics"} <= {*page.notes}
    assert {"fig1", "fig2", "published", "diagnostics"} == {grid.chapter for grid in page.grids}
    text = " ".join(paragraph for said in page.notes.values() for paragraph in said)
    assert "nan" not in text
    assert "within two standard errors" in text and "0.600 on average" in text


def test_only_what_was_asked_for_is_judged_and_drawn(tmp_path: Path) -> None:
    (tmp_path / "fig4.png").write_bytes(b"old")
    page = said(wanted(["fig3"], only="landmine"), tmp_path)
    assert {finding.figure for finding in page.findings} == {"fig3"}
    assert {finding.preset for finding in page.findings} == {"paper"}
    assert [*page.pictures] == ["fig3"] and {*page.notes} == {"fig3"}
    assert not (tmp_path / "fig4.png").exists()


def test_what_is_missing_is_said(everything: Contents) -> None:
    left_out = ("Activity recognition with Google Glass", "not run: Fetch it.")
    assert left_out in everything.settings


def test_commands_have_the_options_that_were_given() -> None:
    [selection] = wanted(
        ["fig2"], only="glass", quick=True, seed=3, problem={"stand_in": True, "epochs": 5}
    )
    both = msgspec.structs.replace(selection, figures=("fig2", "fig4"))
    [(title, command)] = commands([both])
    assert title == "Activity recognition with Google Glass, paper preset"
    options = "--only glass --quick --seed 3 --stand-in --epochs 5"
    assert command.split("\n") == [f"fedbo reproduce {name} {options}" for name in ("fig2", "fig4")]


@pytest.mark.parametrize(
    ("selections", "expected"),
    [
        (wanted(["fig1"], quick=True), "20 × 1 initialisations"),
        (wanted(["fig2"], only="har", problem={"epochs": 7}), "for 7 epochs"),
        (wanted(["fig2"], only="landmine", problem={"box": "log"}), "searched on log scales"),
        (wanted(["published"]), "which is noisy, as in the paper"),
    ],
)
def test_choices_are_those_of_the_run(selections: list[Selection], expected: str) -> None:
    assert any(expected in choice for _, choice in choices(selections))
