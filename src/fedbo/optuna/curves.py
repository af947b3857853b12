"""What is drawn of studies, as plain numbers: a history, its peers, together against alone.

`fedbo.optuna.plots` and `fedbo.optuna.plotly` draw the same; what they show is decided here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from fedbo.optuna import private, record

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

SOURCES = ("initial", "own", "pool", "peer", "told")
PEERS = 8  # with a name and a colour; a trial does not remember more of them either
MANY = 150  # trials, of which each has to be small
COLOURS = {  # of sources and lines: Okabe and Ito's, which the colour-blind can tell apart
    "initial": "#888888",
    "own": "#0072B2",
    "pool": "#E69F00",
    "peer": "#D55E00",
    "told": "#000000",
    "together": "#D55E00",
    "alone": "#0072B2",
}
PEER_COLOURS = (  # Tol's muted ones, made for areas and for so many; the last is of all others
    *("#332288", "#88CCEE", "#CC6677", "#117733", "#DDCC77", "#882255", "#44AA99", "#999933"),
    "#AAAAAA",
)
ITSELF = "#ECECEC"

_VALUELESS = {
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
}
_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
_MARGIN = 0.06  # of the height, above and below
_FAR = 2.5  # times what three quarters of the trials lack to the best: beyond is far off
_FLATTENED = 100.0  # times what half of them lack: a best so far beyond would flatten the rest
_START = 5  # the first of so many parts of a curve is its start
_STEEP = 3.0  # a start that makes the axis longer than so many times the rest is cut
_ENDLESS = 1e300  # values beyond are as good as infinite: nothing can be drawn with them
_LONGEST_NAME = 24


class Dots(msgspec.Struct, frozen=True, kw_only=True):
    """Trials of one source that have a value.

    ``shown`` is where they are drawn: at the edge if their ``value`` is infinite or too far off,
    and then ``inside`` is False. ``notes`` say what each of them is.
    """

    source: str
    number: Numbers
    value: Floats
    shown: Floats
    inside: NDArray[np.bool_]
    notes: list[str]


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The trials of a study; ``best`` and ``baseline`` have the best value so far after each.

    ``valueless`` has the numbers of the others, by what became of them; ``low`` and ``high`` are
    the ends of the axis. If there is nothing to draw, ``empty`` says why.
    """

    title: str
    metric: str
    dots: list[Dots]
    best: Floats
    baseline: Floats | None
    valueless: dict[str, Numbers]
    low: float
    high: float
    empty: str

    @property
    def outside(self) -> int:
        """How many trials are drawn at the edge."""
        return sum(int((~dots.inside).sum()) for dots in self.dots)


class Peers(msgspec.Struct, frozen=True, kw_only=True):
    """How much the policy counted on each peer: ``weights`` (names, trials), NaN where on none.

    The peer that counted most is first; all that have no colour of their own are the last row
    together. What is missing to 1 is ``itself``.
    """

    title: str
    names: list[str]
    weights: Floats
    itself: str
    empty: str


class Band(msgspec.Struct, frozen=True):
    """A mean after each trial, NaN where it has none, and its standard error, NaN of one value."""

    mean: Floats
    error: Floats


class Together(msgspec.Struct, frozen=True, kw_only=True):
    """Mean best values after 1, 2, … trials, of studies together and of studies alone.

    ``gain`` is what together is better by, positive if better in either direction: the mean of the
    differences study by study if ``paired``, else the difference of the means. The axes of both
    have their ends in ``ends`` and ``gain_ends``.
    """

    title: str
    metric: str
    together: Band
    alone: Band
    labels: tuple[str, str]
    ends: tuple[float, float]
    gain: Band
    gain_ends: tuple[float, float]
    paired: bool
    empty: str


def history(study: Study, baseline: Study | None = None) -> History:
    """The trials of a study by the source of their query, beside one that was run alone."""
    sign = _sign([study] if baseline is None else [study, baseline])
    trials = _begun(study)
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    values = np.array([trial.value for trial in complete], dtype=np.float64)
    best = _best_so_far(trials, sign)
    alone = None if baseline is None else _best_so_far(_begun(baseline), sign)
    low, high = _window(values, [best] if alone is None else [best, alone], sign)
    valueless = {
        name: np.array([trial.number for trial in trials if trial.state == state], dtype=np.int64)
        for state, name in _VALUELESS.items()
    }
    return History(
        title=_title(study, _headline(complete, best)),
        metric=_metric(study),
        dots=_dots(complete, values, low, high),
        best=best,
        baseline=alone,
        valueless={name: some for name, some in valueless.items() if len(some)},
        low=low,
        high=high,
        empty="" if complete else "No trial has a value yet.",
    )


