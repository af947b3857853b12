"""The figure: 1 − AUC against rounds, and at the last round beside the published values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbo.insight.colours import COLOURS
from fedbo_paper.dp.comparison import CURVES, PUBLISHED_ROUND, Comparison, Curve
from fedbo_paper.harness.intervals import Floats, mean
from fedbo_paper.report import strokes

_BLUE, _RED, _GREEN, _PINK, _ORANGE, _SKY = COLOURS
_DOTS = (0, (1, 1.2))
#: Colour and line style by the name of a method; DP-FTS-DE is darker for more noise. Those without
#: a look of their own are grey.
_LOOKS: dict[str, tuple[str, Any]] = {
    "TS": (_BLUE, "--"),
    "FTS": (_SKY, "-"),
    "FTS-DE": (_GREEN, "-."),
    "DP-FTS-DE-z1": (strokes.shade(_ORANGE, 0.35), "-"),
    "DP-FTS-DE-z2": (strokes.shade(_ORANGE, -0.15), "-"),
    "DP-FTS-DE-z4": (strokes.shade(_ORANGE, -0.5), "-"),
    "EI": (_PINK, "--"),
    "release-2": (_RED, "-"),
    "null": (strokes.INK, _DOTS),
}
#: Methods whose curve has a band, its 95 % interval: eight bands on top of each other say nothing.
_BANDS = ("TS", "release-2")
_SIZE = (strokes.WIDTH, 5.0)


def paint(comparison: Comparison, by_method: Mapping[str, Floats]) -> Figure:
    """Draw the figure from the mean loss over fields, (R, T + 1), of each method by its name."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1.0))
    with matplotlib.rc_context(strokes.RC):
        _against_rounds(left, comparison, by_method)
        _at_the_end(right, comparison, by_method)
    return figure


def label(curve: Curve, rounds: int) -> str:
    """Return the name of a method with its accounted ε, and the published one beside it."""
    epsilon = curve.method.epsilon(rounds)
    if epsilon in (0.0, math.inf):
        return curve.label
    published = curve.published_epsilon
    theirs = "" if published is None else f", published {published:g}"
    return f"{curve.label} (accounted ε {epsilon:.3g}{theirs})"


def _against_rounds(axes: Axes, comparison: Comparison, by_method: Mapping[str, Floats]) -> None:
    rounds = np.arange(comparison.rounds + 1)
    for curve in CURVES:
        if not curve.is_drawn:
            continue
        level = by_method[curve.method.name]
        effects = [mean(level[:, t]) for t in rounds]
        middle = np.array([effect.value for effect in effects])
        reach = np.array([effect.high - effect.value for effect in effects])
        # One seed has no interval.
        is_banded = curve.method.name in _BANDS and np.isfinite(reach).all()
        reach = reach if is_banded else np.zeros_like(reach)
        colour, style = _look(curve)
        name = label(curve, comparison.rounds)
        strokes.line(axes, rounds, middle, reach, name, colour, style)
    strokes.name(axes, "(a) from the same initial points; ε at δ = 29$^{-1.1}$", "round", "1 − AUC")
    axes.set_xlim(left=0)
    axes.legend(loc="upper right")


def _at_the_end(axes: Axes, comparison: Comparison, by_method: Mapping[str, Floats]) -> None:
    places = np.arange(len(CURVES))[::-1]
    for place, curve in zip(places, CURVES, strict=True):
        colour, _ = _look(curve)
        effect = mean(by_method[curve.method.name][:, -1])
        reach = effect.high - effect.value
        error = reach if math.isfinite(reach) else 0.0
        axes.errorbar(
            effect.value,
            place,
            xerr=error,
            color=colour,
            marker="o",
            markersize=5,
            capsize=3,
            linestyle="",
        )
        if curve.published is not None and comparison.rounds >= PUBLISHED_ROUND:
            _mark(axes, curve.published, place, colour)
    axes.plot([], [], color=strokes.GREY, marker="o", linestyle="-", label="here, 95 % interval")
    _mark(axes, np.nan, np.nan, strokes.GREY, f"published, round {PUBLISHED_ROUND}")
    axes.set_yticks(places, [curve.label for curve in CURVES])
    axes.set_ylim(-0.6, len(CURVES) + 0.6)
    axes.grid(axis="x", color="#E4E4E4", linewidth=0.8)
    axes.set_axisbelow(True)
    strokes.name(axes, f"(b) after round {comparison.rounds}", "1 − AUC", "")
    axes.legend(loc="upper left", ncols=2, handlelength=1.6)


def _mark(axes: Axes, x: float, y: float, colour: str, label: str | None = None) -> None:
    """Draw a published value as a hollow diamond."""
    look: dict[str, Any] = {"markerfacecolor": "white", "markersize": 6, "zorder": 4}
    axes.plot(
        *([x], [y]), marker="D", linestyle="", color=colour, label=label, clip_on=False, **look
    )


def _look(curve: Curve) -> tuple[str, Any]:
    return _LOOKS.get(curve.method.name, (strokes.GREY, "-"))
