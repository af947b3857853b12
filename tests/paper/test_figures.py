"""The paper's figures: drawn from whatever there is, clear about what there is not, repeatable."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from matplotlib.image import imread
from paper.fake_runs import EXPERIMENTS, NONE, fake_runs

from fedbo.table import Table
from fedbo_paper.report import curves
from fedbo_paper.report.captions import WORDS
from fedbo_paper.report.figures import NAMES, Material, draw, paint

pytestmark = pytest.mark.slow


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
SCORES = Table.from_rows(
    ["quantity", "mean", "standard_error"],
    [("random", 0.67, 0.01), ("message", 0.70, 0.01), ("best", 0.73, 0.01), ("height", 2.0, 0.1)],
)
WORTH = tuple((f"landmine, {preset}", SCORES) for preset in ("paper preset", "default preset"))
SHOWN_IN = {
    "synthetic": {"fig1"},
    "landmine": {"fig2", "fig3", "fig4", "appendix-landmine", "landmine-curves"},
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
    return Material(runs=runs, published=PUBLISHED, worth=WORTH)


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

    def test_one_method_one_run_one_iteration(self) -> None:
        small = fake_runs(["landmine"], ["paper"], targets=1, repeats=1, iterations=1)
        for name in ("fig2", "fig3", "fig4", "landmine-curves"):
            paint(name, Material(runs=small.where(method="TS")))
            paint(name, Material(runs=small))

    def test_presets_share_their_axes(self, everything: Material) -> None:
        axes = paint("fig2", everything).axes
        assert axes[0].get_ylim() == axes[3].get_ylim()
        assert axes[0].get_xlim() == axes[3].get_xlim()

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

    def test_queries_are_named_for_their_source(self, everything: Material) -> None:
        labels = [
            tick.get_text() for tick in paint("diagnostics", everything).axes[0].get_yticklabels()
        ]
        assert labels == ["random point", "message", "peer's best point"]

    def test_growing_t_n_needs_runs_of_it(self, runs: Table) -> None:
        assert not_run(paint("fig4", Material(runs=runs.where(every=0)))) == 6

    def test_an_unknown_figure(self) -> None:
        with pytest.raises(ValueError, match="no figure 'fig9', only fig1, fig2"):
            paint("fig9", Material(runs=NONE))


class TestDraw:
    @pytest.mark.slow
    def test_writes_png_and_svg_of_what_has_data(self, runs: Table, tmp_path: Path) -> None:
        material = Material(runs=runs.where(experiment="synthetic"))
        pictures = draw(material, tmp_path / "new")
        assert [*pictures] == ["fig1"]
        assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
            "fig1.png",
            "fig1.svg",
        ]
        assert imread(tmp_path / "new" / "fig1.png").std() > 0.01
        assert pictures["fig1"].svg == (tmp_path / "new" / "fig1.svg").read_text(encoding="utf-8")
        assert pictures["fig1"].alt

    @pytest.mark.slow
    def test_the_same_runs_give_the_same_files(self, runs: Table, tmp_path: Path) -> None:
        material = Material(runs=runs.where(experiment="published"), published=PUBLISHED)
        for folder in ("a", "b"):
            draw(material, tmp_path / folder, only=["published"])
        for name in ("published.png", "published.svg"):
            a, b = ((tmp_path / folder / name).read_bytes() for folder in ("a", "b"))
            assert a == b

    def test_every_figure_has_words(self) -> None:
        assert {*WORDS} == {*NAMES}
        assert all(all(words) for words in WORDS.values())


class TestCurves:
    ROWS = Table.from_rows(
        ["target", "repeat", "seed", "iteration", "best", "seconds", "seconds_evaluation"],
        [
            (0, 1, 0, 0, 0.1, 1.0, 2.0),
            (0, 1, 0, 0, 0.2, 1.0, 2.0),
            (0, 0, 0, 0, 0.3, 1.0, 2.0),
            (0, 0, 0, 1, 0.4, 1.0, 2.0),
            (0, 1, 0, 1, 0.5, 1.0, 2.0),
        ],
    )

    def test_the_last_initial_point_counts(self) -> None:
        best = curves.by_run(self.ROWS, "best")
        assert {run: curve.tolist() for run, curve in best.items()} == {
            (0, 0, 0): [0.3, 0.4],
            (0, 1, 0): [0.2, 0.5],
        }

    def test_time_includes_all_initial_points_and_evaluations(self) -> None:
        both = curves.totals_by_run(self.ROWS, "seconds", "seconds_evaluation")
        assert both[0, 1, 0].tolist() == [6.0, 9.0]
        evaluations = curves.totals_by_run(self.ROWS, "seconds_evaluation")
        assert evaluations[0, 1, 0].tolist() == [4.0, 6.0]

    def test_no_rows_no_curves(self) -> None:
        assert curves.by_run(NONE, "best") == {}
