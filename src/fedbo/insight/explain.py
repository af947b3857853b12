"""An explanation of an agent's queries: their sources, the peers' contributions, trials saved."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fedbo.agent.settings import Stream
from fedbo.insight.replay import LONGEST, replay, without_peers
from fedbo.insight.trials_saved import Saving, compare
from fedbo.model.kernel import one_thread
from fedbo.outside import printable
from fedbo.table import Cell, Table

if TYPE_CHECKING:
    from fedbo.agent.agent import Agent
    from fedbo.agent.trial import Trial

CAVEAT = (
    "This is a simulation with the agent's own model of its objective, not an experiment. In tests "
    "on synthetic functions, four of five real runs without peers were inside the interval. Alone "
    "never counts as better than the agent's best score."
)
SOURCES = ("initial", "tip", "own", "peer", "pool", "told")

_FEWEST = 8  # scores: with fewer, the model knows too little for a replay
_PEERS_SHOWN = 6
_DECIMALS = 9  # with more, a power of ten is shown


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `Agent.explain`; ``str()`` makes it a page of text.

    Args:
        agent: Name of the agent.
        best: Its best score.
        best_trial: Number of the trial with the best score.
        queries: One row for each trial: its number, source and state, the peers with a share in it,
            its score (NaN if it has none), the best score so far and the gain over the best before.
        sources: For each source, its number of queries, their gains and their best score.
        peers: The same for each peer. A gain is divided among the peers by their credit.
        saved: The estimate of trials saved; None if there is none.
        verdict: The estimate in words, or the reason why there is none.
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
        parts = {"Where the queries came from": self.sources}
        if self.peers.height:
            parts["What each peer contributed"] = self.peers
        lines = [self.heading()]
        for title, table in parts.items():
            lines += ["", title, *_lines(table, self.spread)]
        if self.peers.height > _PEERS_SHOWN:
            lines.append(f"  … and {self.peers.height - _PEERS_SHOWN} more")
        lines += ["", "What collaborating saved", _filled(self.verdict)]
        if self.saved is not None:
            covers = f"The first {self.saved.trials} trials, with a replay of them without peers:"
            lines += [
                "",
                _filled(covers),
                *_lines(self.saved.gains, self.spread),
                "",
                _filled(CAVEAT),
            ]
        return "\n".join(lines)

    def to_csv(self, folder: str | os.PathLike[str]) -> None:
        """Write the tables as CSV files into a folder, which is created if necessary."""
        tables = {"queries": self.queries, "sources": self.sources, "peers": self.peers}
        if self.saved is not None:
            tables |= {"curves": self.saved.curves, "gains": self.saved.gains}
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            table.to_csv(Path(folder) / f"{name}.csv")

    @property
    def spread(self) -> float:
        """How far the scores differ."""
        scores = self.queries.where(state="complete")["score"]
        with np.errstate(over="ignore"):
            return float(np.ptp(scores))

    def heading(self) -> str:
        best = self.queries.where(trial=self.best_trial)
        by = printable(": ".join(filter(None, (best["source"][0], best["peers"][0]))))
        trials = f"{self.queries.height} trial{'' if self.queries.height == 1 else 's'}"
        score = f"the best score is {number(self.best, self.spread)}"
        rest = self.queries.height - int(self.sources["queries"].sum())
        left_out = f" Not counted below: {rest} (failed, infeasible or running)." if rest else ""
        return f"Agent {self.agent}: {trials}, {score} (trial {self.best_trial}, {by}).{left_out}"


def explain(agent: Agent, draws: int = 32, numbers: Mapping[int, int] | None = None) -> Explanation:
    """Explain an agent's queries; this changes nothing in the agent.

    A trial that breaks a constraint counts as failed.

    Args:
        agent: The agent, with at least one score.
        draws: Number of replays for the estimate of trials saved.
        numbers: The number of each trial in the agent, by its number in the study that the agent
            belongs to. The explanation has these trials, in the order and with the numbers of the
            study. By default, it has all trials of the agent with their own numbers.
    """
    if draws < 1:
        raise ValueError(f"draws is {draws!r}, expected 1 or more")
    trials = agent.trials
    if numbers is not None:
        trials = [replace(trials[own], number=number) for number, own in sorted(numbers.items())]
    trials = [t if t.is_feasible else replace(t, score=None, state="failed") for t in trials]
    complete = [trial for trial in trials if trial.score is not None]
    if not complete:
        raise ValueError(
            f"agent {agent.name!r} has no scores yet of feasible trials: ask() and tell()"
        )
    influenced = _influenced(agent, complete)
    verdict = _silence(complete, influenced)
    saved = None if verdict else _saved(agent, complete, influenced, draws)
    sign = agent.federation.space.sign
    # A first trial that came from peers has gained what it is better than a design point.
    start = saved.first if saved is not None and influenced[0] else math.nan
    queries = _queries(trials, sign, start)
    top = max(complete, key=lambda trial: sign * (trial.score or 0.0))
    return Explanation(
        agent=agent.name,
        best=float(top.score or 0.0),
        best_trial=top.number,
        queries=queries,
        sources=_sources(queries.where(state="complete"), sign),
        peers=_peers(complete, queries.where(state="complete"), sign),
        saved=saved,
        verdict=verdict or str(saved),
    )


def _influenced(agent: Agent, complete: Sequence[Trial]) -> NDArray[np.bool_]:
    """Return which trials peers may have influenced: all that were asked for since the first help.

    This includes initial points: an agent alone would have taken them before any query. Policies
    that blend the peers' beliefs give no credit, so all their queries count. An agent that was
    rebuilt from a study holds no messages, but its trials say which peers it trusted.
    """
    heard = len(agent.inbox) > 0 or any(trial.trust for trial in complete)
    blended = "weights" not in agent.policy.kinds and heard
    source = np.array([trial.source for trial in complete])
    helped = np.array([blended or bool(trial.credit or trial.trust) for trial in complete])
    helped &= ~np.isin(source, ("initial", "told"))
    influenced: NDArray[np.bool_] = np.maximum.accumulate(helped) & (source != "told")
    return influenced


def _silence(complete: Sequence[Trial], influenced: NDArray[np.bool_]) -> str:
    """Return why nothing can be said about trials saved; empty if something can."""
    n = len(complete)
    if any(trial.constraints for trial in complete):
        return "No estimate for studies with constraints."
    if not influenced.any():
        return f"None of the {n} queries came from peers: so far collaborating changed nothing."
    if not influenced[:LONGEST].any():
        first = complete[int(influenced.argmax())].number
        return f"Peers first helped with trial {first}; only the first {LONGEST} can be replayed."
    if n < _FEWEST:
        return f"Too early to say: it takes {_FEWEST - n} more scores."
    if all(trial.score == complete[0].score for trial in complete):
        return "All scores are equal: there was nothing to find, and nothing to save."
    return ""


def _saved(
    agent: Agent, complete: Sequence[Trial], influenced: NDArray[np.bool_], draws: int
) -> Saving:
    space, rng = agent.space, agent.stream(Stream.EXPLAIN)
    X = np.array([space.encode(trial.params) for trial in complete])
    y = np.array([space.sign * (trial.score or 0.0) for trial in complete])
    before = int(np.argmax(influenced))  # trials before the first one that peers influenced
    seeds = rng.integers(2**63, size=draws).tolist()  # of the solo agents' designs
    with one_thread():
        together, alone = replay(
            X,
            y,
            ~influenced,
            initial=[agent.initial_design(seed)[before:] for seed in seeds],
            space=space,
            settings=agent.settings,
            policy=without_peers(agent.policy),
            t=1 + sum(trial.t is not None for trial in complete[:before]),
            rng=rng,
        )
    scores = agent.settings.scores(y)
    return compare(np.maximum.accumulate(y), together, alone, scores, space.sign)


def _queries(trials: Sequence[Trial], sign: int, start: float) -> Table:
    rows: list[list[Cell]] = []
    best = math.nan
    for trial in trials:
        score = math.nan if trial.score is None else trial.score
        before = start if math.isnan(best) else best
        best = sign * float(np.fmax(sign * best, sign * score))
        gain = float(np.fmax(0.0, sign * (best - before)))  # 0 if one of them is NaN
        who = ", ".join(
            name if share == 1.0 else f"{name} {share:.0%}"
            for name, share in sorted(trial.credit.items(), key=lambda pair: -pair[1])
        )
        rows.append([trial.number, trial.source, trial.state, who, score, best, gain])
    columns = ("trial", "source", "state", "peers", "score", "best", "gained")
    return Table.from_rows(columns, rows)


def _sources(queries: Table, sign: int) -> Table:
    rows: list[list[Cell]] = []
    for source in (*SOURCES, *sorted({*queries["source"].tolist()} - {*SOURCES})):
        mine = queries.where(source=source)
        if mine.height:
            gained, best = mine["gained"], sign * float((sign * mine["score"]).max())
            rows.append([source, mine.height, int((gained > 0).sum()), float(gained.sum()), best])
    return Table.from_rows(("source", "queries", "improved", "gained", "best"), rows)


def _peers(complete: Sequence[Trial], queries: Table, sign: int) -> Table:
    shares = [trial.credit for trial in complete]
    gained, scores = queries["gained"], sign * queries["score"]
    rows: list[list[Cell]] = []
    for name in sorted({name for share in shares for name in share if share[name] > 0}):
        share = np.array([share.get(name, 0.0) for share in shares])
        best = sign * float(scores[share > 0].max())
        rows.append([name, int((share > 0).sum()), float(share.sum()), float(share @ gained), best])
    rows.sort(key=lambda row: (-float(row[3]), -float(row[2]), row[0]))
    return Table.from_rows(("peer", "queries", "share", "gained", "best"), rows)


def _filled(text: str) -> str:
    return textwrap.indent(textwrap.fill(text, 86), "  ")


def _lines(table: Table, spread: float) -> list[str]:
    """Return a table as it is shown: its first rows, in columns."""

    def text(name: str, cell: Cell) -> str:
        if not isinstance(cell, float):
            return printable(str(cell))
        formats = {"share": f"{cell:.3g}", "ahead": f"{cell:.0%}", "saved": f"{cell:.1f}"}
        return formats.get(name, number(cell, spread)).replace("-", "−")

    columns = [
        [name, *(text(name, cell) for cell in table[name][:_PEERS_SHOWN].tolist())]
        for name in table.columns
    ]
    widths = [max(map(len, column)) for column in columns]
    rows = zip(*columns, strict=True)
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def number(value: float, spread: float) -> str:
    """Return a score as it is shown: four digits of it, and of the spread of scores.

    >>> number(-0.123456, 3.0), number(0.00012, 3.0), number(1234.5678, 0.1), number(1e-12, 3.0)
    ('−0.1235', '0.0001200', '1234.5678', '1.000e−12')
    """
    units = [unit for unit in (abs(value), spread) if 0.0 < unit < math.inf]
    decimals = max(0, 3 - math.floor(math.log10(min(units)))) if units else 0
    text = f"{value:.3e}" if decimals > _DECIMALS else f"{value:.{decimals}f}"
    return text.replace("-", "−")
