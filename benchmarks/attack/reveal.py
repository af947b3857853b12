"""Measure what the messages of an agent reveal about its trials.

Agents tune smooth random functions of D = 2 parameters alone, with Thompson sampling, for 50
trials, and publish messages of *weights* (M = 100) or *compact* ones. The attacker knows the
federation and the code, and reads everything that an agent publishes.

best trial   distance on the unit cube of the point that a message recommends (its tip, or the
             maximum of its function) from the sender's best trial
places       order the points of the cube by how likely a trial was made nearby: by the value of the
             function, since agents search where scores are good, or by the trials that a compact
             message counts in the point's cell. The figure is the AUC: how often a point with a
             trial within 0.05 ranks above a point without one. By chance, it is 0.5
one trial    guess which of two histories an agent had. They differ in one trial, made at another
             point: a random one for a random trial or the best one, or one in the same cell for a
             "close" trial. The guess is the history under which the messages are more likely; if
             the other history would have published at other times, the timing tells. By chance,
             half of the guesses are right
average      correlation of the mean function of the last 10 messages with the mean of the agent's
             belief after all trials, over the cube

"One trial" and "average" are measured for several rules of publishing: after every trial, after
every fifth, and when it is worth it (after a new best score, or once the history has doubled since
the last message), which is the default. docs/lab/reveal.md has more attacks.

    python benchmarks/attack/reveal.py --json out.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import rich
from scipy.stats import multivariate_normal, rankdata

import fedbo
from fedbo.exchange.timing import due
from fedbo.model.argmax import argmax
from fedbo.model.features import Features
from fedbo.model.linear import Posterior, Regression
from fedbo.model.summary import saturated, summarise
from fedbo.model.surrogate import Standardised
from fedbo_paper.harness import intervals, screen, workers
from fedbo_paper.harness.intervals import Floats

D, T, FEATURES = 2, 50, 2000
SIZES = (10, 25, T)  # trials behind a message
RULES = {"every trial": 1, "every fifth": 5, "worth it": None}
NEAR = 0.05  # distance at which a trial is near a point
AVERAGED = 10  # messages
DRAWS = 100  # of a compact mean, to learn its distribution
SPACE = {f"x{d}": fedbo.Float(0.0, 1.0) for d in range(D)}
FEDERATIONS = {kind: fedbo.Federation(SPACE, kind=kind) for kind in ("weights", "compact")}
GRID = np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, 60)] * D), axis=-1).reshape(-1, D)


class Run(NamedTuple):
    """Points of trials (t, D), and their scores (t,)."""

    X: Floats
    y: Floats

    def first(self, t: int) -> Run:
        """Return the run after t trials."""
        return Run(self.X[:t], self.y[:t])


def smooth(rng: np.random.Generator) -> Callable[[Floats], Floats]:
    """Draw a function from a GP with length scales of 0.14 to 0.71."""
    scales = rng.uniform(0.2, 1.0, D) * np.sqrt(D) / 2
    phi = Features(D, FEATURES, length_scales=scales, seed=int(rng.integers(2**31)))
    return phi.function(rng.standard_normal(FEATURES))


def tune(objective: Callable[[Floats], Floats]) -> Run:
    """Run an agent alone."""
    agent = fedbo.Agent(FEDERATIONS["weights"], fedbo.TS())
    points, scores = [], []
    for _ in range(T):
        trial = agent.ask()
        points.append([trial.params[name] for name in SPACE])
        scores.append(float(objective(np.array(points[-1:]))[0]))
        agent.tell(trial, scores[-1])
    return Run(np.array(points), np.array(scores))


def messages(federation: fedbo.Federation, run: Run) -> list[fedbo.Message]:
    """Return the message after each trial. Its noise has no seed, as is right if it leaves."""
    agent = fedbo.Agent(federation, fedbo.TS())
    written = []
    for x, score in zip(run.X.tolist(), run.y.tolist(), strict=True):
        agent.tell(dict(zip(SPACE, x, strict=True)), score)
        written.append(agent.message())
    return written


def belief(federation: fedbo.Federation, run: Run) -> Posterior:
    """Return what an agent believes after a run, over the features."""
    regression = Regression(federation.phi, federation.noise_variance)
    regression.add(run.X)
    return regression.posterior(Standardised(run.y).z)


def function(federation: fedbo.Federation, message: fedbo.Message) -> Floats:
    """Return weights of the function in a message, (M,)."""
    if message.kind == "weights":
        return message.omega.astype(float)
    return federation.basis.vectors @ message.nu.astype(float)


def log_density(federation: fedbo.Federation, run: Run, message: fedbo.Message) -> float:
    """Return the logarithm of a message's density after a run, up to a constant."""
    posterior = belief(federation, run)
    if message.kind == "weights":  # ω ~ N(ν, σ²Σ⁻¹)
        u = posterior.L.T @ (message.omega - posterior.nu)
        return float(np.log(np.diag(posterior.L)).sum() - u @ u / (2 * federation.noise_variance))
    counts = saturated(federation.counts(run.X))
    if (counts != message.counts).any():
        return -np.inf
    rng, B = np.random.default_rng(0), federation.basis.vectors
    G = federation.known_of(counts)
    draws = np.array([summarise(posterior.nu, posterior.draw(rng), G, B)[0] for _ in range(DRAWS)])
    rounding = (np.abs(message.nu).max() / 7) ** 2 / 6  # variance of rounding to 15 levels
    covariance = np.cov(draws.T) + rounding * np.eye(draws.shape[1])
    return float(multivariate_normal.logpdf(message.nu, draws.mean(axis=0), covariance))


