"""The paper's figures: drawn from whatever there is, clear about what there is not, repeatable."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from paper.made_runs import EXPERIMENTS, of_all, table

from fedbo.table import Table
from fedbo_paper.report.figures import FIGURES, Material, draw, paint

NAMES = tuple(FIGURES)


class Curve(NamedTuple):
    mean: np.ndarray
    se: np.ndarray
    runs: dict[int, dict[int, np.ndarray]]


PUBLISHED = {
    name: Curve(
        np.linspace(0.69, 0.82, 51),
        np.full(51, 0.01),
        {field: {run: np.linspace(0.69, 0.82, 51) for run in range(5)} for field in range(6)},
    )
    for name in ("TS", *(f"{m}-M{M}" for m in ("FTS", "RGPE", "TAF") for M in (50, 100, 150, 200)))
}
SHOWN_IN = {
    "synthetic": {"fig1"},
    "landmine": {"fig2", "fig3", "fig4", "appendix-landmine"},
    "glass": {"fig2", "fig3", "fig4", "appendix-glass"},
    "har": {"fig2", "fig3", "fig4", "appendix-har"},
    "agents": {"fig3"},
    "published": {"published"},
}


@pytest.fixture(scope="module")
def runs() -> Table:
    return of_all()


@pytest.fixture(scope="module")
def everything(runs: Table) -> Material:
    return Material(runs=runs, published=PUBLISHED)


def panels(figure: Figure) -> list[bool]:
    """Whether each panel has data; one that has none says so."""
    for axes in figure.axes:
        texts = [text.get_text() for text in axes.texts]
        assert ("not run" in texts) != axes.has_data()
    return [axes.has_data() for axes in figure.axes]


@pytest.mark.parametrize("name", NAMES)
def test_with_everything_no_panel_is_missing_and_with_nothing_all(
    everything: Material, name: str
) -> None:
    assert all(panels(paint(name, everything)))
    assert not any(panels(paint(name, Material(runs=table(), published=PUBLISHED))))


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_figures_of_one_experiment_alone(runs: Table, experiment: str) -> None:
    material = Material(runs=runs.where(experiment=experiment, preset="paper"))
    assert {name for name in NAMES if any(panels(paint(name, material)))} == SHOWN_IN[experiment]


def test_a_row_for_each_preset_that_was_run(everything: Material, runs: Table) -> None:
    only_default = Material(runs=runs.where(preset="default"))
    assert [len(paint("fig1", m).axes) for m in (everything, only_default)] == [6, 3]


def test_parameters_per_peer_are_as_the_paper_counts(everything: Material) -> None:
    fts = paint("fig2", everything).axes[0].containers[0].lines[0].get_xdata()
    assert np.array_equal(fts, [50, 100, 150, 200])


def test_a_stand_in_is_called_one(runs: Table) -> None:
    figure = paint("fig2", Material(runs=runs, stand_in=True))
    assert sum("stand-in" in axes.get_title(loc="left") for axes in figure.axes) == 2


def test_the_same_runs_give_the_same_files_for_what_has_data(runs: Table, tmp_path: Path) -> None:
    material = Material(runs=runs.where(experiment="published"), published=PUBLISHED)
    for folder in ("a", "b"):
        assert [*draw(material, tmp_path / folder, NAMES)] == ["published"]
    assert len([*(tmp_path / "a").iterdir()]) == 2
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    assert imread(tmp_path / "a" / "published.png").std() > 0.01
