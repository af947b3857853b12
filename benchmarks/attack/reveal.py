"""Measure what the messages of an agent reveal about its trials.

Agents tune smooth random functions of D = 2 parameters alone, with Thompson sampling, for 50
trials. Their messages are *weights* with M = 100, one draw of the belief, or *summaries*, its mean
and covariance. The attacker knows the federation, and reads everything that an agent publishes.

=====================  ============================================================================
symbol                 meaning
=====================  ============================================================================
φ(x), ψ(x)             features of a point; their leading coordinates, minus the mean
ω ~ N(ν, σ²Σ⁻¹)        a message of weights, drawn from the belief
B, z ~ N(m, C)         the directions of the leading coordinates; a summary: m = Bᵀν, C = Bᵀσ²Σ⁻¹B
=====================  ============================================================================

Attacks on both kinds:

best trial      take the maximum of φᵀω, or of ψᵀm, of one message, and measure its distance on the
                unit cube from the sender's best trial
one trial       guess which of two histories an agent had. They differ in one trial, which was made
                at another point; the attacker knows everything else. The guess is the history under
                which the messages are more likely. Summaries have no noise: there, it is the
                history whose summaries are closer to those published. If the other history would
                have published at other times, the timing tells. By chance, half of the guesses are
                right
average         average messages of successive scores, and correlate the function with φᵀν, the mean
                of the agent's belief after all trials, over the cube
places          order the points of the cube by how likely a trial was made nearby: by the value of
                φᵀω, since agents search where scores are good, or by the variance of the summary,
                which is small near trials. The figure is the AUC: how often a point with a trial
                within 0.05 is ranked above a point without one. By chance, it is 0.5

Attacks on summaries only:

vote            take the maximum of ψᵀm within the cell that the sender voted for
all trials      look for as many points as there are trials that would give the same covariance,
                then for their scores. Count the trials that have such a point within 0.01.
                From one summary, or from all that were published: then points that explain a
                summary are kept, and the next one gives those of the trials since

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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.stats import rankdata

import fedbo
from fedbo.exchange.timing import due
from fedbo.message import Message
from fedbo.model.argmax import argmax
from fedbo.model.features import FeatureFunction, Features
from fedbo.model.linear import Posterior, Regression
from fedbo.model.scores import Standardised
from fedbo_paper.contests import options, screen
from fedbo_paper.harness import intervals
from fedbo_paper.harness.intervals import Effect

Floats = NDArray[np.float64]
Objective = Callable[[Floats], Floats]

D, T = 2, 50
WHICH = ("random", "best")  # trial that differs between two histories
NAMES = [f"x{d}" for d in range(D)]
SPACE = {name: fedbo.Float(0.0, 1.0) for name in NAMES}
WEIGHTS = fedbo.Federation(SPACE, kind="weights")
SUMMARIES = fedbo.Federation(SPACE, kind="summary+cell")  # a plain summary lacks only the vote
PHI, SIGMA2, BASIS = WEIGHTS.phi, WEIGHTS.noise_variance, SUMMARIES.basis
FEATURES = 2000  # of an objective
SIZES = (10, 25, T)  # trials behind a message
RESTORED = (5, 10)  # trials behind a summary from which all of them are restored
FOLLOWED = ("every fifth", "worth it")  # rules whose summaries are followed
FOUND = 0.01  # distance at which a trial counts as restored
NEAR = 0.05  # distance at which a trial is near a point
ROUNDING = 1e-7  # difference between covariances that float32 explains
FLOORS = (1e-6, 1e-3)  # of eigenvalues; each gives another start for a search
FEWER = 10  # one of so many agents is followed through all of its summaries
Z = 1.96  # standard deviations in half of an interval
MEANS = (1, 2, 5, 10, 20)  # messages that are averaged


def grid(n: int) -> Floats:
    """Return n points along each dimension of the cube, (n ** D, D)."""
    return np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, n)] * D), axis=-1).reshape(-1, D)


GRID, FINE = grid(30), grid(100)
CELL_OF_FINE = np.array([SUMMARIES.cell(x) for x in FINE])


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


def messages(federation: fedbo.Federation, run: Run) -> list[Message]:
    """Return the message after each trial. Its noise has no seed, as is right if it leaves."""
    agent = fedbo.Agent(federation, fedbo.TS())
    written = []
    for x, score in zip(run.X.tolist(), run.y.tolist(), strict=True):
        agent.tell(dict(zip(NAMES, x, strict=True)), score)
        written.append(agent.message())
    return written


def belief(run: Run) -> Posterior:
    """Return what an agent with these trials believes, in the federation's features."""
    regression = Regression(PHI, SIGMA2)
    regression.add(run.X)
    return regression.posterior(Standardised(run.y).z)


