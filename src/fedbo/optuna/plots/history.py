"""The trials of a study by the source of their query, and the best value so far."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from fedbo.optuna import private
from fedbo.optuna.plots import figure
from fedbo.optuna.plots.figure import GREY, Figure, Floats, Line, Panel, Points, shorten
from fedbo.optuna.study import read_origin

#: The colour and symbol of each source. Colours by Okabe and Ito, for colour-blind people.
SOURCES = {
    "initial": ("#888888", "square"),
    "tip": ("#009E73", "cross"),
    "own": ("#0072B2", "circle"),
    "pool": ("#E69F00", "diamond"),
    "peer": ("#D55E00", "triangle-up"),
    "told": ("#000000", "x"),
}
ALONE = "#0072B2"

_WITHOUT_VALUE = {
    TrialState.PRUNED: ("pruned", "line-ns-open"),
    TrialState.FAIL: ("failed", "x-thin-open"),
    TrialState.RUNNING: ("running", "circle"),
}
_MANY = 150  # more trials than this are drawn small
_FAR = 2.5  # times the upper quartile of all lags: a trial with a larger lag is far off
_FLATTENED = 100.0  # times the median lag: a best value with a larger lag would flatten the rest


def history(study: Study, baseline: Study | None = None) -> Figure:
    """Describe the history of a study, beside that of one that was run alone."""
    sign = figure.sign_of([study] if baseline is None else [study, baseline])
    trials = figure.begun_trials(study)
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    best = figure.best_so_far(trials, sign)
    title, size = figure.titled(study, _headline(complete, best)), (7.5, 4.2)
    if not complete:
        return Figure(title=title, size=size, empty="No trial has a value yet.")
    lines = [_best_line("best so far", best, "#000000")]
    if baseline is not None:
        alone = figure.best_so_far(figure.begun_trials(baseline), sign)
        lines.append(_best_line("best so far, alone", alone, ALONE, is_dashed=True))
    values = np.array([trial.value for trial in complete], dtype=np.float64)
    low, high = _ends(values, np.concatenate([line.y for line in lines]), sign)
    is_small = len(trials) > _MANY
    points = _by_source(complete, values, low, high, is_small=is_small) + _without_value(trials)
    panel = Panel(
        marks=[*lines, *points],
        xlabel="trial",
        ylabel=figure.metric_of(study),
        xlim=(-0.6, max(len(line.y) for line in lines) - 0.4),
        ylim=(low, high),
    )
    return Figure(title=title, size=size, panels=[panel])


def _headline(complete: Sequence[FrozenTrial], best: Floats) -> str:
    if not len(best) or math.isnan(best[-1]):
        return "no finite value yet"
    first = next(trial for trial in complete if figure.countable(trial) == best[-1])
    value = f"{best[-1]:.4g}"
    value = value.replace("-", "−", 1) if best[-1] < 0 else value
    return f"best {value} at trial {first.number} ({_source(first)})"


def _best_line(name: str, best: Floats, colour: str, *, is_dashed: bool = False) -> Line:
    x = np.arange(len(best), dtype=np.float64)
    return Line(name=name, x=x, y=best, colour=colour, is_dashed=is_dashed, is_stepped=True)


def _by_source(
    complete: Sequence[FrozenTrial], values: Floats, low: float, high: float, *, is_small: bool
) -> list[Points]:
    """The trials with a value; those that are too far off are hollow and at the edge."""
    found = []
    for source, (colour, symbol) in SOURCES.items():
        chosen = [i for i, trial in enumerate(complete) if _source(trial) == source]
        if not chosen:
            continue
        y = values[chosen]
        points = Points(
            name=f"{source} ({len(chosen)})",
            x=np.array([complete[i].number for i in chosen], dtype=np.float64),
            y=np.clip(y, low, high),
            colour=colour,
            symbol=symbol,
            notes=[_note(complete[i]) for i in chosen],
            is_hollow=(y < low) | (y > high),
            is_small=is_small,
        )
        found.append(points)
    far = sum(int(points.is_hollow.sum()) for points in found)
    return found + ([_grey(f"far off, at the edge ({far})", "circle")] if far else [])


def _without_value(trials: Sequence[FrozenTrial]) -> list[Points]:
    found = []
    for state, (name, symbol) in _WITHOUT_VALUE.items():
        numbers = [trial.number for trial in trials if trial.state == state]
        notes = [f"trial {number}: {name}" for number in numbers]
        found += [_grey(f"{name} ({len(numbers)})", symbol, numbers, notes)] if numbers else []
    return found


def _grey(name: str, symbol: str, numbers: Sequence[int] = (), notes: Sequence[str] = ()) -> Points:
    n = len(numbers)
    return Points(
        name=name,
        x=np.array(numbers, dtype=np.float64),
        y=np.zeros(n),
        colour=GREY,
        symbol=symbol,
        notes=[*notes],
        is_hollow=np.zeros(n, dtype=bool),
        is_above=n > 0,
    )


def _source(trial: FrozenTrial) -> str:
    """Where a trial's query came from; an enqueued trial did not come from the sampler."""
    origin = read_origin(trial)
    return "told" if origin is None or private.is_enqueued(trial) else origin.source


def _note(trial: FrozenTrial) -> str:
    """A text such as "trial 7: 0.931, pool (site-b 60%, site-c 40%)"."""
    origin, source = read_origin(trial), _source(trial)
    text = f"trial {trial.number}: {trial.value:.6g}, {source}"
    if origin is None or source not in ("tip", "pool", "peer"):
        return text
    shares = [f"{shorten(name)} {share:.0%}" for name, share in origin.credit.items()]
    names = ", ".join(shares) if origin.peer is None else shorten(origin.peer)
    return f"{text} ({names})" if names else text


def _ends(values: Floats, best: Floats, sign: float) -> tuple[float, float]:
    """The ends of the y axis: the best values so far and most trials lie between them.

    The lag of a trial is how much worse its value is than the best one.
    """
    finite = sign * values[np.abs(values) < figure.ENDLESS]
    best = sign * best[np.isfinite(best)]
    if not len(finite) and not len(best):
        return 0.0, 1.0
    top = float(np.concatenate([best, finite]).max())
    if len(finite):
        lags = top - finite
        usual, most = float(np.median(lags)), float(np.quantile(lags, 0.75))
        best = best[top - best <= _FLATTENED * usual] if usual else best
        best = np.append(best, finite[lags <= _FAR * most] if most else finite)
    bottom = float(best.min())
    margin = figure.MARGIN * (top - bottom) or 0.1 * abs(top) or 0.5
    low, high = sign * (bottom - margin), sign * (top + margin)
    return min(low, high), max(low, high)
