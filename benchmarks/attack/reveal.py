"""Measure what the messages of an agent reveal about its trials.

Agents tune smooth random functions of D = 2 parameters alone, with Thompson sampling, for 50
trials. Their messages are weights with M = 100. The attacker knows the federation, and reads
everything that an agent publishes. Three attacks:

best trial      take the maximum of φᵀω of one message, and measure its distance on the unit cube
                from the sender's best trial
one trial       guess which of two histories an agent had. They differ in one trial, which was made
                at another point; the attacker knows everything else. The guess is the history under
                which the messages are more likely, ω ~ N(ν, σ²Σ⁻¹). If the other history would have
                published at other times, the timing tells. By chance, half of the guesses are right
average         average messages of successive scores, and correlate the function with φᵀν, the mean
                of the agent's belief after all trials, over the cube

The last two are measured for several rules of publishing:

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
from optuna.trial import create_trial

import fedbo
from fedbo.model.argmax import argmax
from fedbo.model.features import Features
from fedbo.model.linear import Posterior, Regression
from fedbo.model.scores import Standardised
from fedbo.optuna.mailbox import due
from fedbo_paper.contests import options, screen
from fedbo_paper.harness import intervals
from fedbo_paper.harness.intervals import Effect

Floats = NDArray[np.float64]
Objective = Callable[[Floats], Floats]

D, T = 2, 50
WHICH = ("random", "best")  # trial that differs between two histories
NAMES = [f"x{d}" for d in range(D)]
FEDERATION = fedbo.Federation({name: fedbo.Float(0.0, 1.0) for name in NAMES}, kind="weights")
FEATURES = 2000  # of an objective
SIZES = (10, 25, T)  # trials behind the message whose maximum is taken
Z = 1.96  # standard deviations in half of an interval
MEANS = (1, 2, 5, 10, 20)  # messages that are averaged
GRID = np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, 30)] * D), axis=-1).reshape(-1, D)


class Run(NamedTuple):
    """What an agent did, and what it could publish."""

    X: Floats  # points of its trials, (T, D)
    y: Floats  # their scores, (T,)
    omegas: Floats  # the message after each trial, (T, M)


def smooth(rng: np.random.Generator) -> Objective:
    """Draw a function from a GP with length scales of 0.14 to 0.71."""
    scales = rng.uniform(0.2, 1.0, D) * np.sqrt(D) / 2
    phi = Features(D, FEATURES, length_scales=scales, seed=int(rng.integers(2**31)))
    return phi.function(rng.standard_normal(FEATURES))


def tune(objective: Objective) -> Run:
    """Run an agent alone. Its noise has no seed, as is right for messages that leave."""
    agent = fedbo.Agent(FEDERATION, fedbo.TS())
    points, scores, omegas = [], [], []
    for _ in range(T):
        trial = agent.ask()
        points.append([trial.params[name] for name in NAMES])
        scores.append(float(objective(np.array(points[-1:]))[0]))
        agent.tell(trial, scores[-1])
        omegas.append(agent.message().omega)
    return Run(np.array(points), np.array(scores), np.array(omegas, dtype=float))


def belief(X: Floats, y: Floats) -> Posterior:
    """Return what an agent with these trials believes, in the federation's features."""
    regression = Regression(FEDERATION.phi, FEDERATION.noise_variance)
    regression.add(X)
    return regression.posterior(Standardised(y).z)


def log_density(posterior: Posterior, omega: Floats) -> float:
    """Return the logarithm of the density of ω ~ N(ν, σ²Σ⁻¹), up to a constant."""
    u = posterior.L.T @ (omega - posterior.nu)
    return float(np.log(np.diag(posterior.L)).sum() - u @ u / (2 * posterior.sigma2))


# Rules of publishing


def sent_after(every: int | None, y: Floats) -> list[int]:
    """Return after how many scores a study with this ``every`` publishes a message."""
    return due([create_trial(value=value) for value in y.tolist()], every, "maximize")


RULES: dict[str, Callable[[Floats], list[int]]] = {
    "every trial": partial(sent_after, 1),
    "every fifth": partial(sent_after, 5),
    "worth it": partial(sent_after, None),
    "last only": lambda y: [len(y)],
}


