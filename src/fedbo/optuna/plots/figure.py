"""What each figure of studies shows, without any plotting library.

All arrays have shape (trials,), and NaN is a gap. Colours are written as ``#rrggbb``. They are by
Okabe and Ito (lines, points) and by Tol (areas), for colour-blind people.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from fedbo.optuna import private
from fedbo.optuna.study import read_origin

Floats = NDArray[np.float64]

#: The colour and symbol of each source of a query.
SOURCES = {
    "initial": ("#888888", "square"),
    "tip": ("#009E73", "cross"),
    "own": ("#0072B2", "circle"),
    "pool": ("#E69F00", "diamond"),
    "peer": ("#D55E00", "triangle-up"),
    "told": ("#000000", "x"),
}
GREY = "#666666"

_BLUE, _RED = "#0072B2", "#D55E00"
_AREAS = (  # the last but one is for all peers that are not named, the last for the agent itself
    *("#332288", "#88CCEE", "#CC6677", "#117733", "#DDCC77", "#882255", "#44AA99", "#999933"),
    *("#AAAAAA", "#ECECEC"),
)
_NAMED = 8  # peers with a name and a colour; a trial does not store more of them
_LONGEST_NAME = 24
_ENDLESS = 1e300  # larger values count as infinite: they cannot be drawn
_FAR = 2.5  # times the upper quartile of all distances to the best value: beyond it is far off
_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line, and a band of standard errors around it."""

    name: str  # in the legend; empty for a line that is not listed
    x: Floats
    y: Floats
    colour: str
    is_dashed: bool = False
    is_stepped: bool = False
    error: Floats | None = None

    @property
    def is_one_point(self) -> bool:
        """Whether only one of its points can be drawn, so that no line is visible."""
        return not self.is_stepped and int(np.isfinite(self.y).sum()) == 1


class Points(msgspec.Struct, frozen=True, kw_only=True):
    """Points; those that are too far off to be drawn are hollow, and at the edge."""

    name: str
    x: Floats
    y: Floats
    colour: str
    symbol: str  # one of plotly's
    notes: list[str]  # what the mouse shows for each of them
    is_hollow: NDArray[np.bool_]


