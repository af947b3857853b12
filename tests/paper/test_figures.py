"""The paper's figures: drawn from whatever there is, without empty panels, repeatable."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from paper.made_runs import EXPERIMENTS, of_all, table

from fedbo.table import Table
from fedbo_paper.report.figures import FIGURES, draw, paint
from fedbo_paper.report.sheet import Material

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
    "synthetic": {"fig1", "fig1-cumulative", "fig1-messages"},
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
    """Whether each panel has data; one that has none is not shown."""
    assert all(axes.get_visible() == axes.has_data() for axes in figure.axes)
    return [axes.has_data() for axes in figure.axes]


@pytest.mark.parametrize("name", NAMES)
def test_with_everything_no_panel_is_missing_and_with_nothing_all(
    everything: Material, name: str
) -> None:
    assert all(panels(paint(name, everything)))
    assert not any(panels(paint(name, Material(runs=table(), published=PUBLISHED))))


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_figures_of_one_experiment_alone(runs: Table, experiment: str) -> None:
    only = runs.where(experiment=experiment, preset="paper")
    material = Material(runs=only, published=PUBLISHED)
    drawn = {name: panels(paint(name, material)) for name in NAMES}
    assert {name for name, shown in drawn.items() if any(shown)} == SHOWN_IN[experiment]
    assert all(all(drawn[name]) for name in SHOWN_IN[experiment])


def test_a_row_for_each_preset_that_was_run(everything: Material, runs: Table) -> None:
    only_default = Material(runs=runs.where(preset="default"))
    assert [len(paint("fig1", m).axes) for m in (everything, only_default)] == [8, 4]


def test_regrets_that_span_decades_have_a_logarithmic_axis(everything: Material) -> None:
    for name in ("fig1", "fig1-messages"):
        assert {axes.get_yscale() for axes in paint(name, everything).axes} == {"log"}
    assert {axes.get_yscale() for axes in paint("fig1-cumulative", everything).axes} == {"linear"}


def test_lengths_of_messages_are_what_is_sent(everything: Material) -> None:
    fts, rgpe, _ = paint("fig2", everything).axes[0].containers
    assert np.array_equal(fts.lines[0].get_xdata(), [50, 100, 150, 200])
    sent = [1 + M + M * (M + 1) / 2 for M in (50, 100, 150, 200)]
    assert rgpe.lines[0].get_xdata() == pytest.approx(0.95 * np.array(sent))  # beside TAF's


def test_lines_can_be_told_apart(everything: Material) -> None:
    for name in NAMES:
        for axes in paint(name, everything).axes:
            drawn = [line for line in axes.lines if not line.get_label().startswith("_")]
            drawn += [bars.lines[0] for bars in axes.containers]
            looks = [
                (line.get_color(), str(line._unscaled_dash_pattern), line.get_marker())
                for line in drawn
            ]
            assert len(set(looks)) == len(looks), name


def test_a_stand_in_is_called_one(runs: Table) -> None:
    for name, panels in (("fig2", 2), ("fig3", 2), ("fig4", 2), ("appendix-glass", 10)):
        figure = paint(name, Material(runs=runs, stand_in=True))
        titles = [axes.get_title(loc="left") for axes in figure.axes]
        assert sum("made-up data" in title for title in titles) == panels


def test_the_same_runs_give_the_same_files_for_what_has_data(runs: Table, tmp_path: Path) -> None:
    material = Material(runs=runs.where(experiment="published"), published=PUBLISHED)
    for folder in ("a", "b"):
        assert [*draw(material, tmp_path / folder, NAMES)] == ["published"]
    assert {path.suffix for path in (tmp_path / "a").iterdir()} == {".png", ".svg", ".pdf"}
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    assert imread(tmp_path / "a" / "published.png").std() > 0.01
