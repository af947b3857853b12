"""Measure what the messages of an agent reveal about its trials.

Agents tune smooth random functions of D = 2 parameters alone, with Thompson sampling, for 50
trials. Their messages are *weights* with M = 100, or *summaries*: what compact messages are made
from, with an exact mean and exact counts of trials, so that a compact message reveals no more. The
attacker knows the federation and the code, and reads everything that an agent publishes.

=====================  ============================================================================
symbol                 meaning
=====================  ============================================================================
φ(x)                   features of a point
ω ~ N(ν, σ²Σ⁻¹)        a message of weights, drawn from the belief
B, v, g, Q, m, C       a summary and what it is made from, as in `fedbo.model.summary`
n                      numbers of trials in the public cells, (cells,)
=====================  ============================================================================

Attacks on both kinds:

best trial      take the maximum of φᵀω, or of φᵀBm, of one message, and measure its distance on the
                unit cube from the sender's best trial
one trial       guess which of two histories an agent had. They differ in one trial, which was made
                at another point: a random one for a random trial or the best one, and one in the
                same cell for a "close" trial. The attacker knows everything else. The guess is the
                history under which the messages are more likely. If the other history would have
                published at other times, the timing tells. By chance, half of the guesses are right
average         average messages of successive scores, and correlate the function with φᵀν, the mean
                of the agent's belief after all trials, over the cube
places          order the points of the cube by how likely a trial was made nearby: by the value of
                φᵀω, since agents search where scores are good, or by the variance of the summary,
                which is small near trials. The figure is the AUC: how often a point with a trial
                within 0.05 is ranked above a point without one. By chance, it is 0.5
all trials      name a point for each trial, and count the trials within 0.01 of theirs; points and
                trials are paired so that distances are small. With weights, all points are the
                maximum. A summary says how many trials each cell has; points are
                  centre      the centres of these cells
                  mean        the means of the trials that other agents, which the attacker
                              simulates, make in these cells; no m is read
                  usual       where these agents make many of their trials in a cell, such as a
                              corner of the cube; no m is read
                  likely      those that explain m best, together with their scores (maximum a
                              posteriori). Their prior has the same means, so that what m adds is
                              the difference from "mean"; as they differ within a cell, the pairing
                              favours them
                From all summaries that were published, the likely points explain every m

"One trial" and "average" are measured for several rules of publishing:

every trial     a message after each score
every fifth     a message after each fifth score, as with every=5
worth it        a message after a new best score, or once the history has doubled since the last
                message, as by default
last only       one message, after the last trial

The noise is drawn anew in each run, so the last digits differ from run to run.

    python benchmarks/attack/reveal.py --json out.json
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import least_squares, linear_sum_assignment, nnls
from scipy.stats import rankdata

import fedbo
from fedbo.exchange.timing import due
from fedbo.message import Message
from fedbo.model import summary as summaries
from fedbo.model.argmax import argmax
from fedbo.model.features import FeatureFunction, Features
from fedbo.model.linear import Posterior, Regression
from fedbo.model.surrogate import Standardised
from fedbo_paper.contests import options, screen
from fedbo_paper.harness import intervals
from fedbo_paper.harness.intervals import Effect

Floats = NDArray[np.float64]
Objective = Callable[[Floats], Floats]

D, T = 2, 50
WHICH = ("random", "best", "close")  # trial that differs between two histories
NAMES = [f"x{d}" for d in range(D)]
SPACE = {name: fedbo.Float(0.0, 1.0) for name in NAMES}
WEIGHTS = fedbo.Federation(SPACE, kind="weights")
SUMMARIES = fedbo.Federation(SPACE)  # of compact messages
PHI, SIGMA2, CENTRES = WEIGHTS.phi, WEIGHTS.noise_variance, SUMMARIES.cells
B = SUMMARIES.basis.vectors
FEATURES = 2000  # of an objective
SIZES = (10, 25, T)  # trials behind a message
RESTORED = (5, 10, 25)  # trials behind a message from which all of them are restored
FOLLOWED = ("every trial", "every fifth", "worth it")  # rules whose summaries are followed
SIMULATED = 40  # agents from which the attacker learns where trials are usual
USUAL = 0.2  # share of the trials in a cell that are near one point, if it is usual
FOUND = 0.01  # distance at which a trial counts as restored
NEAR = 0.05  # distance at which a trial is near a point
ROUNDING = 1e-5  # covariances that differ by less are of the same cells
LEAST = 1e-3  # factor s of a direction of m; below, it is mostly rounding errors
STARTS = 2  # of a search for likely points
FEWER = 5  # one of so many agents is followed through all of its summaries
SHARES = (" trial", "timing", "cells", "restored")  # figures in [0, 1]
Z = 1.96  # standard deviations in half of an interval
MEANS = (1, 2, 5, 10, 20)  # messages that are averaged


def grid(n: int) -> Floats:
    """Return n points along each dimension of the cube, (n ** D, D)."""
    return np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, n)] * D), axis=-1).reshape(-1, D)


GRID, FINE = grid(30), grid(100)
CELL_OF_FINE = SUMMARIES.nearest_cells(FINE)
TRIANGLE = np.tril_indices(B.shape[1])


class Run(NamedTuple):
    """What an agent did."""

    X: Floats  # points of its trials, (T, D)
    y: Floats  # their scores, (T,)

    @property
    def best(self) -> Floats:
        """The point of the best trial, (D,)."""
        point: Floats = self.X[self.y.argmax()]
        return point

    def first(self, t: int) -> Run:
        """Return the run after t trials."""
        return Run(self.X[:t], self.y[:t])


def smooth(rng: np.random.Generator) -> Objective:
    """Draw a function from a GP with length scales of 0.14 to 0.71."""
    scales = rng.uniform(0.2, 1.0, D) * np.sqrt(D) / 2
    phi = Features(D, FEATURES, length_scales=scales, seed=int(rng.integers(2**31)))
    return phi.function(rng.standard_normal(FEATURES))


def tune(objective: Objective) -> Run:
    """Run an agent alone."""
    agent = fedbo.Agent(WEIGHTS, fedbo.TS())
    points, scores = [], []
    for _ in range(T):
        trial = agent.ask()
        points.append([trial.params[name] for name in NAMES])
        scores.append(float(objective(np.array(points[-1:]))[0]))
        agent.tell(trial, scores[-1])
    return Run(np.array(points), np.array(scores))


class Summary(NamedTuple):
    """What a compact message is made from: a summary as `fedbo.model.summary` makes it."""

    t_n: int
    nu: Floats  # m, (k,)
    covariance: Floats  # C, (k, k)


def weights_of(run: Run) -> list[Message]:
    """Return the message after each trial. Its noise has no seed, as is right if it leaves."""
    agent = fedbo.Agent(WEIGHTS, fedbo.TS())
    written = []
    for x, score in zip(run.X.tolist(), run.y.tolist(), strict=True):
        agent.tell(dict(zip(NAMES, x, strict=True)), score)
        written.append(agent.message())
    return written


def summaries_of(run: Run) -> list[Summary]:
    """Return the summary after each trial, with noise that has no seed either."""
    rng, written = np.random.default_rng(), []
    for t in range(1, len(run.y) + 1):
        first = run.first(t)
        G = SUMMARIES.known_of(SUMMARIES.counts(first.X))
        written.append(Summary(t, *summaries.summarise(belief(*first), G, B, rng)))
    return written


def belief(X: Floats, y: Floats) -> Posterior:
    """Return what an agent with scores y (t,) at X (t, D) believes, over φ."""
    regression = Regression(PHI, SIGMA2)
    regression.add(X)
    return regression.posterior(Standardised(y).z)


# Kinds of messages, as the attacker reads them


class Kind(NamedTuple):
    """What an attacker makes of a message of one kind."""

    write: Callable[[Run], Sequence[Any]]  # the messages of a run
    omega: Callable[[Any], Floats]  # weights of the function in it, up to a constant, (M,)
    log_density: Callable[[Run, Any], float]  # of a message of a run, up to a constant
    tried: Callable[[Any, Floats], Floats]  # is larger at points (n, D) where trials are likely


def drawn_weights(message: Message) -> Floats:
    """Return ω."""
    return message.omega.astype(np.float64)


def mean_weights(summary: Summary) -> Floats:
    """Return Bm."""
    omega: Floats = B @ summary.nu
    return omega


def log_density_of_weights(run: Run, message: Message) -> float:
    """Return the logarithm of the density of ω ~ N(ν, σ²Σ⁻¹)."""
    posterior = belief(*run)
    u = posterior.L.T @ (message.omega - posterior.nu)
    return float(np.log(np.diag(posterior.L)).sum() - u @ u / (2 * SIGMA2))


def log_density_of_summary(run: Run, summary: Summary) -> float:
    """Return the logarithm of the density of v; −∞ if trials are in other cells than C says."""
    posterior = belief(*run)
    G = SUMMARIES.known_of(SUMMARIES.counts(run.X))
    _, C = summaries.summarise(posterior, G, B, np.random.default_rng(0))
    if np.abs(C - summary.covariance).max() > ROUNDING:
        return -np.inf
    seen = read(summary)
    error = seen.v - seen.Q.T @ (B.T @ posterior.nu)
    covariance = summaries.NOISE**2 * posterior.covariance(B @ seen.Q)
    _, log_det = np.linalg.slogdet(covariance)
    return float(-0.5 * (log_det + error @ np.linalg.solve(covariance, error)))


def value(message: Message, X: Floats) -> Floats:
    """Return φᵀω at points (n, D)."""
    return PHI.function(message.omega)(X)


def certainty(summary: Summary, X: Floats) -> Floats:
    """Return minus the variance at points (n, D), φᵀBCBᵀφ."""
    Phi_B = PHI(X) @ B
    variance: Floats = np.einsum("ij,ij->i", Phi_B @ summary.covariance, Phi_B)
    return -variance


KINDS = {
    "weights": Kind(weights_of, drawn_weights, log_density_of_weights, value),
    "summary": Kind(summaries_of, mean_weights, log_density_of_summary, certainty),
}


# Rules of publishing


def sent_after(every: int | None, y: Floats) -> list[int]:
    """Return after how many scores an agent with this ``every`` publishes a message."""
    return due(y.tolist(), every)


RULES: dict[str, Callable[[Floats], list[int]]] = {
    "every trial": partial(sent_after, 1),
    "every fifth": partial(sent_after, 5),
    "worth it": partial(sent_after, None),
    "last only": lambda y: [len(y)],
}


# Attacks on both kinds


def distance_to_best(run: Run, function: FeatureFunction) -> float:
    """Return how far the maximum of a function is from the best trial."""
    return float(np.linalg.norm(argmax(function, WEIGHTS.space) - run.best))


def is_recognised(kind: Kind, run: Run, other: Run, sent: dict[int, Any]) -> float:
    """Return 1 if the attacker guesses the true history, 0 if the other one, 0.5 if undecided.

    Args:
        kind: What the messages are.
        run: The true history.
        other: The other history.
        sent: The messages by the number of trials behind them.
    """
    lead = 0.0
    for t, message in sent.items():
        ours, theirs = run.first(t), other.first(t)
        if (ours.X != theirs.X).any():
            lead += kind.log_density(ours, message) - kind.log_density(theirs, message)
    return 0.5 + 0.5 * float(np.sign(lead))


def neighbour(run: Run, changed: int, x: Floats, objective: Objective) -> Run:
    """Return the run with one trial made at the point x instead."""
    X, y = run.X.copy(), run.y.copy()
    X[changed], y[changed] = x, objective(x[None])[0]
    return Run(X, y)


def correlation(run: Run, omegas: Sequence[Floats]) -> float:
    """Correlate the mean of messages with the mean of the last belief."""
    Phi = PHI(GRID)
    return float(np.corrcoef(Phi @ np.mean(omegas, axis=0), Phi @ belief(*run).nu)[0, 1])


def auc(ranked_by: Floats, run: Run) -> float:
    """Return how often a point of the grid near a trial ranks above one that is not."""
    gaps = np.linalg.norm(GRID[:, None] - run.X, axis=-1)
    is_near = gaps.min(axis=1) <= NEAR
    n, others = np.count_nonzero(is_near), np.count_nonzero(~is_near)
    return float((rankdata(ranked_by)[is_near].sum() - n * (n + 1) / 2) / (n * others))


def attack_kind(kind: Kind, run: Run, others: dict[str, Run]) -> dict[str, float]:
    """Run every attack that messages of all kinds allow."""
    written = kind.write(run)
    omegas = [kind.omega(message) for message in written]
    found = {}
    for t in SIZES:
        found[f"distance {t}"] = distance_to_best(run.first(t), PHI.function(omegas[t - 1]))
        found[f"places {t}"] = auc(kind.tried(written[t - 1], GRID), run.first(t))
    for rule, publishes in RULES.items():
        times = publishes(run.y)
        sent = {t: written[t - 1] for t in times}
        found[f"{rule}: messages"] = len(times)
        found[f"{rule}: distance"] = distance_to_best(run, PHI.function(omegas[times[-1] - 1]))
        for k in MEANS:
            found[f"{rule}: mean of {k}"] = correlation(run, [omegas[t - 1] for t in times[-k:]])
        for which, other in others.items():
            by_timing = times != publishes(other.y)  # numbers of trials behind messages tell
            right = 1.0 if by_timing else is_recognised(kind, run, other, sent)
            found[f"{rule}: {which} trial"] = right
            found[f"{rule}: {which} trial, timing"] = float(by_timing)
    for t in (*RESTORED, T):
        top = argmax(PHI.function(omegas[t - 1]), WEIGHTS.space)
        named = accuracy("maximum", run.X[:t], np.tile(top, (t, 1)))
        found |= {f"{t}: {figure}": each for figure, each in named.items()}
    return found


def accuracy(name: str, X: Floats, points: Floats) -> dict[str, float]:
    """Pair points with trials at X, (t, D) each, and return how close they are."""
    gaps = np.linalg.norm(X[:, None] - points, axis=-1)
    paired = gaps[linear_sum_assignment(gaps)]
    return {
        f"{name}, restored": float((paired <= FOUND).mean()),
        f"{name}, gap": float(np.median(paired)),
    }


# Attacks on summaries


class Seen(NamedTuple):
    """What a summary says: v = Bᵀν plus noise, along the directions that trials determine."""

    t: int
    Q: Floats  # these directions, (k, r)
    v: Floats  # along them, (r,)
    noise: Floats  # standard deviations of the noise in v, about, (r,)
    C: Floats  # covariance of z, given trials of which only the cells are known, (k, k)


def read(summary: Summary) -> Seen:
    """Undo `fedbo.model.summary`."""
    rho2, identity = summaries.NOISE**2, np.eye(B.shape[1])
    h, Q = np.linalg.eigh(identity - summary.covariance)
    h = h.clip(0.0, 1.0)  # g² / (g + ρ² (1 − g)), solved for g:
    g = 0.5 * (h * (1.0 - rho2) + np.sqrt((h * (1.0 - rho2)) ** 2 + 4.0 * h * rho2))
    C = identity - (Q * g) @ Q.T
    s = g / np.maximum(g + rho2 * (1.0 - g), np.finfo(float).tiny)
    Q, g, s = Q[:, s > LEAST], g[s > LEAST], s[s > LEAST]
    noise = np.sqrt(rho2 * (1.0 - g).clip(1e-6))
    return Seen(summary.t_n, Q, Q.T @ summary.nu / s, noise, C)


def trials_in_cells(seen: Seen) -> NDArray[np.intp]:
    """Return n (cells,): solve for C by Newton's method with n ≥ 0, and round."""
    Phi, identity = SUMMARIES.cell_features, SIGMA2 * np.eye(PHI.M)
    n = np.full(len(CENTRES), seen.t / len(CENTRES))
    for _ in range(30):
        inverse = np.linalg.inv((Phi.T * n) @ Phi + identity)
        W = seen.C @ np.linalg.inv(SIGMA2 * B.T @ inverse @ B)  # C⁻¹ is almost linear in n
        a = W @ B.T @ inverse @ Phi.T
        J = SIGMA2 * a[TRIANGLE[0]] * a[TRIANGLE[1]]
        excess = (W @ seen.C - seen.C)[TRIANGLE]
        before, (n, _) = n, nnls(np.vstack([J, np.ones(len(n))]), [*(J @ n - excess), seen.t])
        if np.abs(n - before).max() < 0.01:
            break
    counts: NDArray[np.intp] = np.rint(n).astype(np.intp)
    return counts