def peers(study: Study) -> Peers:
    """How much the policy counted on each peer when it chose the trials of a study."""
    origins = [record.read_origin(trial) for trial in _begun(study)]
    weights = [{} if origin is None else dict(origin.trust) for origin in origins]
    total: dict[str, float] = {}
    for shares in weights:
        for name, share in shares.items():
            total[name] = total.get(name, 0.0) + share
    ranked = sorted(total, key=lambda name: (-total[name], name))
    named, rest = ranked[:PEERS], ranked[PEERS:]
    rows = [[name] for name in named] + ([rest] if rest else [])
    full = any(len(shares) >= PEERS for shares in weights)
    return Peers(
        title=_title(study, "how much it counted on each peer"),
        names=[_short(name) for name in named] + ([_others(len(rest))] if rest else []),
        weights=np.array(
            [[_share(shares, names) for shares in weights] for names in rows], dtype=np.float64
        ).reshape(len(rows), len(weights)),
        itself="itself, and peers not named" if full else "itself",
        empty="" if ranked else _no_weights(origins),
    )


def together(studies: Sequence[Study], baselines: Sequence[Study]) -> Together:
    """Mean best values of studies together and of studies alone, as far as all of them go."""
    for name, given in (("studies", studies), ("baselines", baselines)):
        if isinstance(given, Study):
            raise TypeError(f"{name} is one study, expected a list of them")
        if not len(given):
            raise ValueError(f"{name} is empty, expected at least one study")
    sign = _sign([*studies, *baselines])
    curves = [
        _best_so_far([trial for trial in _begun(study) if trial.state in _FINISHED], sign)
        for study in (*studies, *baselines)
    ]
    lengths = [len(curve) for curve in curves]
    T = min(lengths)
    rows = np.array([curve[:T] for curve in curves]).reshape(len(curves), T)
    ours, theirs = rows[: len(studies)], rows[len(studies) :]
    us, them, paired = _band(ours), _band(theirs), len(ours) == len(theirs)
    if paired:
        gain = _band(sign * (ours - theirs))
    else:
        gain = Band(sign * (us.mean - them.mean), np.hypot(us.error, them.error))
    something = bool(np.isfinite(gain.mean).any())
    return Together(
        title=_gained(gain, paired, max(lengths)) if something else "Together and alone",
        metric=_metric(studies[0]),
        together=us,
        alone=them,
        labels=(_several("together", len(ours)), _several("alone", len(theirs))),
        ends=_ends(us, them),
        gain=gain,
        gain_ends=_ends(gain, Band(np.zeros(T), np.zeros(T))),
        paired=paired,
        empty="" if something else "There is no trial after which every study has a value.",
    )


def _short(name: str) -> str:
    """The name, cut where a picture has no room for it.

    >>> _short("site-a"), _short("hospital-of-the-holy-ghost")
    ('site-a', 'hospital-of-the-holy-gh…')
    """
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def _digits(value: float) -> str:
    """A value as a title shows it.

    >>> _digits(0.123456), _digits(-1234567.0)
    ('0.1235', '−1.235e+06')
    """
    return f"{value:.4g}".replace("-", "−", 1) if value < 0 else f"{value:.4g}"


# Of studies


def _sign(studies: Sequence[Study]) -> float:
    """1 if they maximise, −1 if they minimise."""
    for study in studies:
        if len(study.directions) != 1:
            raise ValueError(
                f"study {study.study_name!r} has {len(study.directions)} objectives, expected one"
            )
    directions = {study.direction for study in studies}
    if len(directions) > 1:
        names = {study.direction: study.study_name for study in studies}
        raise ValueError(
            f"study {names[StudyDirection.MAXIMIZE]!r} maximises and "
            f"{names[StudyDirection.MINIMIZE]!r} minimises, so they cannot be compared: give "
            "studies of one direction"
        )
    return 1.0 if directions == {StudyDirection.MAXIMIZE} else -1.0


def _begun(study: Study) -> list[FrozenTrial]:
    """All trials up to the last that was begun: the n-th has number n."""
    trials = study.get_trials(deepcopy=False)
    while trials and trials[-1].state == TrialState.WAITING:
        trials = trials[:-1]
    return trials


def _metric(study: Study) -> str:
    names = study.metric_names
    return _short(names[0]) if names else "objective value"


def _title(study: Study, text: str) -> str:
    if private.is_unnamed(study):  # Optuna's, where none was given
        return text[:1].upper() + text[1:]
    return f"{_short(study.study_name)}: {text}"


def _best_so_far(trials: Sequence[FrozenTrial], sign: float) -> Floats:
    """The best value after each of the trials; NaN before there is one."""
    values = np.array([_counted(trial) for trial in trials], dtype=np.float64)
    return sign * np.fmax.accumulate(sign * values) + 0.0  # no −0


def _counted(trial: FrozenTrial) -> float:
    """The value as the best one may be; infinite ones, and what breaks a constraint, are not."""
    if trial.state != TrialState.COMPLETE or any(c > 0.0 for c in trial.constraints.values()):
        return math.nan
    value = trial.value
    return value if value is not None and abs(value) < _ENDLESS else math.nan


# Of a history


def _headline(complete: Sequence[FrozenTrial], best: Floats) -> str:
    if not len(best) or math.isnan(best[-1]):
        return "no finite value yet"
    first = next(trial for trial in complete if _counted(trial) == best[-1])
    return f"best {_digits(best[-1])} at trial {first.number} ({_source(first)})"