def is_recognised(
    federation: fedbo.Federation, run: Run, other: Run, sent: dict[int, fedbo.Message]
) -> float:
    """Return 1 if the attacker guesses the true history, 0 if the other one, 0.5 if undecided."""
    lead = 0.0
    for t, message in sent.items():
        ours, theirs = run.first(t), other.first(t)
        if (ours.X != theirs.X).any():
            lead += log_density(federation, ours, message)
            lead -= log_density(federation, theirs, message)
    return 0.5 + 0.5 * float(np.sign(lead))


def auc(ranked_by: Floats, run: Run) -> float:
    """Return how often a point of the grid near a trial ranks above one that is not."""
    is_near = np.linalg.norm(GRID[:, None] - run.X, axis=-1).min(axis=1) <= NEAR
    n, others = np.count_nonzero(is_near), np.count_nonzero(~is_near)
    return float((rankdata(ranked_by)[is_near].sum() - n * (n + 1) / 2) / (n * others))


def attack(seed: int) -> dict[str, float]:
    """Run one agent, and every attack on its messages of both kinds."""
    rng = np.random.default_rng(seed)
    objective = smooth(rng)
    run, figures = tune(objective), dict[str, float]()
    cells = FEDERATIONS["compact"].nearest_cells(GRID)
    at, best = int(rng.integers(T)), int(run.y.argmax())
    close = GRID[cells == FEDERATIONS["compact"].cell(run.X[at])]
    moves = {"random": (at, rng.random(D)), "best": (best, rng.random(D))}
    others = {}  # histories, by the trial that differs
    for which, (changed, x) in {**moves, "close": (at, rng.choice(close))}.items():
        X, y = run.X.copy(), run.y.copy()
        X[changed], y[changed] = x, objective(x[None])[0]
        others[which] = Run(X, y)
    for kind, federation in FEDERATIONS.items():
        written = messages(federation, run)
        for t in SIZES:
            part, message, phi = run.first(t), written[t - 1], federation.phi
            omega, tip = function(federation, message), federation.tip(message)
            top = argmax(phi.function(omega), federation.space) if tip is None else tip
            gap = np.linalg.norm(top - part.X[part.y.argmax()])
            figures[f"{kind}, best trial of {t}, distance"] = float(gap)
            likely = message.counts[cells] if kind == "compact" else phi.function(omega)(GRID)
            figures[f"{kind}, places of {t}, AUC"] = auc(likely, part)
        Phi = federation.phi(GRID)
        for rule, every in RULES.items():
            times = due(run.y.tolist(), every)
            sent = {t: written[t - 1] for t in times}
            omegas = [function(federation, sent[t]) for t in times[-AVERAGED:]]
            shapes = Phi @ np.mean(omegas, axis=0), Phi @ belief(federation, run).nu
            figures[f"{kind}, {rule}: average, correlation"] = float(np.corrcoef(*shapes)[0, 1])
            for which, other in others.items():
                is_told = times != due(other.y.tolist(), every)  # by the timing
                right = 1.0 if is_told else is_recognised(federation, run, other, sent)
                figures[f"{kind}, {rule}: {which} trial, right guesses"] = right
    return figures


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--agents", type=int, default=60, metavar="N", help="that are attacked; default: 60")
    add("--jobs", type=int, default=2, metavar="J", help="number of processes; default: 2")
    add("--json", type=Path, metavar="OUT", help="also write the figures there")
    options = parser.parse_args()
    calls = [partial(attack, seed) for seed in range(options.agents)]
    runs = [figures for _, figures in workers.run(calls, options.jobs)]
    shown = screen.table("mean over agents, 95 % interval", "", "low", "high")
    result = {}
    for name in runs[0]:
        result[name] = effect = intervals.mean(np.array([figures[name] for figures in runs]))
        shown.add_row(name, *(f"{x:.3f}" for x in (effect.value, effect.low, effect.high)))
    rich.print(shown)
    if options.json:
        options.json.write_text(json.dumps(msgspec.to_builtins(result), indent=2) + "\n")


if __name__ == "__main__":
    main()
