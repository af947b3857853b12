"""Pictures of studies: what is in them, with matplotlib and with plotly."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import optuna
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from optuna.trial import TrialState, create_trial

from fedbo.optuna import plots
from fedbo.optuna.plots.figure import SOURCES, Figure, Line, Points, history, peers, together

matplotlib.use("Agg")
optuna.logging.set_verbosity(optuna.logging.WARNING)

INF = math.inf


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    pyplot.close("all")


def query(source: str = "own", **more: Any) -> dict[str, Any]:
    return {"fedbo:query": {"source": source, **more}}


def study_of(
    *values: float | TrialState, direction: str = "maximize", name: str = "site", **more: Any
) -> optuna.Study:
    """A study with these values, or ends without one; `attributes` are the trials' own."""
    attributes = more.pop("attributes", [query()] * len(values))
    study = optuna.create_study(direction=direction, study_name=name)
    for value, attribute in zip(values, attributes, strict=True):
        state = value if isinstance(value, TrialState) else TrialState.COMPLETE
        score = None if isinstance(value, TrialState) else value
        study.add_trial(create_trial(state=state, value=score, system_attrs=attribute, **more))
    return study


def weighed(*weights: dict[str, float] | None, name: str = "site") -> optuna.Study:
    attributes = [query(trust=w) if w is not None else {} for w in weights]
    return study_of(*[1.0] * len(weights), attributes=attributes, name=name)


