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
from fedbo.insight.replay import LONGEST, replay, rule_without_peers
from fedbo.insight.trials_saved import Saving, compare
from fedbo.model.kernel import one_thread
from fedbo.outside import printable
from fedbo.table import Cell, Table

if TYPE_CHECKING:
    from fedbo.agent.agent import Agent
    from fedbo.agent.trial import Trial

CAVEAT = (
    "This is a simulation with the agent's own model of its objective, not an experiment. In tests "
    "on synthetic functions, 88 % of real runs without peers were inside the interval."
)
SOURCES = ("initial", "tip", "own", "peer", "pool", "told")

_FEWEST = 8  # scores: with fewer, the model knows too little for a replay
_PEERS_SHOWN = 6


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
        verdict: The estimate in a sentence, or the reason why there is none.
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
        lines = [self.heading(), "", "Where the queries came from", *self._lines(self.sources)]
        if self.peers.height:
            lines += ["", "What each peer contributed", *self._lines(self.peers)]
            if self.peers.height > _PEERS_SHOWN:
                lines.append(f"  … and {self.peers.height - _PEERS_SHOWN} more")
        verdict, *more = (textwrap.indent(textwrap.fill(s, 86), "  ") for s in self.sentences())
        lines += ["", "What collaborating saved", verdict]
        if self.saved is not None:
            way, caveat = more
            lines += [way, "", *self._lines(self.saved.gains), "", caveat]
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
    def decimals(self) -> int:
        """How many decimals of a score to show: enough for three digits of the range of scores."""
        scores = self.queries.where(state="complete")["score"]
        with np.errstate(over="ignore"):
            spread = float(np.ptp(scores)) or abs(float(scores[0])) or 1.0
        if math.isinf(spread):
            return 0
        return max(0, min(12, 3 - math.floor(math.log10(spread))))

    def heading(self) -> str:
        best = self.queries.where(trial=self.best_trial)
        by = printable(": ".join(filter(None, (best["source"][0], best["peers"][0]))))
        trials = f"{self.queries.height} trials" if self.queries.height > 1 else "1 trial"
        best_score = f"the best score is {number(self.best, self.decimals)}"
        return f"Agent {self.agent}: {trials}, {best_score} (trial {self.best_trial}, {by})."

    def sentences(self) -> list[str]:
        """Return what is known about trials saved, besides the table of gains."""
        saved = self.saved
        if saved is None:
            return [self.verdict]
        alone = saved.alone if saved.alone <= saved.trials else f"more than {saved.trials}"
        way = f"Trials needed to come within 5 % of its best: {saved.agent}, alone {alone}."
        if saved.trials < self.queries.where(state="complete").height:
            way += f" This covers the first {saved.trials} trials."
        return [self.verdict, way, CAVEAT]

    def _lines(self, table: Table) -> list[str]:
        cells = [column[:_PEERS_SHOWN] for column in texts(table, self.decimals)]
        columns = [[name, *column] for name, column in zip(table, cells, strict=True)]
        widths = [max(map(len, column)) for column in columns]
        rows = zip(*columns, strict=True)
        return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def explain(agent: Agent, draws: int = 32, numbers: Mapping[int, int] | None = None) -> Explanation:
    """Explain an agent's queries; this changes nothing in the agent.

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
    complete = [trial for trial in trials if trial.score is not None]
    if not complete:
        raise ValueError(
            f"agent {agent.name!r} has no scores yet: ask() for a trial, tell() its score"
        )
    influenced = _influenced(agent, complete)
    verdict = _silence(complete, influenced)
    saved = None if verdict else _saved(agent, complete, influenced, draws)
    sign = agent.federation.space.sign
    queries = _queries(trials, sign)
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
    helped = np.array([blended or bool(_credit(trial) or trial.trust) for trial in complete])
    helped &= ~np.isin(source, ("initial", "told"))
    influenced: NDArray[np.bool_] = np.maximum.accumulate(helped) & (source != "told")
    return influenced


def _silence(complete: Sequence[Trial], influenced: NDArray[np.bool_]) -> str:
    """Return why nothing can be said about trials saved; empty if something can."""
    n = len(complete)
    if not influenced.any():
        return f"None of the {n} queries came from peers: so far collaborating changed nothing."
    if not influenced[:LONGEST].any():
        first = complete[int(influenced.argmax())].number
        return f"Peers first helped with trial {first}; only the first {LONGEST} can be replayed."
    if n < _FEWEST:
        return f"Too early to say: there are {n} scores, and the estimate needs {_FEWEST}."
    if all(trial.score == complete[0].score for trial in complete):
        return "All scores are equal: there was nothing to find, and nothing to save."
    return ""


def _saved(
    agent: Agent, complete: Sequence[Trial], influenced: NDArray[np.bool_], draws: int
) -> Saving:
    space, initial = agent.federation.space, agent.initial_design()
    X = np.array([space.encode(trial.params) for trial in complete])
    y = np.array([space.sign * (trial.score or 0.0) for trial in complete])
    before = int(np.argmax(influenced))  # trials before the first one that peers influenced
    with one_thread():
        together, alone = replay(
            X,
            y,
            ~influenced,
            initial=initial[before:],
            space=space,
            settings=agent.settings,
            rule=rule_without_peers(agent.policy),
            t=1 + sum(trial.t is not None for trial in complete[:before]),
            draws=draws,
            rng=agent.stream(Stream.EXPLAIN),
        )
    start = max(len(initial), before, 1)
    return compare(np.maximum.accumulate(y), together, alone, start, space.sign)


def _credit(trial: Trial) -> dict[str, float]:
    return trial.credit or ({trial.peer: 1.0} if trial.peer is not None else {})


def _queries(trials: Sequence[Trial], sign: int) -> Table:
    rows: list[list[Cell]] = []
    best = math.nan
    for trial in trials:
        score = math.nan if trial.score is None else trial.score
        before, best = best, sign * float(np.fmax(sign * best, sign * score))
        gain = abs(best - before) if best != before and not math.isnan(before) else 0.0
        who = ", ".join(
            name if share == 1.0 else f"{name} {share:.0%}"
            for name, share in sorted(_credit(trial).items(), key=lambda pair: -pair[1])
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
    shares = [_credit(trial) for trial in complete]
    gained, scores = queries["gained"], sign * queries["score"]
    rows: list[list[Cell]] = []
    for name in sorted({name for share in shares for name in share if share[name] > 0}):
        share = np.array([share.get(name, 0.0) for share in shares])
        best = sign * float(scores[share > 0].max())
        rows.append([name, int((share > 0).sum()), float(share.sum()), float(share @ gained), best])
    rows.sort(key=lambda row: (-float(row[3]), -float(row[2]), row[0]))
    return Table.from_rows(("peer", "queries", "share", "gained", "best"), rows)


def texts(table: Table, decimals: int) -> list[list[str]]:
    """Return the cells of a table as they are shown, column by column."""

    def text(name: str, cell: Cell) -> str:
        if not isinstance(cell, float):
            return printable(str(cell))
        return f"{cell:.3g}" if name == "share" else number(cell, decimals)

    return [[text(name, cell) for cell in table[name].tolist()] for name in table.columns]


def number(value: float, decimals: int) -> str:
    """Return a score as it is shown.

    >>> number(-0.12345, 3), number(-1e-9, 3), number(1.5e9, 0)
    ('−0.123', '0.000', '1500000000')
    """
    value = round(value, decimals) + 0.0  # -0.0 becomes 0.0
    return f"{value:.{decimals}f}".replace("-", "−")