# Attacks


def distance_to_best(run: Run, sent: int, t: int) -> float:
    """Return how far the maximum of the message after ``sent`` trials is from the best of t."""
    top = argmax(FEDERATION.phi.function(run.omegas[sent - 1]), FEDERATION.space)
    return float(np.linalg.norm(top - run.X[run.y[:t].argmax()]))


def is_recognised(run: Run, other: Run, sent: Sequence[int], sent_by_other: Sequence[int]) -> float:
    """Return 1 if the attacker guesses the true history, 0 if the other one, 0.5 if undecided."""
    if [*sent] != [*sent_by_other]:
        return 1.0  # the numbers of trials behind the messages tell
    log_ratio = 0.0
    for t in sent:
        if (run.X[:t] != other.X[:t]).any():
            omega = run.omegas[t - 1]
            log_ratio += log_density(belief(run.X[:t], run.y[:t]), omega)
            log_ratio -= log_density(belief(other.X[:t], other.y[:t]), omega)
    return 0.5 + 0.5 * float(np.sign(log_ratio))


def neighbour(run: Run, changed: int, x: Floats, objective: Objective) -> Run:
    """Return the run with one trial made at the point x instead."""
    X, y = run.X.copy(), run.y.copy()
    X[changed], y[changed] = x, objective(x[None])[0]
    return run._replace(X=X, y=y)


def correlation(run: Run, sent: Sequence[int], k: int) -> float:
    """Correlate the mean of the last k messages with the mean of the last belief."""
    mean = run.omegas[np.array(sent[-k:]) - 1].mean(axis=0)
    Phi = FEDERATION.phi(GRID)
    return float(np.corrcoef(Phi @ mean, Phi @ belief(run.X, run.y).nu)[0, 1])


def attack(seed: int) -> dict[str, float]:
    """Run one agent, and every attack on it."""
    rng = np.random.default_rng(seed)
    objective = smooth(rng)
    run = tune(objective)
    found = {f"distance {t}": distance_to_best(run, t, t) for t in SIZES}
    differs = dict(zip(WHICH, (int(rng.integers(T)), int(run.y.argmax())), strict=True))
    for rule, publishes in RULES.items():
        sent = publishes(run.y)
        found[f"{rule}: messages"] = len(sent)
        found[f"{rule}: distance"] = distance_to_best(run, sent[-1], T)
        for k in MEANS:
            found[f"{rule}: mean of {k}"] = correlation(run, sent, k)
        for which, changed in differs.items():
            x = np.random.default_rng([seed, changed]).random(D)
            other = neighbour(run, changed, x, objective)
            sent_by_other = publishes(other.y)
            found[f"{rule}: {which} trial"] = is_recognised(run, other, sent, sent_by_other)
            found[f"{rule}: {which} trial, timing"] = float(sent != sent_by_other)
    return found


def summary(runs: list[dict[str, float]]) -> dict[str, Effect]:
    """Compute shares, means of counts, and medians of the rest, with 95 % intervals."""
    result = {}
    for name in runs[0]:
        values = np.array([run[name] for run in runs])
        if name.endswith("messages"):
            result[name] = intervals.mean(values)
        else:
            is_share = name.endswith((" trial", "timing"))
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
    screen.table(
        "distance of a message's maximum from its sender's best trial (medians, 95 % intervals)",
        ["trials behind the message", "distance"],
        [[str(t), screen.estimate(found[f"distance {t}"], 3)] for t in SIZES],
    )
    screen.table(
        f"one of {T} trials is guessed from all messages (share of right guesses; chance: 0.50)",
        ["publishing", "messages", "a random trial", "by timing", "the best trial", "by timing"],
        [
            [rule, f"{found[f'{rule}: messages'].value:.1f}", *_guesses(found, rule)]
            for rule in RULES
        ],
    )
    screen.table(
        f"after {T} trials: distance of the last message's maximum from the best trial, and "
        "correlation of the mean of the last k messages with the mean of the belief (medians)",
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
    found = summary(runs)
    show(found)
    screen.finish(found, given.json)


if __name__ == "__main__":
    screen.run(main)