def follow_cells(published: Sequence[Seen]) -> NDArray[np.intp]:
    """Return the cell of each trial (t,), in the order of the summaries that show it first."""
    cells, before = [], np.zeros(len(CENTRES), dtype=np.intp)
    for seen in published:
        n = trials_in_cells(seen)
        cells.append(np.repeat(np.arange(len(n)), (n - before).clip(0)))
        before = n
    return np.concatenate(cells)


class Habits(NamedTuple):
    """Where agents make their trials in a cell."""

    usual: Floats  # the point that many trials are near, or else the mean, (cells, D)
    mean: Floats  # of the points of trials, (cells, D)
    factor: Floats  # lower Cholesky factor of their covariance, (cells, D, D)


def learn_habits() -> Habits:
    """Simulate agents. A few points all over each cell are added to their trials."""
    seeds = ([seed, SIMULATED] for seed in range(SIMULATED))
    runs = [tune(smooth(np.random.default_rng(seed))).X for seed in seeds]
    X = np.concatenate([*runs, grid(40)])
    cells = SUMMARIES.nearest_cells(X)
    inside = [X[cells == cell] for cell in range(len(CENTRES))]
    means = np.array([some.mean(axis=0) for some in inside])
    usual = means.copy()
    for cell, some in enumerate(inside):
        near = (np.linalg.norm(some[:, None] - some, axis=-1) <= FOUND).mean(axis=1)
        if near.max() > USUAL:
            usual[cell] = some[near.argmax()]
    factors = [np.linalg.cholesky(np.cov(some.T) + 1e-6 * np.eye(D)) for some in inside]
    return Habits(usual, means, np.array(factors))


