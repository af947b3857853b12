"""Measure the CPU time of a query beside BoTorch and Optuna, and against the number of peers.

One query fits the hyper-parameters to all trials so far and chooses the next point:

    ei         Agent.ask with the policy EI, the default of an agent alone: fit, maximum of log EI
    ts         the same with TS: fit, Matheron draw, maximum of the draw
    peers      the same with TipsThenPool and the messages of 28 peers
    sampler    FederatedSampler, study.ask with every parameter: fedbo inside Optuna
    botorch    SingleTaskGP and fit_gpytorch_mll, one Matheron path, optimize_posterior_samples
    optuna_gp  GPSampler, study.ask with every parameter: fit, log EI, maximum of log EI

All optimisers see the same trials of a smooth random function on [0, 1]^D, one new trial between
two queries, so each refits in every query. Their own queries are told as failed, which they ignore.
The queries run from t = 41 to 60 and take turns, so that a busy machine slows all of them. All use
one thread, and defaults otherwise. Times are medians of process CPU time. A ratio is GPSampler's
time over the time in this row.

Then comes the time of a query against the number N of peers with 50 trials each: the paper's
Fig. 3d, and TipsThenPool besides. The queries are those of real runs in D = 2, of which FTS makes
about a third by a message, without a fit. Work that is done once when a message arrives is not
counted. FTS and TipsThenPool hold up to a million messages.

    make bench                                   # builds the environment and prints the tables
    python benchmarks/speed.py --json out.json   # in that environment
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

try:
    import numpy as np
    import optuna
    import torch
    from botorch.exceptions.warnings import InputDataWarning
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.sampling.pathwise import get_matheron_path_model
    from botorch.utils.sampling import optimize_posterior_samples
    from gpytorch.mlls import ExactMarginalLogLikelihood
    from threadpoolctl import threadpool_limits

    import fedbo
    from fedbo.message.inbox import Held
    from fedbo.optuna import FederatedSampler
except ModuleNotFoundError as error:
    sys.exit(f"speed.py: {error}. Run `make bench`: it builds .venv-bench with BoTorch and Optuna.")

DIMENSIONS = (2, 6)
T, QUERIES, M = 50, 20, 100
POOLED = 28  # peers of the agent with TipsThenPool
RUNS = 9  # for each number of peers
MANY, SOME = (28, 100, 1_000, 10_000, 1_000_000), (28, 100, 1_000)
POLICIES: dict[str, tuple[fedbo.Policy, str, Sequence[int]]] = {
    "FTS": (fedbo.FTS(), "weights", MANY),
    "TipsThenPool": (fedbo.TipsThenPool(), "weights", MANY),
    "RGPE": (fedbo.RGPE(), "belief", SOME),
    "TAF": (fedbo.TAF(), "belief", SOME),
}

Figures = dict[str, Any]


# Trials


def smooth_function(rng: np.random.Generator, D: int) -> Callable[[np.ndarray], np.ndarray]:
    """Draw a sum of random cosines, similar to a GP sample; it takes rows of X."""
    frequencies = rng.standard_normal((100, D)) / 0.5
    phases = rng.uniform(0, 2 * np.pi, 100)
    amplitudes = rng.standard_normal(100) / np.sqrt(50)
    return lambda X: np.cos(X @ frequencies.T + phases) @ amplitudes


def smooth_trials(D: int, n: int, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Draw n random points, and evaluate a smooth random function there."""
    rng = np.random.default_rng(D if seed is None else [D, seed])
    X = rng.random((n, D))
    return X, smooth_function(rng, D)(X)


def params(x: np.ndarray) -> dict[str, float]:
    return {f"x{d}": value for d, value in enumerate(x.tolist())}


def federation(D: int, kind: str = "compact") -> fedbo.Federation:
    space = {f"x{d}": fedbo.Float(0.0, 1.0) for d in range(D)}
    return fedbo.Federation(space, features=M, kind=kind)


