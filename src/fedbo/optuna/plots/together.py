"""The mean best values of studies that collaborated and of studies that ran alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from optuna.study import Study
from optuna.trial import TrialState

from fedbo.optuna.plots import figure
from fedbo.optuna.plots.figure import Figure, Floats, Line, Panel

_TOGETHER, _ALONE = "#D55E00", "#0072B2"  # by Okabe and Ito, for colour-blind people
_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
_START = 5  # the first fifth of a curve is its start
_STEEP = 3.0  # times the height of the rest: a start that needs a longer axis is cut off


def together(studies: Sequence[Study], baselines: Sequence[Study]) -> Figure:
    """Describe the mean best values and the gain, up to the end of the shortest study.

    The gain is positive if collaborating is better. It is the mean difference of the pairs if there
    are as many studies as baselines, and the difference of the means otherwise.
    """
    for name, given in (("studies", studies), ("baselines", baselines)):
        if isinstance(given, Study):
            raise TypeError(f"{name} is one study, expected a list of them")
        if not len(given):
            raise ValueError(f"{name} is empty, expected at least one study")
    sign = figure.sign_of([*studies, *baselines])
    curves = []
    for study in (*studies, *baselines):
        finished = [trial for trial in figure.begun_trials(study) if trial.state in _FINISHED]
        curves.append(figure.best_so_far(finished, sign))
    T = min(map(len, curves))
    rows = np.array([curve[:T] for curve in curves]).reshape(len(curves), T)
    ours, theirs = rows[: len(studies)], rows[len(studies) :]
    (mean, error), (mean_alone, error_alone) = _mean(ours), _mean(theirs)
    is_paired = len(ours) == len(theirs)
    if is_paired:
        gain, gain_error = _mean(sign * (ours - theirs))
    else:
        gain, gain_error = sign * (mean - mean_alone), np.hypot(error, error_alone)
    size = 6.5, 5.2
    if not np.isfinite(gain).any():
        sentence = "There is no trial after which every study has a value."
        return Figure(title="Together and alone", size=size, empty=sentence)
    x = np.arange(1.0, T + 1)
    label, label_alone = (
        f"{word}, {count} {'study' if count == 1 else 'studies'}"
        for word, count in (("together", len(ours)), ("alone", len(theirs)))
    )
    upper = [
        Line(name=label, x=x, y=mean, error=error, colour=_TOGETHER),
        Line(name=label_alone, x=x, y=mean_alone, error=error_alone, colour=_ALONE, is_dashed=True),
    ]
    lower = Line(name="", x=x, y=gain, error=gain_error, colour="#000000")
    zero = Line(name="", x=x, y=np.zeros(T), colour="")
    ylabel = f"mean best {figure.metric_of(studies[0])}"
    best = Panel(marks=[*upper], ylabel=ylabel, ylim=_ends(*upper), height=3.0)
    difference = Panel(
        marks=[lower],
        xlabel="finished trials",
        ylabel="gain",
        ylim=_ends(lower, zero),
        height=2.0,
        has_zero=True,
    )
    is_cut = max(map(len, curves)) > T
    return Figure(
        title=_headline(float(gain[-1]), float(gain_error[-1]), T, is_cut, is_paired),
        size=size,
        panels=[best, difference],
        is_legend_inside=True,
    )


def _mean(rows: Floats) -> tuple[Floats, Floats]:
    """The mean over the first axis and its standard error, NaN for a single row."""
    if len(rows) < 2:
        return rows.mean(axis=0), np.full(rows.shape[1], np.nan)
    return rows.mean(axis=0), rows.std(axis=0, ddof=1) / math.sqrt(len(rows))


def _ends(*lines: Line) -> tuple[float, float]:
    """The ends of the y axis for these lines; a start that would flatten the rest is cut off."""
    edges = [
        line.y + side * (0.0 if line.error is None else np.nan_to_num(line.error))
        for line in lines
        for side in (-1.0, 1.0)
    ]
    late = [edge[len(edge) // _START :] for edge in edges]
    (low, high), (first, last) = _extremes(late), _extremes(edges)
    if last - first <= _STEEP * (high - low) or low == high:
        low, high = first, last
    margin = figure.MARGIN * (high - low) or 0.1 * abs(high) or 0.5
    return low - margin, high + margin


def _extremes(curves: Sequence[Floats]) -> tuple[float, float]:
    values = np.concatenate(curves)
    there = values[np.isfinite(values)]
    return (float(there.min()), float(there.max())) if len(there) else (0.0, 0.0)


def _headline(gain: float, error: float, trials: int, is_cut: bool, is_paired: bool) -> str:
    text = f"{gain:+.4g}"
    if not math.isnan(error):
        places = f".{max(0, 1 - math.floor(math.log10(error)))}f" if 1e-6 < error < 1e6 else ".2g"
        text = f"{gain:+{places}} ± {error:{places}}{' (paired)' if is_paired else ''}"
    after = f"{trials} trial{'' if trials == 1 else 's'}{' of each' if is_cut else ''}"
    return f"Gain by collaborating after {after}: {text.replace('-', '−')}"
