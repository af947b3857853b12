"""The paper's figures: drawn from whatever there is, clear about what there is not, repeatable."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from matplotlib.image import imread
from paper.fake_runs import EXPERIMENTS, NONE, fake_runs

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
    return fake_runs(repeats=2, iterations=8)


@pytest.fixture(scope="module")
def everything(runs: Table) -> Material:
    return Material(runs=runs, published=PUBLISHED)


def not_run(figure: object) -> int:
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]  # type: ignore[attr-defined]
    return texts.count("not run")


class TestPaint:
    @pytest.mark.parametrize("name", NAMES)
    def test_with_everything_no_panel_is_missing(self, everything: Material, name: str) -> None:
        figure = paint(name, everything)
        assert figure.axes and all(axes.has_data() for axes in figure.axes)
        assert not_run(figure) == 0

    @pytest.mark.parametrize("name", NAMES)
    def test_without_any_runs_all_panels_say_so(self, name: str) -> None:
        figure = paint(name, Material(runs=NONE, published=PUBLISHED))
        assert not_run(figure) == len(figure.axes) > 0

    @pytest.mark.parametrize("experiment", EXPERIMENTS)
    def test_figures_of_one_experiment_alone(self, runs: Table, experiment: str) -> None:
        material = Material(runs=runs.where(experiment=experiment, preset="paper"))
        drawn = {name for name in NAMES if any(a.has_data() for a in paint(name, material).axes)}
        assert drawn == SHOWN_IN[experiment]

    def test_a_row_for_each_preset_that_was_run(self, everything: Material, runs: Table) -> None:
        only_default = Material(runs=runs.where(preset="default"))
        assert [len(paint("fig1", m).axes) for m in (everything, only_default)] == [6, 3]
        titles = [axes.get_title(loc="left") for axes in paint("fig1", only_default).axes]
        assert all("default preset" in title for title in titles)

    def test_parameters_per_peer_are_as_the_paper_counts(self, everything: Material) -> None:
        landmine = paint("fig2", everything).axes[0]
        fts = landmine.containers[0].lines[0].get_xdata()
        assert np.array_equal(fts, [50, 100, 150, 200])

    def test_a_stand_in_is_called_one(self, runs: Table) -> None:
        titles = [
            axes.get_title(loc="left")
            for axes in paint("fig2", Material(runs=runs, stand_in=True)).axes
        ]
        assert sum("stand-in" in title for title in titles) == 2


class TestDraw:
    def test_writes_png_and_svg_of_what_has_data(self, runs: Table, tmp_path: Path) -> None:
        material = Material(runs=runs.where(experiment="synthetic"))
        pictures = draw(material, tmp_path / "new", NAMES)
        assert [*pictures] == ["fig1"]
        assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
            "fig1.png",
            "fig1.svg",
        ]
        assert imread(tmp_path / "new" / "fig1.png").std() > 0.01
        assert pictures["fig1"].svg == (tmp_path / "new" / "fig1.svg").read_text(encoding="utf-8")

    def test_the_same_runs_give_the_same_files(self, runs: Table, tmp_path: Path) -> None:
        material = Material(runs=runs.where(experiment="published"), published=PUBLISHED)
        for folder in ("a", "b"):
            draw(material, tmp_path / folder, only=["published"])
        for name in ("published.png", "published.svg"):
            a, b = ((tmp_path / folder / name).read_bytes() for folder in ("a", "b"))
            assert a == b
