"""How each kind of claim is judged on the runs of one experiment with one preset.

Each function here takes the runs and returns an `Answer`, or None if the runs it needs are missing.
Where a claim is not about one M, a pair's value is its mean over the M that both sides have.
Effects are positive where our side is ahead; `intervals` has the rules of the verdicts.

=========  ====================================================================================
unit       synthetic: a function, its repeats averaged; real data: a target with a repeat. So an
           interval describes other functions in the first case, and other initial points of the
           same targets in the second, as in the paper
score      the best score so far: AUC for landmine, validation error for activity recognition
regret     simple regret without noise, on functions that are scaled to [0, 1]; *speed* is its
           mean over iterations 1 to T, *end* its value at T
seconds    CPU seconds of the method; whether evaluations of the objective count is said
=========  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from fedbo_paper.experiments.sides import Floats, Pairs, Rows, Runs, Side, pairs_of
from fedbo_paper.harness.intervals import (
    LEVEL,
    Effect,
    Verdict,
    cluster_means,
    comparable,
    exponent,
    mean,
    paired,
    ratio,
    superior,
)

Rule = Callable[[Effect, float], Verdict]

# Smallest differences that matter
AUC = 0.01  # one of a field's 16 validation mines ranked below a sixth of the places without mines
ERROR = 0.005  # less than one validation sample: HAR has about 170 (0.006), Google Glass 100
SPEED = 0.01  # a delay of one iteration: a curve that starts at a regret of 0.5 costs 0.5/50 more
END = 0.0005  # the point beside the best one has a regret of .0006 on average; runs end near .001
FASTER = 1.0  # above a ratio of 1: half the time
GROWTH = 0.1  # an exponent: ten times the agents cost a quarter more
LINEAR = 0.25  # an exponent of 0.75 to 1.25 counts as linear
SLOWER = 0.05  # a twentieth of the range of f: regret per query that falls by less hardly falls

JUDGED = (10, 20, 50)  # the iterations after which scores are compared
FIRST = 0  # the target of figures 3 and 4; the appendix shows the others

LARGER_IS_BETTER = {"landmine": True, "glass": False, "har": False}


# What is compared


class Quantity(NamedTuple):
    """One number for each run, its better direction, and the smallest difference that matters."""

    what: str
    values: Floats
    sign: int
    matters: float

    def lead(self, runs: Runs, pairs: Pairs, level: float = LEVEL) -> Effect:
        """Return how far our side is ahead."""
        a, b = self.sign * self.values[pairs.ours], self.sign * self.values[pairs.theirs]
        return paired(a, b, runs.clusters[pairs.ours], level)

    def known(self, pairs: Pairs) -> Pairs:
        """Return the pairs for which it is known."""
        return pairs.only(np.isfinite(self.values[pairs.ours] + self.values[pairs.theirs]))


def score(runs: Runs, after: int) -> Quantity:
    """The best score after some iterations; NaN for runs that have fewer."""
    best = runs.best[:, after] if after <= runs.T else np.full(len(runs), np.nan)
    return Quantity(f"{_metric(runs)} after {after} iterations", best, *scale(runs))


def speed(runs: Runs) -> Quantity:
    """The mean simple regret."""
    what = f"mean simple regret over iterations 1 to {runs.T}"
    return Quantity(what, runs.curve("simple_regret")[:, 1:].mean(axis=1), -1, SPEED)


def end(runs: Runs) -> Quantity:
    """The final simple regret."""
    what = f"simple regret after {runs.T} iterations"
    return Quantity(what, runs.curve("simple_regret")[:, -1], -1, END)


def decline(runs: Runs) -> Quantity:
    """How much less a query of the second half of a run loses than one of the first half."""
    regret = runs.curve("cumulative_regret")
    half = runs.T // 2
    first, second = regret[:, half], regret[:, 2 * half] - regret[:, half]
    return Quantity("regret of a query", (first - second) / max(1, half), 1, SLOWER)


def _metric(runs: Runs) -> str:
    return "AUC" if LARGER_IS_BETTER[runs.experiment] else "validation error"


def scale(runs: Runs) -> tuple[int, float]:
    """Return the better direction of the score, and the smallest difference that matters."""
    return (1, AUC) if LARGER_IS_BETTER[runs.experiment] else (-1, ERROR)


# How a claim is judged


class Answer(NamedTuple):
    """What the runs say about a claim; ``matters`` is δ."""

    verdict: Verdict
    effect: Effect
    measure: str
    matters: float


Test = Callable[[Runs], Answer | None]


def ahead(
    runs: Runs, *, ours: Side, theirs: Side, by: Callable[[Runs], Quantity], rule: Rule = superior
) -> Answer | None:
    """Judge by a rule whether one side is ahead of the other."""
    quantity = by(runs)
    pairs = quantity.known(pairs_of(runs, ours, theirs))
    if not len(pairs.ours):
        return None
    effect = quantity.lead(runs, pairs)
    measure = f"lead of {ours.name} over {theirs.name} in {quantity.what}"
    if runs.experiment != "synthetic" and {ours.method, theirs.method} <= {"TS", "FTS"}:
        measure += _followed(runs, pairs.ours)
    return Answer(rule(effect, quantity.matters), effect, measure, quantity.matters)


def _followed(runs: Runs, rows: Rows) -> str:
    """Say how many messages FTS followed: with p_t = 1 − 1/t² so few that it hardly differs."""
    counts = runs.followed[rows]
    return (
        f"; FTS followed {counts.mean():.1f} messages a run, and none in "
        f"{np.mean(counts == 0):.0%} of the runs"
    )


def falls(runs: Runs, *, side: Side) -> Answer | None:
    """Judge whether the regret of a query falls from the first half of a run to the second."""
    rows = side.select(runs)
    quantity = decline(runs)
    if not len(rows) or runs.T < 2:
        return None
    effect = mean(cluster_means(quantity.values[rows], runs.clusters[rows]))
    measure = f"fall of {side.name}'s {quantity.what} from the first half of a run to the second"
    return Answer(superior(effect, quantity.matters), effect, measure, quantity.matters)


def across_features(runs: Runs, *, side: Side, rule: Rule) -> Answer | None:
    """Compare the largest M of a side with its smallest."""
    M = runs.label("M")[side.select(runs)]
    if len(M) == 0 or M.min() == M.max():
        return None
    ours, theirs = (msgspec.structs.replace(side, M=int(m)) for m in (M.max(), M.min()))
    return ahead(runs, ours=ours, theirs=theirs, by=speed, rule=rule)


def times(
    runs: Runs, *, ours: Side, theirs: Side, what: str, of: Callable[[Runs], Floats], matters: float
) -> Answer | None:
    """Judge how many times as much the other side needs."""
    needed = of(runs)
    pairs = pairs_of(runs, ours, theirs)
    pairs = pairs.only((needed[pairs.ours] > 0) & (needed[pairs.theirs] > 0))
    if not len(pairs.ours):
        return None
    a, b, clusters = needed[pairs.ours], needed[pairs.theirs], runs.clusters[pairs.ours]
    effect = ratio(b, a, clusters)
    measure = f"ratio of {what}, {theirs.name} to {ours.name}"
    return Answer(superior(effect, matters, zero=1.0), effect, measure, matters)


def sooner(runs: Runs, *, ours: Side, theirs: Side) -> Answer | None:
    """Judge whether the first target has better scores in the same CPU time, as figure 3 shows it.

    Both curves are averaged over the CPU seconds, evaluations counted, that our side needs for its
    T iterations.
    """
    pairs = pairs_of(runs, ours, theirs)
    elapsed = runs.elapsed
    is_timed = np.isfinite(elapsed[pairs.ours, -1] + elapsed[pairs.theirs, -1])
    pairs = pairs.only(is_timed & (runs.label("target")[pairs.ours] == FIRST))
    if not len(pairs.ours):
        return None
    sign, matters = scale(runs)
    until = elapsed[pairs.ours, -1]
    curves = [_mean_over_time(runs, rows, until) for rows in (pairs.ours, pairs.theirs)]
    effect = paired(sign * curves[0], sign * curves[1])
    measure = (
        f"lead over {theirs.name} in {_metric(runs)}, averaged over the run time, evaluations "
        "counted"
    )
    return Answer(superior(effect, matters), effect, measure, matters)


def _mean_over_time(runs: Runs, rows: Rows, until: Floats) -> Floats:
    """The mean over time of each best-so-far curve, up to ``until`` seconds: (rows,)."""
    ends = np.column_stack([runs.elapsed[rows], np.full(len(rows), np.inf)])
    shares = np.diff(np.minimum(ends, until[:, None])) / until[:, None]
    means: Floats = (shares * runs.best[rows]).sum(axis=1)
    return means


def length_ratio(runs: Runs, *, ours: Side, theirs: Side) -> Answer | None:
    """Return how many times as many numbers a peer of the other side sends, as they are sent.

    It follows from the definitions of the messages, so it has no interval; low and high are the
    extremes over M.
    """
    pairs = pairs_of(runs, ours, theirs)
    pairs = pairs.only((runs.sent[pairs.ours] > 0) & (runs.sent[pairs.theirs] > 0))
    if not len(pairs.ours):
        return None
    ratios = runs.sent[pairs.theirs] / runs.sent[pairs.ours]
    middle = float(np.median(ratios))
    effect = Effect(middle, float(ratios.min()), float(ratios.max()), len(ratios))
    measure = (
        f"numbers that a peer sends, {theirs.name} to {ours.name}: median, least and most over M; "
        "of a symmetric matrix one triangle is sent"
    )
    return Answer("by definition", effect, measure, 0.0)


def growth(
    runs: Runs, *, method: str, rule: Rule, delta: float, last: float = np.inf
) -> Answer | None:
    """Judge how run time grows with N; only N within a factor ``last`` of the largest count."""
    rows = Side(method).select(runs)
    rows = rows[np.isfinite(runs.clock[rows, -1])]
    agents = runs.label("N")
    rows = rows[last * agents[rows] >= agents.max()]
    units, unit = np.unique(runs.units[rows], return_inverse=True)
    N, column = np.unique(agents[rows], return_inverse=True)
    seconds = np.full((len(units), len(N)), np.nan)
    seconds[unit, column] = runs.clock[rows, -1]
    seconds = seconds[np.isfinite(seconds).all(axis=1)]
    if not len(seconds) or len(N) < 2:
        return None
    effect = exponent(N.astype(np.float64), seconds)
    measure = (
        f"exponent of {method}'s CPU seconds without evaluations in the number of agents, "
        f"{N[0]} to {N[-1]}"
    )
    return Answer(rule(effect, delta), effect, measure, delta)


def linear(effect: Effect, delta: float) -> Verdict:
    """Judge whether an exponent is within δ of 1.

    >>> linear(Effect(0.9, 0.85, 0.95, 3), delta=0.25)
    'holds'
    """
    return comparable(effect, delta, zero=1.0)


def some_targets(
    runs: Runs, *, ours: Side, theirs: Side, by: Callable[[Runs], Quantity]
) -> Answer | None:
    """Judge whether our side is ahead for some of the other targets, and no worse for the rest.

    Intervals are widened (Bonferroni), so that all of them together are right in 95 % of cases. The
    effect is the lead that decides: of the target that refutes the claim, or else the largest one.
    """
    quantity = by(runs)
    pairs = pairs_of(runs, ours, theirs)
    target = runs.label("target")
    pairs = quantity.known(pairs.only(target[pairs.ours] != FIRST))
    targets = np.unique(target[pairs.ours])
    if len(targets) == 0:
        return None
    level = 1 - (1 - LEVEL) / len(targets)
    leads = [quantity.lead(runs, pairs.only(target[pairs.ours] == t), level) for t in targets]
    worst = min(range(len(leads)), key=lambda i: leads[i].high)
    best = max(range(len(leads)), key=lambda i: leads[i].low)
    verdict: Verdict = "not decided"
    if leads[worst].high < -quantity.matters:
        verdict, best = "does not hold", worst
    elif all(lead.high < quantity.matters for lead in leads):
        verdict = "does not hold"
    elif leads[best].low > 0 and all(lead.low > -quantity.matters for lead in leads):
        verdict = "holds"
    measure = (
        f"lead of {ours.name} over {theirs.name} for target {targets[best]} in {quantity.what}"
    )
    measure += _followed(runs, pairs.ours)
    return Answer(verdict, leads[best], measure, quantity.matters)


#: The best score after each of `JUDGED`, by the number of iterations.
SCORES: dict[int, Callable[[Runs], Quantity]] = {
    after: partial(score, after=after) for after in JUDGED
}
