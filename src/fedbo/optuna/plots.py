"""Figures of studies, drawn with matplotlib.

Each function returns its `Axes`: ``plot_history(study).figure.savefig("history.png")``.

Arrays have shape (trials,), and NaN is a gap. Colours are by Okabe and Ito (lines, points) and by
Tol (areas), for colour-blind people.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from fedbo.optuna import private
from fedbo.optuna.study import read_origin

try:
    from matplotlib import pyplot
    from matplotlib.axes import Axes
    from matplotlib.ticker import MaxNLocator, PercentFormatter
except ImportError as error:
    raise ImportError("plots need matplotlib: pip install matplotlib") from error

__all__ = ["plot_history", "plot_peers"]

Floats = NDArray[np.float64]

#: The colour and marker of each source of a query.
SOURCES = {
    "initial": ("#888888", "s"),
    "tip": ("#009E73", "P"),
    "own": ("#0072B2", "o"),
    "pool": ("#E69F00", "D"),
    "peer": ("#D55E00", "^"),
    "told": ("#000000", "X"),
}
_GREY, _BLUE = "#666666", "#0072B2"
_PEERS = ("#332288", "#88CCEE", "#CC6677", "#117733", "#DDCC77", "#882255", "#44AA99", "#999933")
_OTHERS, _ITSELF = "#AAAAAA", "#ECECEC"
_LONGEST_NAME = 24
_ENDLESS = 1e300  # larger values count as infinite: they cannot be drawn
_FAR = 2.5  # times the upper quartile of all distances to the best value: beyond it is far off
_STYLE: dict[Any, Any] = {  # what another style, such as Optuna's, would make hard to read
    **dict.fromkeys(("axes.facecolor", "figure.facecolor"), "white"),
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), "black"),
    **dict.fromkeys(("axes.grid", "axes.spines.right", "axes.spines.top", "legend.frameon"), False),
    **dict.fromkeys(("axes.labelsize", "axes.titlesize"), "medium"),
    **{"axes.titlelocation": "left", "font.size": 10, "legend.fontsize": "small"},
    "text.parse_math": False,  # a name may have a $ in it
}


def plot_history(study: Study, baseline: Study | None = None) -> Axes:
    """Plot the value of every trial by the source of its query, and the best value so far.

    Values that are too far off to be drawn are hollow points at the edge.

    The ``baseline`` is a study of the same objective that was run alone.
    """
    sign = _sign_of(study, baseline)
    trials = _begun_trials(study)
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    with _figure(7.5, 4.2) as axes:
        if not complete:
            axes.set_title(_titled(study, "no finite value yet"))
            return _say(axes, "No trial has a value yet.")
        best = _best_so_far(trials, sign)
        axes.set_title(_titled(study, _headline(complete, best)))
        steps: dict[str, Any] = {"drawstyle": "steps-post"}
        axes.plot(best, color="black", label="best so far", **steps)
        last = len(best)
        if baseline is not None:
            alone = _best_so_far(_begun_trials(baseline), sign)
            steps |= {"color": _BLUE, "linestyle": "--"}
            axes.plot(alone, label="best so far, alone", **steps)
            last = max(last, len(alone))
        values = np.array([trial.value for trial in complete], dtype=np.float64)
        low, high = _ends(values, sign)
        for source, (colour, marker) in SOURCES.items():
            chosen = [i for i, trial in enumerate(complete) if _source(trial) == source]
            if not chosen:
                continue
            chosen.sort(key=lambda i: not low <= values[i] <= high)  # a legend shows the first
            y = values[chosen]
            axes.scatter(
                [complete[i].number for i in chosen],
                np.clip(y, low, high),
                facecolors=[*np.where((y < low) | (y > high), "none", colour)],
                edgecolors=colour,
                marker=marker,
                s=26,
                zorder=3,
                clip_on=False,
                label=f"{source} ({len(chosen)})",
            )
        _label(axes, "trial", _metric_of(study), (-0.6, last - 0.4))
        axes.set_ylim(low, high)
        axes.figure.legend(loc="outside right upper")
    return axes


def plot_peers(study: Study) -> Axes:
    """Plot how much the policy relied on each peer when it chose each trial.

    The rest is the share of the agent's own model. Trials that used no peers are white.
    """
    origins = [read_origin(trial) for trial in _begun_trials(study)]
    trust = [{} if origin is None else origin.trust for origin in origins]
    total: dict[str, float] = {}
    for shares in trust:
        total |= {name: total.get(name, 0.0) + share for name, share in shares.items()}
    ranked = sorted(total, key=lambda name: (-total[name], name))
    most = len(_PEERS)  # a trial does not store more of them
    areas = [(_shorten(name), [name], colour) for name, colour in zip(ranked, _PEERS, strict=False)]
    if rest := ranked[most:]:
        areas.append((f"{len(rest)} more", rest, _OTHERS))
    with _figure(7.5, 3.8) as axes:
        axes.set_title(_titled(study, "how much it relied on each peer"))
        if not ranked:
            return _say(axes, "No trial says how much it relied on peers.")
        ground = np.array([0.0 if shares else math.nan for shares in trust])
        low = ground
        for name, names, colour in areas:
            high = low + [sum(shares.get(peer, 0.0) for peer in names) for shares in trust]
            _fill(axes, low, high, name, colour)
            low = high
        is_full = any(len(shares) >= most for shares in trust)
        itself = "itself, and peers not named" if is_full else "itself"
        _fill(axes, low, ground + 1.0, itself, _ITSELF)
        white = " (white: it used no peers)" if np.isnan(ground).any() else ""
        _label(axes, f"trial{white}", "trust", (-0.5, len(trust) - 0.5))
        axes.set_ylim(0.0, 1.0)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        handles, labels = axes.get_legend_handles_labels()  # stacked from the bottom to the top
        axes.figure.legend(handles[::-1], labels[::-1], loc="outside right upper")
    return axes


@contextmanager
def _figure(width: float, height: float) -> Iterator[Axes]:
    """Make a figure of so many inches."""
    with pyplot.rc_context(_STYLE):
        yield pyplot.figure(figsize=(width, height), layout="constrained").subplots()


def _say(axes: Axes, sentence: str) -> Axes:
    """Say why there is nothing to draw."""
    look: dict[str, Any] = {"ha": "center", "va": "center", "color": _GREY}
    axes.text(0.5, 0.5, sentence, transform=axes.transAxes, **look)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return axes


def _label(axes: Axes, x: str, y: str, xlim: tuple[float, float]) -> None:
    axes.set(xlabel=x, ylabel=y, xlim=xlim)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))


def _fill(axes: Axes, low: Floats, high: Floats, name: str, colour: str) -> None:
    """Draw a bar for each trial. A legend would leave out a name that begins with "_"."""
    name = f" {name}" if name.startswith("_") else name
    look: dict[str, Any] = {"fill": True, "color": colour, "linewidth": 0, "label": name}
    axes.stairs(high, np.arange(len(high) + 1) - 0.5, baseline=np.nan_to_num(low), **look)


def _sign_of(study: Study, baseline: Study | None) -> float:
    """Return 1 if studies maximise and -1 if they minimise."""
    studies = [study] if baseline is None else [study, baseline]
    names = [each.name.lower() for study in studies for each in study.directions]
    if len(names) > len(studies) or len({*names}) > 1:
        raise ValueError(
            f"study {study.study_name!r} and its baseline have the directions {', '.join(names)}, "
            "expected one each, and the same"
        )
    return 1.0 if names[0] == "maximize" else -1.0


def _begun_trials(study: Study) -> list[FrozenTrial]:
    """Return all trials up to the last that was begun; the n-th has number n."""
    trials = study.get_trials(deepcopy=False)
    while trials and trials[-1].state == TrialState.WAITING:
        trials = trials[:-1]
    return trials


def _best_so_far(trials: Sequence[FrozenTrial], sign: float) -> Floats:
    """Return the best value after each of the trials; NaN before there is one."""
    values = np.array([_countable(trial) for trial in trials], dtype=np.float64)
    return sign * np.fmax.accumulate(sign * values) + 0.0  # no −0


def _countable(trial: FrozenTrial) -> float:
    """Return a trial's value; NaN if it is infinite, breaks a constraint, or does not exist."""
    if trial.state != TrialState.COMPLETE or any(
        c > 0.0 for c in private.constraints(trial).values()
    ):
        return math.nan
    value = trial.value
    return value if value is not None and abs(value) < _ENDLESS else math.nan