# Kinds of messages, as the attacker reads them


class Kind(NamedTuple):
    """What an attacker makes of a message of one kind."""

    federation: fedbo.Federation
    omega: Callable[[Message], Floats]  # weights of the function in it, up to a constant, (M,)
    fit: Callable[[Posterior, Message], float]  # is larger for a belief that it may be made from
    tried: Callable[[Message, Floats], Floats]  # is larger at points (n, D) where trials are likely


def drawn_weights(message: Message) -> Floats:
    """Return ω."""
    return message.omega.astype(np.float64)


def mean_weights(message: Message) -> Floats:
    """Return Bm: φᵀBm is ψᵀm plus a constant."""
    omega: Floats = BASIS.vectors @ message.nu.astype(np.float64)
    return omega


def log_density(posterior: Posterior, message: Message) -> float:
    """Return the logarithm of the density of ω ~ N(ν, σ²Σ⁻¹), up to a constant."""
    u = posterior.L.T @ (message.omega - posterior.nu)
    return float(np.log(np.diag(posterior.L)).sum() - u @ u / (2 * posterior.sigma2))


def closeness(posterior: Posterior, message: Message) -> float:
    """Return minus the distance of a summary from the one that a belief would give."""
    m, C = BASIS.vectors.T @ posterior.nu, posterior.covariance(BASIS.vectors)
    return -float(np.hypot(np.linalg.norm(message.nu - m), np.linalg.norm(message.covariance - C)))


def value(message: Message, X: Floats) -> Floats:
    """Return φᵀω at points (n, D)."""
    return PHI.function(message.omega)(X)


def certainty(message: Message, X: Floats) -> Floats:
    """Return minus the variance of the sender's belief at points (n, D), φᵀBCBᵀφ."""
    Phi_B = PHI(X) @ BASIS.vectors
    C = message.covariance.astype(np.float64)
    variance: Floats = np.einsum("ij,ij->i", Phi_B @ C, Phi_B)
    return -variance