class Bars(msgspec.Struct, frozen=True, kw_only=True):
    """A bar for each trial, from ``low`` to ``high``."""

    name: str
    low: Floats
    high: Floats
    colour: str


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One pair of axes, with its marks from back to front."""

    marks: list[Line | Points | Bars]
    xlabel: str = ""
    ylabel: str
    xlim: tuple[float, float]
    ylim: tuple[float, float] | None = None  # None fits the marks
    height: float = 1.0  # relative to other panels
    is_percent: bool = False
    has_zero: bool = False  # whether a line marks y = 0


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """Panels from top to bottom; without any, ``empty`` says why."""

    title: str
    size: tuple[float, float]  # inches
    panels: list[Panel] = []
    empty: str = ""
    is_legend_inside: bool = False  # inside the first panel, instead of beside it


def history(study: Study, baseline: Study | None = None) -> Figure:
    """Describe the trials of a study by the source of their query, and the best value so far."""
    sign = _sign_of([study] if baseline is None else [study, baseline])
    trials = _begun_trials(study)
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if not complete:
        title = _titled(study, "no finite value yet")
        return Figure(title=title, size=(7.5, 4.2), empty="No trial has a value yet.")
    best = _best_so_far(trials, sign)
    marks: list[Line | Points | Bars] = [_best_line("best so far", best, "#000000")]
    last = len(best)
    if baseline is not None:
        alone = _best_so_far(_begun_trials(baseline), sign)
        marks.append(_best_line("best so far, alone", alone, _BLUE, is_dashed=True))
        last = max(last, len(alone))
    values = np.array([trial.value for trial in complete], dtype=np.float64)
    low, high = _ends(values, sign)
    for source, (colour, symbol) in SOURCES.items():
        chosen = [i for i, trial in enumerate(complete) if _source(trial) == source]
        if chosen:  # a legend shows what the first is like
            chosen.sort(key=lambda i: not low <= values[i] <= high)
            y = values[chosen]
            points = Points(
                name=f"{source} ({len(chosen)})",
                x=np.array([complete[i].number for i in chosen], dtype=np.float64),
                y=np.clip(y, low, high),
                colour=colour,
                symbol=symbol,
                notes=[_note(complete[i]) for i in chosen],
                is_hollow=(y < low) | (y > high),
            )
            marks.append(points)
    panel = Panel(
        marks=marks,
        xlabel="trial",
        ylabel=_metric_of(study),
        xlim=(-0.6, last - 0.4),
        ylim=(low, high),
    )
    return Figure(title=_titled(study, _headline(complete, best)), size=(7.5, 4.2), panels=[panel])


def peers(study: Study) -> Figure:
    """Stack the trust in each peer, largest first; peers without a colour are one bar."""
    origins = [read_origin(trial) for trial in _begun_trials(study)]
    trust = [{} if origin is None else origin.trust for origin in origins]
    total: dict[str, float] = {}
    for shares in trust:
        total |= {name: total.get(name, 0.0) + share for name, share in shares.items()}
    ranked = sorted(total, key=lambda name: (-total[name], name))
    title, size = _titled(study, "how much it relied on each peer"), (7.5, 3.8)
    if not ranked:
        empty = "No trial says how much it relied on peers."
        return Figure(title=title, size=size, empty=empty)
    named, rest = ranked[:_NAMED], ranked[_NAMED:]
    groups = [[name] for name in named] + ([rest] if rest else [])
    labels = [_shorten(name) for name in named] + ([f"{len(rest)} more"] if rest else [])
    ground = np.array([0.0 if shares else math.nan for shares in trust])
    rows = [[sum(shares.get(name, 0.0) for name in names) for shares in trust] for names in groups]
    tops = np.vstack([ground, ground + np.cumsum(rows, axis=0), ground + 1.0])
    is_full = any(len(shares) >= _NAMED for shares in trust)
    labels.append("itself, and peers not named" if is_full else "itself")
    colours = [*_AREAS[: len(groups)], _AREAS[-1]]
    bars = zip(labels, tops[:-1], tops[1:], colours, strict=True)
    panel = Panel(
        marks=[Bars(name=name, low=a, high=b, colour=colour) for name, a, b, colour in bars],
        xlabel=f"trial{' (white: it used no peers)' if np.isnan(ground).any() else ''}",
        ylabel="trust",
        xlim=(-0.5, len(trust) - 0.5),
        ylim=(0.0, 1.0),
        is_percent=True,
    )
    return Figure(title=title, size=size, panels=[panel])


def together(studies: Sequence[Study], baselines: Sequence[Study]) -> Figure:
    """Describe the mean best values and the gain, up to the end of the shortest study.

    The gain is positive if collaborating is better. It is the mean difference of the pairs if there
    are as many studies as baselines, and the difference of the means otherwise.
    """
    for name, group in (("studies", studies), ("baselines", baselines)):
        if isinstance(group, Study):
            raise TypeError(f"{name} is one study, expected a list of them")
        if not len(group):
            raise ValueError(f"{name} is empty, expected at least one study")
    sign = _sign_of([*studies, *baselines])
    curves = []
    for study in (*studies, *baselines):
        finished = [trial for trial in _begun_trials(study) if trial.state in _FINISHED]
        curves.append(_best_so_far(finished, sign))
    T = min(map(len, curves))
    rows = np.array([curve[:T] for curve in curves]).reshape(len(curves), T)
    ours, theirs = rows[: len(studies)], rows[len(studies) :]
    (mean, error), (mean_alone, error_alone) = _mean(ours), _mean(theirs)
    is_paired = len(ours) == len(theirs)
    if is_paired:
        gain, gain_error = _mean(sign * (ours - theirs))
    else:
        gain, gain_error = sign * (mean - mean_alone), np.hypot(error, error_alone)
    if not np.isfinite(gain).any():
        empty = "There is no trial after which every study has a value."
        return Figure(title="Together and alone", size=(6.5, 5.2), empty=empty)
    x = np.arange(1.0, T + 1)
    a, b = f"together ({len(ours)})", f"alone ({len(theirs)})"
    upper: list[Line | Points | Bars] = [
        Line(name=a, x=x, y=mean, error=error, colour=_RED),
        Line(name=b, x=x, y=mean_alone, error=error_alone, colour=_BLUE, is_dashed=True),
    ]
    lower = Line(name="", x=x, y=gain, error=gain_error, colour="#000000")
    xlim = 0.5, T + 0.5
    best = Panel(marks=upper, ylabel=f"mean best {_metric_of(studies[0])}", xlim=xlim, height=3.0)
    difference = Panel(
        marks=[lower], xlabel="finished trials", ylabel="gain", xlim=xlim, height=2.0, has_zero=True
    )
    text = f"{gain[-1]:+.3g}".replace("-", "−")
    if np.isfinite(gain_error[-1]):
        text += f" ± {gain_error[-1]:.2g}{' (paired)' if is_paired else ''}"
    return Figure(
        title=f"Gain by collaborating after {T} trial{'' if T == 1 else 's'}: {text}",
        size=(6.5, 5.2),
        panels=[best, difference],
        is_legend_inside=True,
    )


def _sign_of(studies: Sequence[Study]) -> float:
    """Return 1 if all studies maximise and -1 if all minimise; refuse any others."""
    for study in studies:
        if len(study.directions) != 1:
            raise ValueError(
                f"study {study.study_name!r} has {len(study.directions)} objectives, expected one"
            )
    names = {study.direction: study.study_name for study in studies}
    if len(names) > 1:
        raise ValueError(
            f"study {names[StudyDirection.MAXIMIZE]!r} maximises and "
            f"{names[StudyDirection.MINIMIZE]!r} minimises, so they cannot be compared: give "
            "studies with the same direction"
        )
    return 1.0 if StudyDirection.MAXIMIZE in names else -1.0


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
    if trial.state != TrialState.COMPLETE or any(c > 0.0 for c in trial.constraints.values()):
        return math.nan
    value = trial.value
    return value if value is not None and abs(value) < _ENDLESS else math.nan


def _best_line(name: str, best: Floats, colour: str, *, is_dashed: bool = False) -> Line:
    x = np.arange(len(best), dtype=np.float64)
    return Line(name=name, x=x, y=best, colour=colour, is_dashed=is_dashed, is_stepped=True)


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


def _mean(rows: Floats) -> tuple[Floats, Floats]:
    """The mean over the first axis and its standard error, NaN for a single row."""
    if len(rows) < 2:
        return rows.mean(axis=0), np.full(rows.shape[1], np.nan)
    return rows.mean(axis=0), rows.std(axis=0, ddof=1) / math.sqrt(len(rows))


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


def _note(trial: FrozenTrial) -> str:
    """A text such as "trial 7: 0.931, pool (site-b 60%, site-c 40%)"."""
    origin, source = read_origin(trial), _source(trial)
    text = f"trial {trial.number}: {trial.value:.6g}, {source}"
    if origin is None or source not in ("tip", "pool", "peer") or not origin.credit:
        return text
    shares = [f"{_shorten(name)} {share:.0%}" for name, share in origin.credit.items()]
    return f"{text} ({', '.join(shares)})"


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