def _ends(values: Floats, sign: float) -> tuple[float, float]:
    """The ends of the y axis: the best value and most trials lie between them."""
    finite = sign * values[np.abs(values) < _ENDLESS]
    if not len(finite):
        return 0.0, 1.0
    lags = finite.max() - finite
    near = lags[lags <= _FAR * np.quantile(lags, 0.75)]
    top, height = float(finite.max()), float(near.max() or lags.max())
    margin = 0.06 * height or 0.1 * abs(top) or 0.5
    low, high = sign * (top - height - margin), sign * (top + margin)
    return min(low, high), max(low, high)


def _headline(complete: Sequence[FrozenTrial], best: Floats) -> str:
    if math.isnan(best[-1]):
        return "no finite value yet"
    first = next(trial for trial in complete if _countable(trial) == best[-1])
    value = f"{best[-1]:.4g}".replace("-", "−", int(best[-1] < 0))
    return f"best {value} at trial {first.number} ({_source(first)})"


def _source(trial: FrozenTrial) -> str:
    """Where a trial's query came from; an enqueued trial did not come from the sampler."""
    origin = read_origin(trial)
    return "told" if origin is None or private.is_enqueued(trial) else origin.source


def _metric_of(study: Study) -> str:
    names = study.metric_names
    return _shorten(names[0]) if names else "objective value"


def _titled(study: Study, text: str) -> str:
    """Put the study's name in front of a title, unless Optuna made it up."""
    if private.is_unnamed(study):
        return text[:1].upper() + text[1:]
    return f"{_shorten(study.study_name)}: {text}"


def _shorten(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