def message(agreed: fedbo.Federation, i: int) -> fedbo.Message:
    """Create the message of a peer with T trials of its own smooth function."""
    agent = fedbo.Agent(agreed, name=f"peer-{i}", seed=i)
    for x, score in zip(*smooth_trials(agreed.space.dimensions, T, seed=100 + i % 50), strict=True):
        agent.tell(params(x), float(score))
    return agent.message()


def cpu_ms(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU milliseconds of a call, and its result."""
    start = time.process_time()
    result = call()
    return 1e3 * (time.process_time() - start), result


def progress(text: str) -> None:
    """Show what is being measured, in place of the line before."""
    print(f"\r{text:<60}", end="", file=sys.stderr, flush=True)


# Optimisers


class Fedbo:
    def __init__(self, D: int, policy: fedbo.Policy, peers: int = 0) -> None:
        agreed, settings = federation(D), fedbo.Settings(repeats="allow")
        self.agent = fedbo.Agent(agreed, policy, seed=0, settings=settings)
        self.agent.receive([message(agreed, i) for i in range(peers)])
        self.trial: fedbo.Trial | None = None

    def tell(self, x: np.ndarray, score: float) -> None:
        if self.trial is not None:
            self.agent.tell(self.trial, None)
        self.agent.tell(params(x), score)

    def query(self) -> list[float]:
        self.trial = self.agent.ask()
        return list(self.trial.params.values())


class BoTorch:
    def __init__(self, D: int) -> None:
        torch.manual_seed(0)
        self.bounds = torch.tensor([[0.0] * D, [1.0] * D], dtype=torch.double)
        self.X = torch.empty(0, D, dtype=torch.double)
        self.y = torch.empty(0, 1, dtype=torch.double)

    def tell(self, x: np.ndarray, score: float) -> None:
        self.X = torch.cat([self.X, torch.from_numpy(x)[None]])
        self.y = torch.cat([self.y, torch.tensor([[score]], dtype=torch.double)])

    def query(self) -> list[float]:
        model = SingleTaskGP(self.X, self.y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        path = get_matheron_path_model(model, sample_shape=torch.Size([1]))
        x, _ = optimize_posterior_samples(path, self.bounds)
        return x.flatten().tolist()


class InStudy:
    def __init__(self, D: int, sampler: optuna.samplers.BaseSampler) -> None:
        self.space = distributions(D)
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        self.trial: optuna.Trial | None = None

    def tell(self, x: np.ndarray, score: float) -> None:
        if self.trial is not None:  # a running trial would make the next query use the slower qEI
            self.study.tell(self.trial, state=optuna.trial.TrialState.FAIL)
        finished = optuna.trial.create_trial(
            params=params(x), distributions=self.space, value=score
        )
        self.study.add_trial(finished)

    def query(self) -> list[float]:
        self.trial = self.study.ask(self.space)
        return list(self.trial.params.values())


def distributions(D: int) -> dict[str, optuna.distributions.BaseDistribution]:
    return {f"x{d}": optuna.distributions.FloatDistribution(0.0, 1.0) for d in range(D)}


OPTIMISERS: dict[str, Callable[[int], Fedbo | BoTorch | InStudy]] = {
    "ei": lambda D: Fedbo(D, fedbo.EI()),
    "ts": lambda D: Fedbo(D, fedbo.TS()),
    "peers": lambda D: Fedbo(D, fedbo.TipsThenPool(), POOLED),
    "sampler": lambda D: InStudy(D, FederatedSampler(seed=0)),
    "botorch": BoTorch,
    "optuna_gp": lambda D: InStudy(D, optuna.samplers.GPSampler(seed=0)),
}


# Measurements


def query_times(D: int) -> dict[str, float]:
    """Measure the median CPU milliseconds of a query, by optimiser."""
    first = T - QUERIES // 2
    X, y = smooth_trials(D, first + QUERIES)
    running = {name: make(D) for name, make in OPTIMISERS.items()}
    for optimiser in running.values():
        for x, score in zip(X[:first], y[:first], strict=True):
            optimiser.tell(x, float(score))
        optimiser.query()  # the first query also pays for lazy imports and caches
    times: dict[str, list[float]] = {name: [] for name in running}
    for i in range(first, first + QUERIES):
        progress(f"D = {D}, query {i - first + 1} of {QUERIES}")
        for name, optimiser in running.items():
            optimiser.tell(X[i], float(y[i]))
            ms, x = cpu_ms(optimiser.query)
            times[name].append(ms)
            assert len(x) == D and all(0 <= value <= 1 for value in x), (name, x)
    return {name: median(values) for name, values in times.items()}


def peer_times(name: str) -> Figures:
    """Measure the median CPU milliseconds of a query by the number of peers."""
    policy, kind, sizes = POLICIES[name]
    agreed = federation(2, kind)
    messages = [message(agreed, i) for i in range(min(max(sizes), 1_000))]
    inboxes = {}
    for N in sizes:
        progress(f"{name}: N = {N}")
        agent = fedbo.Agent(agreed, policy, name="target", seed=0)
        if kind == "belief":
            agent.receive(messages[:N])
        else:  # messages that repeat
            omegas = np.array([message.body.omega for message in messages])
            for i in range(N):
                agent.inbox.hold(Held(f"peer-{i}", T, T, omegas[i % len(omegas)]))
        inboxes[N] = agent.inbox
    times: dict[int, list[float]] = {N: [] for N in inboxes}
    for run in range(RUNS):  # sizes take turns, so that a busy machine slows all of them
        for N, inbox in inboxes.items():
            progress(f"{name}: run {run + 1} of {RUNS}, N = {N}")
            agent = fedbo.Agent(agreed, policy, name="target", seed=run)
            agent.inbox = inbox
            times[N].append(_run_ms(agent))
    by_N = {f"N = {N:,}": median(values) for N, values in times.items()}
    return {**by_N, "parameters": messages[0].parameters, "bytes": messages[0].nbytes}


def _run_ms(agent: fedbo.Agent) -> float:
    """Measure the mean CPU milliseconds of a query, in a run from T - 10 trials on."""
    rng = np.random.default_rng(2)
    f, times = smooth_function(rng, 2), []
    for x in rng.random((T - QUERIES // 2, 2)):
        agent.tell(params(x), float(f(x)))
    for _ in range(QUERIES + 1):  # the first query also pays for lazy imports and caches
        ms, trial = cpu_ms(agent.ask)
        times.append(ms)
        agent.tell(trial, float(f(np.array([*trial.params.values()]))))
    return mean(times[1:])


# The command


def beside_optuna(by_D: dict[int, dict[str, float]]) -> Figures:
    """Arrange times by row, each with the ratio of GPSampler's time to it."""
    return {
        name: {
            f"D = {D}{word}": value
            for D, times in by_D.items()
            for word, value in (("", times[name]), (", ratio", times["optuna_gp"] / times[name]))
        }
        for name in next(iter(by_D.values()))
    }


def show(title: str, rows: Figures) -> None:
    """Print a table as soon as it is measured."""
    progress("")
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    width = [max(len(column), 7) + 2 for column in columns]
    print(f"\r{title}\n{'':16}" + "".join(f"{c:>{w}}" for c, w in zip(columns, width, strict=True)))
    for name, row in rows.items():
        cells = (row.get(column, "") for column in columns)
        texts = (f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in cells)
        print(f"{name:16}" + "".join(f"{t:>{w}}" for t, w in zip(texts, width, strict=True)))
    print(flush=True)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the figures there")
    options = parser.parse_args()
    warnings.simplefilter("ignore", InputDataWarning)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    torch.set_num_threads(1)
    measurements: dict[str, Callable[[], Figures]] = {
        f"CPU ms of one query with its fit, t = {T}, M = {M}, median of {QUERIES}": lambda: (
            beside_optuna({D: query_times(D) for D in DIMENSIONS})
        ),
        f"CPU ms of one query against the number of peers, median of {RUNS} runs": lambda: {
            name: peer_times(name) for name in POLICIES
        },
    }
    results = {}
    with threadpool_limits(1):
        for title, measure in measurements.items():
            results[title] = measure()
            show(title, results[title])
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
