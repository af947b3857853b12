"""What became of an agent's queries: where they came from, what peers gave, what that saved.

The first two are counted. The third is estimated by `fedbo.replay`: solo agents with the same
settings and the same initial points, each on a function that the agent's own belief, given all its
scores, says its objective may be. On each such function both are compared at a *level*: 95 % of the
way from where the solo agent stands after its initial points to the best that the agent queried.
(The best itself may be a last improvement of no weight, which nobody waits for.) Trials saved are
those that the solo agent needs to get there, less those that the agent needed.
"""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedbo.agent.settings import Settings
from fedbo.agent.trial import Trial
from fedbo.insight.replay import LONGEST, Standard, replay
from fedbo.model.kernel import Array
from fedbo.policy.base import Beta
from fedbo.space import Space
from fedbo.table import Cell, Table

CAVEAT = (
    "This is a replay inside the agent's own model of its objective, not an experiment: what a "
    "solo agent would really have found, nobody has tried. In tests on made-up functions its "
    "median was on average 0 to 3 trials too kind to collaborating."
)
SOURCES = ("initial", "own", "peer", "pool", "told")

_FEWEST = 8  # trials: with fewer, the model knows too little to be replayed
_WAY = 0.95  # to the agent's best score, that makes the level
_BAND = (0.05, 0.5, 0.95)  # quantiles over the draws
_STOPS = (5, 10, 20)  # trials, besides the last, after which best scores are compared
_PEERS_SHOWN = 6


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """What collaborating saved, by ``draws`` replays of the agent's first ``trials`` trials.

    ``median`` trials, with 90 % of the replays from ``low`` to ``high``; negative ones are lost.
    Where solo agents did not get there at all it was at least that much: then ``at_least`` is True
    for low, median, high. The agent was there at its trial ``agent``, solo agents at ``alone``
    (medians, counted from 1, failed trials left out). ``curves`` has best scores so far after each
    trial, of the agent and, by what it was better on the same function, of solo agents (median,
    5 % and 95 %); ``gains`` after some of the trials how much better it was, positive if better.
    All scores are in the user's units.
    """

    draws: int
    trials: int
    low: int
    median: int
    high: int
    at_least: tuple[bool, bool, bool]
    agent: int
    alone: int
    curves: Table
    gains: Table

    def __str__(self) -> str:
        ends = (self.low, self.median, self.high)
        low, median, high = (
            f"at least {_signed(trials)}" if more else _signed(trials)
            for trials, more in zip(ends, self.at_least, strict=True)
        )
        amount = median.capitalize() if self.at_least[1] else f"About {median}"
        many = "" if abs(self.median) == 1 else "s"
        interval = low if low == high else f"{low} to {high}"
        return f"{amount} trial{many} saved (90 %: {interval}). {self._meaning()}"

    def _meaning(self) -> str:
        if self.low > 0:
            return "Collaborating paid."
        if self.high < 0:
            return "Collaborating cost trials: alone it would have got there sooner."
        if self.median < 0:
            return "Alone it might have got there sooner; the interval holds 0, so maybe not."
        return "The interval holds 0: it may have made no difference."


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What `Agent.explain` gives; as a str, a page to read.

    ``queries`` has one row a trial: its number, source, state, the peers that had a share in it
    (``peers``, as text), its score (NaN without one), the best so far, and what it ``gained`` on
    the best before. ``sources`` and ``peers`` sum these up; a trial's gain is divided among its
    peers as its credit is. ``saved`` is None where nothing can be said, and ``verdict`` says why.
    """

    agent: str
    best: float
    best_trial: int
    queries: Table
    sources: Table
    peers: Table
    saved: Saving | None
    verdict: str

    def __str__(self) -> str:
        return "\n".join([self.heading(), *self._counted(), *self._estimated()])

    def to_csv(self, folder: str | os.PathLike[str]) -> None:
        """Write its tables into a folder, which is made if need be."""
        tables = {"queries": self.queries, "sources": self.sources, "peers": self.peers}
        if self.saved is not None:
            tables |= {"curves": self.saved.curves, "gains": self.saved.gains}
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            table.to_csv(Path(folder) / f"{name}.csv")

    @property
    def decimals(self) -> int:
        """After the point, for three digits of the range of scores; what is smaller is no news."""
        scores = self.queries.where(state="complete")["score"]
        spread = float(np.ptp(scores)) or abs(float(scores[0])) or 1.0
        return max(0, min(12, 3 - math.floor(math.log10(spread))))

    def heading(self) -> str:
        """One sentence: how many trials, and the best of them."""
        best = self.queries.where(trial=self.best_trial)
        source, peers = str(best["source"][0]), str(best["peers"][0])
        by = f"{source}: {peers}" if peers else source
        trials = f"{self.queries.height} trials" if self.queries.height > 1 else "1 trial"
        best_score = f"the best score is {number(self.best, self.decimals)}"
        return f"Agent {self.agent}: {trials}, {best_score} (trial {self.best_trial}, {by})."

    def sentences(self) -> list[str]:
        """What is to be said of trials saved, beside the table of gains."""
        saved = self.saved
        if saved is None:
            return [self.verdict]
        alone = saved.alone if saved.alone <= saved.trials else f"more than {saved.trials}"
        way = f"Trials to come 95 % of the way to its best: {saved.agent}, alone {alone}."
        first = f" It covers the first {saved.trials} trials."
        return [self.verdict, way + (first if saved.trials < self._scored() else ""), CAVEAT]

    def _scored(self) -> int:
        return self.queries.where(state="complete").height

    def _counted(self) -> list[str]:
        lines = ["", "Where the queries came from", *self._lines(self.sources)]
        if self.peers.height:
            rest = self.peers.height - _PEERS_SHOWN
            more = [f"  … and {rest} more"] if rest > 0 else []
            lines += ["", "What each peer contributed", *self._lines(self.peers), *more]
        return lines

    def _estimated(self) -> list[str]:
        said, *more = (
            textwrap.fill(text, 88, initial_indent="  ", subsequent_indent="  ")
            for text in self.sentences()
        )
        gains = [] if self.saved is None else ["", *self._lines(self.saved.gains), ""]
        return ["", "What collaborating saved", said, *more[:1], *gains, *more[1:]]

    def _lines(self, table: Table) -> list[str]:
        """The first rows of a table, in columns."""
        columns = [
            [name, *cells[:_PEERS_SHOWN]]
            for name, cells in zip(table.columns, texts(table, self.decimals), strict=True)
        ]
        widths = [max(map(len, column)) for column in columns]
        rows = zip(*columns, strict=True)
        return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def explain(
    name: str,
    trials: Sequence[Trial],
    places: Callable[[Sequence[int]], Array],
    *,
    initial: Sequence[Array],
    blended: bool,
    space: Space,
    settings: Settings,
    standard: Standard,
    beta: Beta,
    draws: int,
    rng: np.random.Generator,
) -> Explanation:
    """Explain an agent's ``trials``, which lie at ``places`` of their numbers.

    ``initial`` are the points that a solo agent starts from; ``blended`` says that peers may have
    had a share in queries that have no credit. ``rng`` is for the replay alone.
    """
    if draws < 1:
        raise ValueError(f"draws is {draws!r}, expected 1 or more")
    complete = [trial for trial in trials if trial.score is not None]
    if not complete:
        raise ValueError(
            f"agent {name!r} has no scores yet, so there is nothing to explain: "
            "ask() for a trial, tell() its score"
        )
    scores = np.array([trial.score for trial in complete], dtype=np.float64)
    y = space.sign * scores
    best = np.maximum.accumulate(y)
    gains = np.diff(best, prepend=best[0])
    saved = None
    verdict = _silence(complete, blended)
    if not verdict:
        shared = np.array([trial.source in ("initial", "told") for trial in complete])
        shared[: 0 if blended else _first_credited(complete)] = True  # no peer had a hand in them
        together, alone = replay(
            places([trial.number for trial in complete]),
            y,
            shared,
            initial=initial[int(shared.cumprod().sum()) :],
            space=space,
            settings=settings,
            standard=standard,
            beta=beta,
            draws=draws,
            rng=rng,
        )
        start = max(len(initial), int(shared.cumprod().sum()), 1)
        saved = compare(best, together, alone, start, space.sign)
        verdict = str(saved)
    top = int(np.argmax(y))
    return Explanation(
        agent=name,
        best=float(scores[top]),
        best_trial=complete[top].number,
        queries=_queries(trials, complete, space.sign * best, gains),
        sources=_sources(complete, scores, gains, space.sign),
        peers=_peers(complete, scores, gains, space.sign),
        saved=saved,
        verdict=verdict,
    )


def compare(best: Array, together: Array, alone: Array, start: int, sign: float = 1.0) -> Saving:
    """What is saved, from best scores so far, all to be maximised.

    ``best`` (n,) are the agent's as told, ``together`` and ``alone`` (S, h) those of the agent and
    of solo agents on S functions; ``start`` is the number of the solo agents' initial points.

    >>> together = np.array([[0.0, 1.0, 1.0, 1.0, 1.0]])
    >>> alone = np.array([[0.0, 0.0, 0.5, 0.9, 1.0]])
    >>> saved = compare(together[0], together, alone, start=1)
    >>> saved.agent, saved.alone, saved.median
    (2, 5, 3)
    """
    draws, h = together.shape
    end, first = together[:, -1], np.minimum(alone[:, min(start, h) - 1], together[:, -1])
    level = (first + _WAY * (end - first))[:, None]
    needed = (together >= level).argmax(axis=1) + 1
    missed = alone[:, -1] < level[:, 0]
    needed_alone = np.where(missed, h + 1, (alone >= level).argmax(axis=1) + 1)
    saved = needed_alone - needed
    low, median, high = _quantiles(saved).tolist()

    def open_at(quantile: int) -> bool:
        """Whether it would be larger, had the replays been longer."""
        return bool(missed[saved <= quantile].any())

    gain_low, gain, gain_high = _quantiles(together - alone)
    best = best[:h]
    curves = {"agent": best, "alone": best - gain, "low": best - gain_high, "high": best - gain_low}
    if sign < 0:
        curves = {name: -values for name, values in curves.items()}
        curves["low"], curves["high"] = curves["high"], curves["low"]
    trial = np.arange(1, h + 1)
    stops = np.isin(trial, (*_STOPS, h))
    shown = {"agent": curves["agent"], "alone": curves["alone"]}
    shown |= {"gain": gain, "low": gain_low, "high": gain_high}
    return Saving(
        draws=draws,
        trials=h,
        low=low,
        median=median,
        high=high,
        at_least=(open_at(low), open_at(median), open_at(high)),
        agent=int(_quantiles(needed)[1]),
        alone=int(_quantiles(needed_alone)[1]),
        curves=Table({"trial": trial} | curves),
        gains=Table({"trials": trial[stops]} | {k: v[stops] for k, v in shown.items()}),
    )


def credit(trial: Trial) -> dict[str, float]:
    """The shares that peers had in a query, by name."""
    shares: dict[str, float] = getattr(trial, "credit", {})
    return shares or ({trial.peer: 1.0} if trial.peer is not None else {})


def _first_credited(complete: Sequence[Trial]) -> int:
    """How many trials there were before the first one that peers had a share in."""
    return next((i for i, trial in enumerate(complete) if credit(trial)), len(complete))


def _silence(complete: Sequence[Trial], blended: bool) -> str:
    """Why nothing can be said of what collaborating saved; empty if something can."""
    n = len(complete)
    if not blended and not any(map(credit, complete)):
        return f"None of the {n} queries came from peers: so far collaborating changed nothing."
    if not blended and _first_credited(complete) >= LONGEST:
        return (
            f"Nothing can be said: peers first helped with trial {_first_credited(complete)}, and "
            f"only the first {LONGEST} are replayed."
        )
    if n < _FEWEST:
        return f"Too early to say: there are {n} scores, and it takes {_FEWEST}."
    if all(trial.score == complete[0].score for trial in complete):
        return "All scores are the same: there was nothing to find, and nothing to save."
    return ""


def _queries(
    trials: Sequence[Trial], complete: Sequence[Trial], best: Array, gains: Array
) -> Table:
    done = {trial.number: (b, g) for trial, b, g in zip(complete, best, gains, strict=True)}
    rows: list[list[Cell]] = []
    so_far = math.nan
    for trial in trials:
        so_far, gain = done.get(trial.number, (so_far, 0.0))
        score = math.nan if trial.score is None else trial.score
        who = ", ".join(
            name if share == 1.0 else f"{name} {share:.0%}"
            for name, share in sorted(credit(trial).items(), key=lambda pair: -pair[1])
        )
        row = [trial.number, trial.source, trial.state, who, score, float(so_far), float(gain)]
        rows.append(row)
    columns = ("trial", "source", "state", "peers", "score", "best", "gained")
    return Table.from_rows(columns, rows)


def _sources(complete: Sequence[Trial], scores: Array, gains: Array, sign: float) -> Table:
    came_from = np.array([trial.source for trial in complete])
    rows: list[list[Cell]] = []
    for source in (*SOURCES, *sorted({*came_from.tolist()} - {*SOURCES})):
        mine = came_from == source
        if mine.any():
            best = _best(scores[mine], sign)
            improved = int((gains[mine] > 0).sum())
            rows.append([source, int(mine.sum()), improved, float(gains[mine].sum()), best])
    return Table.from_rows(("source", "queries", "improved", "gained", "best"), rows)


def _peers(complete: Sequence[Trial], scores: Array, gains: Array, sign: float) -> Table:
    shares = [credit(trial) for trial in complete]
    rows: list[list[Cell]] = []
    for name in sorted({name for share in shares for name in share}):
        share = np.array([share.get(name, 0.0) for share in shares])
        best = _best(scores[share > 0], sign)
        rows.append([name, int((share > 0).sum()), float(share.sum()), float(share @ gains), best])
    rows.sort(key=lambda row: (-float(row[3]), -float(row[2]), row[0]))
    return Table.from_rows(("peer", "queries", "share", "gained", "best"), rows)


def _best(scores: Array, sign: float) -> float:
    return float(sign * (sign * scores).max())


def _quantiles(values: NDArray[np.number]) -> NDArray[np.number]:
    """The ends and the middle of the 90 % band over the first axis; each is one of the values."""
    band: NDArray[np.number] = np.quantile(values, _BAND, axis=0, method="inverted_cdf")
    return band


def _signed(trials: int) -> str:
    return f"−{-trials}" if trials < 0 else str(trials)


def texts(table: Table, decimals: int) -> list[list[str]]:
    """The cells of a table as they are shown, column by column."""
    return [
        [
            str(cell)
            if not isinstance(cell, float)
            else f"{cell:.3g}"
            if name == "share"
            else number(cell, decimals)
            for cell in table[name].tolist()
        ]
        for name in table.columns
    ]


def number(value: float, decimals: int) -> str:
    """A score as it is shown.

    >>> number(-0.12345, 3), number(-1e-9, 3), number(1.5e9, 0)
    ('−0.123', '0.000', '1500000000')
    """
    value = round(value, decimals) + 0.0  # and no −0
    return f"{value:.{decimals}f}".replace("-", "−")