KINDS = {
    "weights": Kind(WEIGHTS, drawn_weights, log_density, value),
    "summary": Kind(SUMMARIES, mean_weights, closeness, certainty),
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


def is_recognised(kind: Kind, run: Run, other: Run, sent: dict[int, Message]) -> float:
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
            lead += kind.fit(belief(ours), message) - kind.fit(belief(theirs), message)
    return 0.5 + 0.5 * float(np.sign(lead))


def neighbour(run: Run, changed: int, x: Floats, objective: Objective) -> Run:
    """Return the run with one trial made at the point x instead."""
    X, y = run.X.copy(), run.y.copy()
    X[changed], y[changed] = x, objective(x[None])[0]
    return Run(X, y)


def correlation(run: Run, omegas: Sequence[Floats]) -> float:
    """Correlate the mean of messages with the mean of the last belief."""
    Phi = PHI(GRID)
    return float(np.corrcoef(Phi @ np.mean(omegas, axis=0), Phi @ belief(run).nu)[0, 1])


def auc(ranked_by: Floats, run: Run) -> float:
    """Return how often a point of the grid near a trial ranks above one that is not."""
    gaps = np.linalg.norm(GRID[:, None] - run.X, axis=-1)
    is_near = gaps.min(axis=1) <= NEAR
    n, others = np.count_nonzero(is_near), np.count_nonzero(~is_near)
    return float((rankdata(ranked_by)[is_near].sum() - n * (n + 1) / 2) / (n * others))


def attack_kind(kind: Kind, run: Run, others: dict[str, Run]) -> dict[str, float]:
    """Run every attack that messages of all kinds allow."""
    written = messages(kind.federation, run)
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
    return found


# Attacks on summaries


def distance_with_vote(run: Run, summary: Message) -> float:
    """Return how far the maximum of ψᵀm within the cell of the vote is from the best trial."""
    inside = FINE[summary.cell == CELL_OF_FINE]
    top = inside[(PHI(inside) @ mean_weights(summary)).argmax()]
    return float(np.linalg.norm(top - run.best))


def projection(X: Floats) -> tuple[Floats, Floats]:
    """Return A (t, k) and C (k, k) of a summary of trials at X (t, D): m = Aᵀy for scores y."""
    Phi = PHI(X)
    Phi_B = Phi @ BASIS.vectors
    A: Floats = np.linalg.solve(Phi @ Phi.T + SIGMA2 * np.eye(len(X)), Phi_B).astype(np.float64)
    return A, np.eye(len(BASIS)) - Phi_B.T @ A


def likely_points(C: Floats, known: Floats, n: int, floor: float) -> Floats:
    """Guess n new points, one by one, and subtract each from G = σ²(C⁻¹ − I) ≈ BᵀΦᵀΦB.

    At most 1 / (φᵀB G⁻¹ Bᵀφ) trials can have been made at x; the guess is where that is largest.

    Args:
        C: The covariance of a summary, (k, k).
        known: Points (t − n, D) of earlier trials.
        n: The number of points to guess.
        floor: The least eigenvalue of G; smaller ones are replaced by it.
    """
    Phi_B, earlier = PHI(GRID) @ BASIS.vectors, PHI(known) @ BASIS.vectors
    G = SIGMA2 * (np.linalg.inv(C) - np.eye(len(C))) - earlier.T @ earlier
    rows: list[int] = []
    for _ in range(n):
        lam, U = np.linalg.eigh(G)
        rows.append(int(((Phi_B @ U) ** 2 / np.maximum(lam, floor)).sum(axis=1).argmin()))
        G -= np.outer(Phi_B[rows[-1]], Phi_B[rows[-1]])
    return GRID[rows]


def restore(summary: Message, known: Floats) -> Floats:
    """Return points (t, D) that give almost the same covariance as all trials.

    Args:
        summary: The message.
        known: Points of earlier trials, which are kept, (n, D).
    """
    C, triangle = summary.covariance.astype(np.float64), np.tril_indices(len(BASIS))

    def completed(x: Floats) -> Floats:
        return np.concatenate([known, x.reshape(-1, D)])

    def misfit(x: Floats) -> Floats:
        return (projection(completed(x))[1] - C)[triangle] / ROUNDING

    tries = []
    for floor in FLOORS:
        start = likely_points(C, known, summary.t_n - len(known), floor).ravel()
        start = start.clip(1e-3, 1.0 - 1e-3)
        tries.append(least_squares(misfit, start, bounds=(0.0, 1.0), x_scale=0.1, max_nfev=30))
        if np.sqrt((tries[-1].fun ** 2).mean()) < 1.0:
            break
    return completed(min(tries, key=lambda each: float(each.cost)).x)


def restored_scores(summary: Message, X: Floats) -> Floats:
    """Return the standardised scores (t,) that explain the mean of a summary of trials at X."""
    A, _ = projection(X)
    y, *_ = np.linalg.lstsq(A.T, summary.nu.astype(np.float64), rcond=1e-5)
    return y.astype(np.float64)


def follow(summaries: Sequence[Message]) -> Floats:
    """Restore the trials of an agent from all of its summaries: each adds a few."""
    points = np.empty((0, D))
    for summary in summaries:
        points = restore(summary, points)
    return points


def attack_vote(run: Run, written: Sequence[Message]) -> dict[str, float]:
    """Measure what the vote adds."""
    found = {}
    for t in SIZES:
        summary, first = written[t - 1], run.first(t)
        found[f"vote: distance {t}"] = distance_with_vote(first, summary)
        top = argmax(PHI.function(mean_weights(summary)), SUMMARIES.space)
        found[f"vote: known {t}"] = float(SUMMARIES.cell(top) == summary.cell)
    return found


def attack_all_trials(run: Run, written: Sequence[Message]) -> dict[str, float]:
    """Restore all trials from one summary."""
    found = {}
    for t in RESTORED:
        truth, points = run.first(t), restore(written[t - 1], np.empty((0, D)))
        gaps = np.linalg.norm(truth.X[:, None] - points, axis=-1)
        scores = restored_scores(written[t - 1], points)[gaps.argmin(axis=1)]
        found[f"all trials: restored {t}"] = float((gaps.min(axis=1) <= FOUND).mean())
        found[f"all trials: distance {t}"] = float(np.median(gaps.min(axis=1)))
        found[f"all trials: score {t}"] = float(np.median(np.abs(Standardised(truth.y).z - scores)))
    return found


def attack_following(seed: int) -> dict[str, float]:
    """Run one agent, and restore its trials from all summaries. This is slow."""
    run = tune(smooth(np.random.default_rng(seed)))
    written = messages(SUMMARIES, run)
    found = {}
    for rule in FOLLOWED:
        points = follow([written[t - 1] for t in RULES[rule](run.y)])
        gaps = np.linalg.norm(run.X[: len(points), None] - points, axis=-1).min(axis=1)
        found[f"followed: restored {rule}"] = float((gaps <= FOUND).mean())
        found[f"followed: distance {rule}"] = float(np.median(gaps))
    return found


def attack(seed: int) -> dict[str, float]:
    """Run one agent, and every other attack on it."""
    rng = np.random.default_rng(seed)
    objective = smooth(rng)
    run = tune(objective)
    others = {}
    for which, changed in zip(WHICH, (int(rng.integers(T)), int(run.y.argmax())), strict=True):
        x = np.random.default_rng([seed, changed]).random(D)
        others[which] = neighbour(run, changed, x, objective)
    summaries = messages(SUMMARIES, run)
    found = attack_vote(run, summaries) | attack_all_trials(run, summaries)
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
        if name.endswith("messages") or "restored" in name:
            result[name] = intervals.mean(values)
        else:
            is_share = name.endswith((" trial", "timing")) or "known" in name
            result[name] = _share(values) if is_share else _median(values)
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
        "summary with a vote": "vote: distance",
        "share of votes that the maximum of the summary tells": "vote: known",
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
    restored = {
        f"share of trials with a restored point within {FOUND}": "all trials: restored",
        "distance of a trial from the nearest restored point": "all trials: distance",
        "error of its score, in standard deviations of all scores": "all trials: score",
    }
    screen.table(
        f"all trials are restored from one summary ({len(BASIS)} coordinates)",
        ["trials behind the summary", *map(str, RESTORED)],
        [[label, *_row(found, name, RESTORED, 4)] for label, name in restored.items()],
    )
    screen.table(
        f"all trials are restored from all summaries of {T} trials",
        ["publishing", f"share of trials within {FOUND}", "distance"],
        [
            [
                rule,
                *(
                    screen.estimate(found[f"followed: {name} {rule}"], 4)
                    for name in ("restored", "distance")
                ),
            ]
            for rule in FOLLOWED
        ],
    )


def show_rules(name: str, found: dict[str, Effect]) -> None:
    """Print the figures of one kind of message, by the rule of publishing."""
    screen.table(
        f"{name}: one of {T} trials is guessed from all messages (right guesses; chance: 0.50)",
        ["publishing", "messages", "a random trial", "by timing", "the best trial", "by timing"],
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


def _row(
    found: dict[str, Effect], name: str, sizes: Sequence[object], digits: int = 3
) -> list[str]:
    return [screen.estimate(found[f"{name} {t}"], digits) for t in sizes]


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
    runs = screen.work("agents", [partial(attack, s) for s in range(given.agents)], given.jobs)
    few = range(max(1, given.agents // FEWER))
    followed = screen.work("all summaries", [partial(attack_following, s) for s in few], given.jobs)
    found = estimates(runs) | estimates(followed)
    show(found)
    screen.finish(found, given.json)


if __name__ == "__main__":
    screen.run(main)