def likely_run(
    published: Sequence[Seen], cells: NDArray[np.intp], habits: Habits, starts: int
) -> Run:
    """Return the points and standardised scores that explain summaries best.

    The prior of points is normal within their cells. The prior of scores is that of the
    federation's model: y = L u with u ~ N(0, I) and LLᵀ = ΦΦᵀ + σ²I.

    Args:
        published: One or more summaries, the oldest first.
        cells: The cells of the trials, (t,).
        habits: The prior of points.
        starts: The number of searches, from random points.
    """
    t = len(cells)

    def decode(unknowns: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        steps = unknowns[: D * t].reshape(t, D)
        X: Floats = habits.mean[cells] + np.einsum("nij,nj->ni", habits.factor[cells], steps)
        Phi = PHI(X.clip(0.0, 1.0))
        L: Floats = np.linalg.cholesky(Phi @ Phi.T + SIGMA2 * np.eye(t)).astype(np.float64)
        return X.clip(0.0, 1.0), L @ unknowns[D * t :], Phi, L

    def misfit(unknowns: Floats) -> Floats:
        _, y, Phi, L = decode(unknowns)
        errors = [unknowns]
        for seen in published:
            n, z = seen.t, Standardised(y[: seen.t]).z
            half = solve_triangular(L[:n, :n], z, lower=True, check_finite=False)
            a = solve_triangular(L[:n, :n], half, lower=True, trans="T", check_finite=False)
            errors.append(((a @ Phi[:n]) @ B @ seen.Q - seen.v) / seen.noise)
        return np.concatenate(errors)

    rng = np.random.default_rng(t)
    tries = [
        least_squares(misfit, rng.standard_normal((D + 1) * t), max_nfev=20) for _ in range(starts)
    ]
    X, y, *_ = decode(min(tries, key=lambda each: float(each.cost)).x)
    return Run(X, Standardised(y).z)


def restore(
    run: Run, published: Sequence[Summary], habits: Habits, starts: int
) -> dict[str, float]:
    """Name a point for each trial of a run from some of its summaries."""
    opened = [read(summary) for summary in published]
    true, cells = SUMMARIES.nearest_cells(run.X), follow_cells(opened)
    right = float(np.array_equal(np.sort(true), np.sort(cells)))
    cells = np.resize(cells, len(true))
    likely = likely_run(opened, cells, habits, starts)
    gaps = np.linalg.norm(run.X[:, None] - likely.X, axis=-1)
    rows, paired = linear_sum_assignment(gaps)
    errors = np.abs(Standardised(run.y).z[rows] - likely.y[paired])
    found = {"cells": right, "score": float(np.median(errors))}
    found |= accuracy("centre", run.X, CENTRES[cells])
    found |= accuracy("mean", run.X, habits.mean[cells])
    found |= accuracy("usual", run.X, habits.usual[cells])
    return found | accuracy("likely", run.X, likely.X)


def attack_all_trials(run: Run, written: Sequence[Summary], habits: Habits) -> dict[str, float]:
    """Restore all trials from one summary."""
    found: dict[str, float] = {}
    for t in RESTORED:
        one = restore(run.first(t), [written[t - 1]], habits, STARTS)
        one |= accuracy("cover", run.X[:t], WEIGHTS.space.cover(t))
        found |= {f"{t}: {name}": each for name, each in one.items()}
    return found


def attack_following(seed: int, habits: Habits) -> dict[str, float]:
    """Run one agent, and restore its trials from all summaries. This is slow."""
    run = tune(smooth(np.random.default_rng(seed)))
    written = summaries_of(run)
    found: dict[str, float] = {}
    for rule in FOLLOWED:
        times = RULES[rule](run.y)
        every = restore(run.first(times[-1]), [written[t - 1] for t in times], habits, 1)
        found |= {f"all, {rule}: {name}": each for name, each in every.items()}
    return found


def attack(seed: int, habits: Habits) -> dict[str, float]:
    """Run one agent, and every other attack on it."""
    rng = np.random.default_rng(seed)
    objective = smooth(rng)
    run = tune(objective)
    at, best = int(rng.integers(T)), int(run.y.argmax())
    in_cell = FINE[SUMMARIES.cell(run.X[at]) == CELL_OF_FINE]
    moves = ((at, rng.random(D)), (best, rng.random(D)), (at, rng.choice(in_cell)))
    others = {
        which: neighbour(run, *move, objective) for which, move in zip(WHICH, moves, strict=True)
    }
    found = attack_all_trials(run, summaries_of(run), habits)
    for name, kind in KINDS.items():
        attacked = attack_kind(kind, run, others)
        found |= {f"{name}: {figure}": each for figure, each in attacked.items()}
    return found


# Figures


def estimates(runs: list[dict[str, float]]) -> dict[str, Effect]:
    """Compute shares, means of counts, and medians of the rest, with 95 % intervals."""
    result = {}
    for name in runs[0]:
        values = np.array([run[name] for run in runs])
        if name.endswith("messages"):
            result[name] = intervals.mean(values)
        else:
            result[name] = _share(values) if name.endswith(SHARES) else _median(values)
    return result


def _share(values: Floats) -> Effect:
    """Return a mean of values in [0, 1] with Wilson's interval, which does not leave [0, 1]."""
    n, p, z2 = len(values), float(values.mean()), Z**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    reach = Z * float(np.sqrt(p * (1 - p) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    return Effect(p, max(centre - reach, 0.0), min(centre + reach, 1.0), n)


def _median(values: Floats) -> Effect:
    rows = np.random.default_rng(0).integers(len(values), size=(2000, len(values)))
    low, high = np.quantile(np.median(values[rows], axis=1), intervals.TAILS).tolist()
    return Effect(float(np.median(values)), low, high, len(values))


def show(found: dict[str, Effect]) -> None:
    """Print one table for each attack."""
    show_sizes(found)
    for name in KINDS:
        show_rules(name, {figure: found[f"{name}: {figure}"] for figure in _figures(found, name)})


def show_sizes(found: dict[str, Effect]) -> None:
    """Print the figures of single messages, by the number of trials behind them."""
    distances = {
        "weights": "weights: distance",
        "summary": "summary: distance",
    }
    screen.table(
        "distance of a message's maximum from its sender's best trial (medians, 95 % intervals)",
        ["trials behind the message", *map(str, SIZES)],
        [[label, *_row(found, name, SIZES)] for label, name in distances.items()],
    )
    screen.table(
        f"places: AUC of guesses where a trial lies within {NEAR} (medians; chance: 0.50)",
        ["trials behind the message", *map(str, SIZES)],
        [[name, *_row(found, f"{name}: places", SIZES)] for name in KINDS],
    )
    guesses = {
        "no message: points all over the cube": "{}: cover",
        "weights: their maximum": "weights: {}: maximum",
        "summary: centres of cells": "{}: centre",
        "summary: mean points": "{}: mean",
        "summary: usual points": "{}: usual",
        "summary: likely points": "{}: likely",
    }
    screen.table(
        f"all trials, from one message: share within {FOUND} of their point, and median distance",
        [*("from", "share", "distance")],
        [
            [f"{label}, {t} trials", *_close(found, name.format(t))]
            for t in RESTORED
            for label, name in guesses.items()
        ],
    )
    screen.table(
        f"the same for {T} trials, from all summaries, or from the last weights",
        [*("from", "share", "distance")],
        [
            ["weights: their maximum", *_close(found, f"weights: {T}: maximum")],
            *(
                [f"{rule}: {guess}", *_close(found, f"all, {rule}: {guess}")]
                for rule in FOLLOWED
                for guess in ("centre", "mean", "usual", "likely")
            ),
        ],
    )
    screen.table(
        "share of agents for which all cells are found, and error of likely scores (medians)",
        ["summaries", "cells", "scores"],
        [
            [name, *(screen.estimate(found[f"{name}: {figure}"]) for figure in ("cells", "score"))]
            for name in (*map(str, RESTORED), *(f"all, {rule}" for rule in FOLLOWED))
        ],
    )


def show_rules(name: str, found: dict[str, Effect]) -> None:
    """Print the figures of one kind of message, by the rule of publishing."""
    screen.table(
        f"{name}: one of {T} trials is guessed from all messages (right guesses; chance: 0.50)",
        [
            "publishing",
            "messages",
            *(f"{which}{part}" for which in WHICH for part in (" trial", ", by timing")),
        ],
        [
            [rule, f"{found[f'{rule}: messages'].value:.1f}", *_guesses(found, rule)]
            for rule in RULES
        ],
    )
    screen.table(
        f"{name}, after {T} trials: distance of the last message's maximum from the best trial, "
        "and correlation of the mean of the last k messages with the mean of the belief (medians)",
        ["publishing", "distance", *(f"k = {k}" for k in MEANS)],
        [
            [
                rule,
                f"{found[f'{rule}: distance'].value:.3f}",
                *(f"{found[f'{rule}: mean of {k}'].value:.3f}" for k in MEANS),
            ]
            for rule in RULES
        ],
    )


def _figures(found: dict[str, Effect], name: str) -> list[str]:
    start = f"{name}: "
    return [figure.removeprefix(start) for figure in found if figure.startswith(start)]


def _row(found: dict[str, Effect], name: str, sizes: Sequence[object]) -> list[str]:
    return [screen.estimate(found[f"{name} {t}"], 3) for t in sizes]


def _close(found: dict[str, Effect], name: str) -> list[str]:
    return [screen.estimate(found[f"{name}, {figure}"], 3) for figure in ("restored", "gap")]


def _guesses(found: dict[str, Effect], rule: str) -> list[str]:
    names = [f"{rule}: {which} trial{part}" for which in WHICH for part in ("", ", timing")]
    return [screen.estimate(found[name]) for name in names]


def main() -> None:
    """Run the command."""
    parser = options.parser(__doc__)
    text = "agents that are attacked; default: 400"
    parser.add_argument("--agents", type=options.positive, default=400, metavar="N", help=text)
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the figures there")
    options.add_jobs(parser)
    given = parser.parse_args()
    habits = learn_habits()
    tasks = [partial(attack, seed, habits) for seed in range(given.agents)]
    few = [partial(attack_following, seed, habits) for seed in range(-(-given.agents // FEWER))]
    runs = screen.work("agents", tasks, given.jobs)
    followed = screen.work("all summaries", few, given.jobs)
    found = estimates(runs) | estimates(followed)
    show(found)
    screen.finish(found, given.json)


if __name__ == "__main__":
    screen.run(main)