def _dots(complete: Sequence[FrozenTrial], values: Floats, low: float, high: float) -> list[Dots]:
    sources = np.array([_source(trial) for trial in complete])
    inside = (values >= low) & (values <= high)
    found = []
    for source in SOURCES:
        mine = np.flatnonzero(sources == source).tolist()
        if mine:
            dots = Dots(
                source=source,
                number=np.array([complete[i].number for i in mine], dtype=np.int64),
                value=values[mine],
                shown=np.clip(values[mine], low, high),
                inside=inside[mine],
                notes=[_note(complete[i]) for i in mine],
            )
            found.append(dots)
    return found


def _source(trial: FrozenTrial) -> str:
    """Where its query came from; what was enqueued did not come from the sampler."""
    origin = record.read_origin(trial)
    return "told" if origin is None or private.is_enqueued(trial) else origin.source


def _note(trial: FrozenTrial) -> str:
    """Such as: trial 7: 0.931, pool (site-b 60%, site-c 40%)."""
    origin, source = record.read_origin(trial), _source(trial)
    text = f"trial {trial.number}: {trial.value:.6g}, {source}"
    if origin is None or source not in ("pool", "peer"):
        return text
    shares = [f"{_short(name)} {share:.0%}" for name, share in origin.credit.items()]
    names = ", ".join(shares) or _short(origin.peer or "")
    return f"{text} ({names})" if names else text


def _window(values: Floats, bests: Sequence[Floats], sign: float) -> tuple[float, float]:
    """The ends of the axis: all best values so far and most trials lie between them."""
    finite = sign * values[np.abs(values) < _ENDLESS]
    best = sign * np.concatenate(bests)
    best = best[np.isfinite(best)]
    if not len(finite) and not len(best):
        return 0.0, 1.0
    top = float(max(best.max(initial=-np.inf), finite.max(initial=-np.inf)))
    if len(finite):
        lags = top - finite
        usual, most = float(np.median(lags)), float(np.quantile(lags, 0.75))
        best = best[top - best <= _FLATTENED * usual] if usual else best
        best = np.append(best, finite[lags <= _FAR * most] if most else finite)
    bottom = float(best.min())
    margin = _MARGIN * (top - bottom) or 0.1 * abs(top) or 0.5
    low, high = sign * (bottom - margin), sign * (top + margin)
    return min(low, high), max(low, high)


# Of peers


def _share(shares: Mapping[str, float], names: Sequence[str]) -> float:
    return sum(shares.get(name, 0.0) for name in names) if shares else math.nan


def _others(count: int) -> str:
    return "1 other" if count == 1 else f"{count} others"


def _no_weights(origins: Sequence[record.Origin | None]) -> str:
    if not origins:
        return "There is no trial yet."
    if not any(origins):
        return "No trial was asked for by a FederatedSampler."
    return (
        "No trial says how much it counted on peers:\n"
        "no message had come, or the policy does not weigh them."
    )


# Of several studies


def _band(rows: Floats) -> Band:
    """Mean over the first axis and its standard error."""
    if len(rows) < 2:
        return Band(rows.mean(axis=0), np.full(rows.shape[1], np.nan))
    return Band(rows.mean(axis=0), rows.std(axis=0, ddof=1) / math.sqrt(len(rows)))


def _ends(*bands: Band) -> tuple[float, float]:
    """The ends of an axis with these bands; a start that would flatten the rest goes beyond."""
    errors = [np.nan_to_num(band.error) for band in bands]
    edges = np.array(
        [band.mean + side * e for band, e in zip(bands, errors, strict=True) for side in (-1, 1)]
    )
    late = edges[:, edges.shape[1] // _START :]
    (low, high), (first, last) = (_extremes(late), _extremes(edges))
    if last - first <= _STEEP * (high - low) or low == high:
        low, high = first, last
    margin = _MARGIN * (high - low) or 0.1 * abs(high) or 0.5
    return low - margin, high + margin


def _extremes(values: Floats) -> tuple[float, float]:
    there = values[np.isfinite(values)]
    return (float(there.min()), float(there.max())) if len(there) else (0.0, 0.0)


def _gained(gain: Band, paired: bool, longest: int) -> str:
    """The gain where the shortest study ends, in words."""
    T, mean, error = len(gain.mean), float(gain.mean[-1]), float(gain.error[-1])
    by = f"{mean:+.4g}"
    if not math.isnan(error):
        places = f".{max(0, 1 - math.floor(math.log10(error)))}f" if 1e-6 < error < 1e6 else ".2g"
        by = f"{mean:+{places}} ± {error:{places}}{' (paired)' if paired else ''}"
    after = f"{T} trial{'' if T == 1 else 's'}{' of each' if longest > T else ''}"
    return f"Gain by collaborating after {after}: {by.replace('-', '−')}"


def _several(name: str, count: int) -> str:
    return f"{name}, {count} {'study' if count == 1 else 'studies'}"