def busy(trials: int, peers: int = 3, seed: int = 0, direction: str = "maximize") -> optuna.Study:
    """With some of everything."""
    rng = np.random.default_rng(seed)
    values: list[float | TrialState] = [*rng.normal(size=trials)]
    attributes = []
    for i in range(trials):
        shares = rng.dirichlet(np.ones(peers)) * 0.6
        named = {f"a-hospital-with-a-long-name-{k}": float(shares[k]) for k in range(min(8, peers))}
        source = str(rng.choice([*SOURCES]))
        credit = {"pool": named, "peer": dict([*named.items()][:1])}.get(source, {})
        attributes.append(query(source, trust=named, credit=credit))
        if i % 7 == 3:
            values[i] = (INF, -INF, TrialState.PRUNED, TrialState.FAIL)[i // 7 % 4]
    study = study_of(*values, direction=direction, name="$C_1$ <b>_", attributes=attributes)
    study.ask()
    return study


def texts(axes: Axes) -> list[str]:
    """Everything that is written."""
    figure = axes.figure
    legends = [*figure.legends, *([axes.get_legend()] if axes.get_legend() else [])]
    lines = [text.get_text() for legend in legends for text in legend.get_texts()]
    return [axes.get_title("left"), *lines, *(text.get_text() for text in axes.texts)]


def plotly(plot: Callable[..., Any], *studies: Any) -> Any:
    return plot(*studies, backend="plotly")


def marks(figure: Figure, panel: int = 0) -> dict[str, Any]:
    """What is drawn, by the name in the legend without a count."""
    return {mark.name.partition(" (")[0]: mark for mark in figure.panels[panel].marks}


def best(figure: Figure) -> list[float]:
    return [*marks(figure)["best so far"].y]


def shares(figure: Figure) -> dict[str, Any]:
    return {bars.name: bars.high - bars.low for bars in figure.panels[0].marks}


def gain(figure: Figure) -> Line:
    (line,) = figure.panels[1].marks
    assert isinstance(line, Line)
    return line


class TestHistory:
    def test_the_best_so_far_goes_up_when_maximising_and_down_when_minimising(self) -> None:
        up = history(study_of(1.0, 3.0, 2.0))
        down = history(study_of(1.0, 3.0, 0.5, direction="minimize"))
        assert best(up) == [1.0, 3.0, 3.0]
        assert best(down) == [1.0, 1.0, 0.5]

    def test_trials_without_a_value_change_nothing_and_are_counted_by_their_end(self) -> None:
        study = study_of(TrialState.FAIL, 1.0, TrialState.PRUNED, 2.0)
        study.ask()
        study.enqueue_trial({"x": 1})
        drawn = history(study)
        np.testing.assert_array_equal(best(drawn), [np.nan, 1.0, 1.0, 2.0, 2.0])

    def test_trials_are_sorted_by_the_source_of_their_query(self) -> None:
        sources = ["initial", "own", "pool", "peer", "own", "tip"]
        attributes = [
            query(source, credit={"b": 1.0} if source == "peer" else {}) for source in sources
        ]
        study = study_of(*range(7), attributes=[*attributes, {}])
        found = marks(history(study)).items()
        drawn = {name: mark.x.tolist() for name, mark in found if isinstance(mark, Points)}
        alone = {"initial": [0], "own": [1, 4], "told": [6]}
        assert drawn == alone | {"tip": [5], "pool": [2], "peer": [3]}

    def test_what_was_enqueued_is_told_though_the_sampler_was_asked_as_well(self) -> None:
        enqueued = query("own") | {"fixed_params": {"x": 0.5}}
        drawn = history(study_of(1.0, attributes=[enqueued]))
        assert [*marks(drawn)] == ["best so far", "told"]

    def test_a_note_says_who_had_a_share_in_the_query(self) -> None:
        pool = query("pool", credit={"site-b": 0.75, "site-c": 0.25})
        peer = query("peer", credit={"site-d": 1.0})
        tip = query("tip", credit={"site-e": 1.0})
        drawn = history(study_of(0.5, 0.25, 0.75, attributes=[pool, peer, tip]))
        assert marks(drawn)["pool"].notes == ["trial 0: 0.5, pool (site-b 75%, site-c 25%)"]
        assert marks(drawn)["peer"].notes == ["trial 1: 0.25, peer (site-d 100%)"]
        assert marks(drawn)["tip"].notes == ["trial 2: 0.75, tip (site-e 100%)"]

    @pytest.mark.parametrize("direction", ["maximize", "minimize"])
    def test_infinite_values_are_at_the_edge_and_never_the_best(self, direction: str) -> None:
        drawn = history(study_of(INF, 1.0, -INF, 2.0, direction=direction))
        low, high = drawn.panels[0].ylim
        assert marks(drawn)["own"].is_hollow.tolist() == [False, False, True, True]
        assert marks(drawn)["own"].y.tolist() == [1.0, 2.0, high, low]
        assert np.isnan(best(drawn)[0])
        assert best(drawn)[-1] == (2.0 if direction == "maximize" else 1.0)

    def test_one_absurd_start_does_not_flatten_the_rest(self) -> None:
        drawn = history(study_of(1e9, 0.4, 0.3, 0.35, 0.32, direction="minimize"))
        low, high = drawn.panels[0].ylim
        assert 0.0 < low < 0.3 < 0.4 < high < 1.0
        assert best(drawn)[0] == 1e9

    def test_the_title_has_the_best_trial(self) -> None:
        study = study_of(1.0, -3.0, attributes=[query(), query("pool")], direction="minimize")
        assert history(study).title == "site: best −3 at trial 1 (pool)"

    def test_a_baseline_has_its_own_line(self) -> None:
        drawn = history(study_of(1.0, 3.0), study_of(0.5, 1.0, 2.0))
        assert marks(drawn)["best so far, alone"].y.tolist() == [0.5, 1.0, 2.0]
        axes = plots.plot_history(study_of(1.0, 3.0), study_of(0.5, 1.0, 2.0))
        assert {"best so far", "best so far, alone", "own (2)"} <= {*texts(axes)}

    def test_a_baseline_of_the_other_direction_is_refused(self) -> None:
        down = study_of(1.0, direction="minimize", name="down")
        with pytest.raises(ValueError, match="'up' maximises and 'down' minimises"):
            plots.plot_history(study_of(1.0, name="up"), down)

    def test_several_objectives_are_refused(self) -> None:
        study = optuna.create_study(directions=["minimize", "maximize"], study_name="two")
        with pytest.raises(ValueError, match="'two' has 2 objectives, expected one"):
            plots.plot_history(study)


class TestPeers:
    def test_trust_is_stacked_and_trials_without_any_are_gaps(self) -> None:
        drawn = peers(weighed({"b": 0.5}, None, {}, {"b": 0.25, "c": 0.5}, {"c": 0.125}))
        assert [*shares(drawn)] == ["b", "c", "itself"]
        gap = np.nan
        expected = [[0.5, gap, gap, 0.25, 0.0], [0.0, gap, gap, 0.5, 0.125]]
        expected.append([0.5, gap, gap, 0.25, 0.875])
        np.testing.assert_array_equal([*shares(drawn).values()], expected)

    def test_more_than_eight_peers_are_others(self) -> None:
        trials = [{f"peer-{k}": 0.1 - 0.001 * k} for k in range(12)]
        drawn = peers(weighed(*trials))
        assert [*shares(drawn)] == [*(f"peer-{k}" for k in range(8)), "4 more", "itself"]
        others = shares(drawn)["4 more"]
        np.testing.assert_allclose(others, [0.0] * 8 + [0.092, 0.091, 0.09, 0.089], atol=1e-15)

    @pytest.mark.parametrize("trials", [1, 2, 40])
    def test_areas_are_stacked_up_to_one(self, trials: int) -> None:
        axes = plots.plot_peers(weighed(*[{"b": 0.5, "c": 0.25}] * trials))
        tops = [np.nanmax(patch.get_data().values) for patch in axes.patches]
        assert tops == [0.5, 0.75, 1.0]
        figure = plotly(plots.plot_peers, weighed(*[{"b": 0.5, "c": 0.25}] * trials))
        assert [bar.y[0] for bar in figure.data] == [0.5, 0.25, 0.25]

    def test_a_name_that_a_legend_would_hide_or_read_as_mathematics_is_shown(self) -> None:
        axes = plots.plot_peers(weighed({"_hidden": 0.5, "$x$": 0.2}))
        axes.figure.canvas.draw()
        assert {" _hidden", "$x$"} <= {*texts(axes)}
        figure = plotly(plots.plot_peers, weighed({"<b>": 0.5}))
        assert figure.data[0].name == "&lt;b&gt;"

    @pytest.mark.parametrize(
        ("study", "sentence"),
        [
            (optuna.create_study(), "No trial says how much it relied on peers"),
            (weighed({}, {}), "No trial says how much it relied on peers"),
        ],
    )
    def test_without_trust_a_sentence_says_why(self, study: optuna.Study, sentence: str) -> None:
        assert any(sentence in text for text in texts(plots.plot_peers(study)))
        assert sentence in plotly(plots.plot_peers, study).layout.annotations[0].text


class TestTogether:
    def test_as_many_of_either_are_paired(self) -> None:
        ours = [study_of(1.0, 4.0), study_of(2.0, 2.0)]
        alone = [study_of(0.0, 1.0), study_of(1.0, 1.0)]
        drawn = together(ours, alone)
        line = marks(drawn)["together"]
        assert line.y.tolist() == [1.5, 3.0]
        assert line.error.tolist() == [0.5, 1.0]
        assert gain(drawn).y.tolist() == [1.0, 2.0]
        np.testing.assert_array_equal(gain(drawn).error, [0.0, 1.0])
        assert drawn.title == "Gain by collaborating after 2 trials: +2 ± 1 (paired)"

    def test_better_is_lower_when_minimising(self) -> None:
        low, high = study_of(1.0, direction="minimize"), study_of(3.0, direction="minimize")
        assert gain(together([low], [high])).y.tolist() == [2.0]
        worse = together([high], [low])
        assert worse.title == "Gain by collaborating after 1 trial: −2"

    def test_failed_trials_took_a_trial_and_running_ones_have_not_yet(self) -> None:
        study = study_of(1.0, TrialState.FAIL, 2.0)
        study.ask()
        drawn = together([study], [study_of(TrialState.FAIL, 1.0, 1.0, 1.0)])
        np.testing.assert_array_equal(marks(drawn)["together"].y, [1.0, 1.0, 2.0])
        np.testing.assert_array_equal(gain(drawn).y, [np.nan, 0.0, 1.0])

    def test_studies_that_have_nothing_in_common_make_a_sentence(self) -> None:
        empty = optuna.create_study(direction="maximize")
        sentence = "There is no trial after which every study has a value."
        assert sentence in texts(plots.plot_together([study_of(1.0)], [empty]))
        figure = plotly(plots.plot_together, [study_of(1.0)], [empty])
        assert figure.layout.annotations[0].text == sentence

    def test_no_study_or_one_that_is_not_in_a_list_is_refused(self) -> None:
        with pytest.raises(ValueError, match="baselines is empty"):
            plots.plot_together([study_of(1.0)], [])
        with pytest.raises(TypeError, match="studies is one study, expected a list"):
            plots.plot_together(study_of(1.0), [study_of(1.0)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("trials", "direction"),
    [
        (1, "maximize"),
        (30, "minimize"),
        pytest.param(1000, "maximize", marks=pytest.mark.slow),
    ],
)
def test_every_picture_can_be_drawn(trials: int, direction: str, tmp_path: Path) -> None:
    study = busy(trials, peers=12, direction=direction)
    baseline = busy(max(1, trials - 3), seed=1, direction=direction)
    drawn = (
        plots.plot_history(study, baseline),
        plots.plot_peers(study),
        plots.plot_together([study, study], [baseline, baseline]),
    )
    for axes in drawn:
        axes.figure.savefig(tmp_path / "picture.png", dpi=50)
        assert (tmp_path / "picture.png").stat().st_size > 2000
    for figure in (
        plotly(plots.plot_history, study, baseline),
        plotly(plots.plot_peers, study),
        plotly(plots.plot_together, [study, study], [baseline, baseline]),
    ):
        written = json.loads(figure.to_json(), parse_constant=pytest.fail)  # no NaN, no infinity
        assert written["data"]


def test_both_libraries_draw_the_same_history() -> None:
    study, baseline = busy(30), busy(25, seed=1)
    figure = plotly(plots.plot_history, study, baseline)
    axes = plots.plot_history(study, baseline)
    assert [trace.name for trace in figure.data] == texts(axes)[1:]
    assert list(figure.data[0].y)[-1] == axes.lines[0].get_ydata()[-1]


@pytest.mark.parametrize("backend", ["matplotlib", "plotly"])
def test_a_library_that_is_not_installed_is_named(
    backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"fedbo.optuna.plots.draw_{backend}", raising=False)
    loaded = [name for name in sys.modules if name.split(".")[0] == backend]
    for name in [backend, *loaded]:
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    with pytest.raises(ImportError, match=f"pip install {backend}"):
        plots.plot_history(study_of(1.0), backend=backend)
