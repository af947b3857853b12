"""Pictures of studies: what is in them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import optuna
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from optuna.trial import TrialState, create_trial

from fedbo.optuna.plots import SOURCES, plot_history, plot_peers

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


def line(axes: Axes, label: str = "best so far") -> list[float]:
    """The values of a line."""
    return next([*each.get_ydata()] for each in axes.lines if each.get_label() == label)


def points(axes: Axes) -> dict[str, Any]:
    """The points of each source of queries, as pairs of a trial and a value."""
    return {
        str(each.get_label()).partition(" (")[0]: each.get_offsets().tolist()
        for each in axes.collections
    }


def shares(axes: Axes) -> dict[str, Any]:
    """The height of each peer's bars; NaN where there is none."""
    bars = {str(patch.get_label()): patch.get_data() for patch in axes.patches}
    return {name: data.values - data.baseline for name, data in bars.items()}


class TestHistory:
    def test_the_best_so_far_goes_up_when_maximising_and_down_when_minimising(self) -> None:
        up = plot_history(study_of(1.0, 3.0, 2.0))
        down = plot_history(study_of(1.0, 3.0, 0.5, direction="minimize"))
        assert line(up) == [1.0, 3.0, 3.0]
        assert line(down) == [1.0, 1.0, 0.5]

    def test_trials_are_sorted_by_the_source_of_their_query(self) -> None:
        sources = ["initial", "own", "pool", "peer", "own", "tip"]
        attributes = [
            query(source, credit={"b": 1.0} if source == "peer" else {}) for source in sources
        ]
        study = study_of(*range(7), attributes=[*attributes, {}])
        drawn = {name: [x for x, _ in pairs] for name, pairs in points(plot_history(study)).items()}
        alone = {"initial": [0], "own": [1, 4], "told": [6]}
        assert drawn == alone | {"tip": [5], "pool": [2], "peer": [3]}

    @pytest.mark.parametrize("direction", ["maximize", "minimize"])
    def test_infinite_values_are_at_the_edge_and_never_the_best(self, direction: str) -> None:
        axes = plot_history(study_of(INF, 1.0, -INF, 2.0, direction=direction))
        low, high = axes.get_ylim()
        assert points(axes)["own"] == [[1, 1.0], [3, 2.0], [0, high], [2, low]]
        faces = axes.collections[0].get_facecolors()
        assert faces[:, 3].tolist() == [1.0, 1.0, 0.0, 0.0]
        assert np.isnan(line(axes)[0])
        assert line(axes)[-1] == (2.0 if direction == "maximize" else 1.0)

    def test_one_absurd_start_does_not_flatten_the_rest(self) -> None:
        axes = plot_history(study_of(1e9, 0.4, 0.3, 0.35, 0.32, direction="minimize"))
        low, high = axes.get_ylim()
        assert 0.0 < low < 0.3 < 0.4 < high < 1.0
        assert line(axes)[0] == 1e9

    def test_a_baseline_has_its_own_line(self) -> None:
        axes = plot_history(study_of(1.0, 3.0), study_of(0.5, 1.0, 2.0))
        assert line(axes, "best so far, alone") == [0.5, 1.0, 2.0]
        assert {"best so far", "best so far, alone", "own (2)"} <= {*texts(axes)}


class TestPeers:
    def test_trust_is_stacked_and_trials_without_any_are_gaps(self) -> None:
        axes = plot_peers(weighed({"b": 0.5}, None, {}, {"b": 0.25, "c": 0.5}, {"c": 0.125}))
        assert [*shares(axes)] == ["b", "c", "itself"]
        gap = np.nan
        expected = [[0.5, gap, gap, 0.25, 0.0], [0.0, gap, gap, 0.5, 0.125]]
        expected.append([0.5, gap, gap, 0.25, 0.875])
        np.testing.assert_array_equal([*shares(axes).values()], expected)


@pytest.mark.parametrize(("trials", "direction"), [(1, "maximize"), (30, "minimize")])
def test_every_picture_can_be_drawn(trials: int, direction: str, tmp_path: Path) -> None:
    study = busy(trials, peers=12, direction=direction)
    baseline = busy(max(1, trials - 3), seed=1, direction=direction)
    for axes in (plot_history(study, baseline), plot_peers(study)):
        axes.figure.savefig(tmp_path / "picture.png", dpi=50)
        assert (tmp_path / "picture.png").stat().st_size > 2000
