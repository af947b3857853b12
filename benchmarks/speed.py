"""Measure the CPU time of a query beside BoTorch and Optuna, of an Optuna trial, and of an import.

One query fits the hyper-parameters to all trials so far and chooses the next point:

    ei         Agent.ask with the policy EI, the default of an agent alone: fit, maximum of log EI
    ts         the same with TS: fit, Matheron draw, maximum of the draw
    pts        the same with TipsThenPool and the messages of 28 peers
    sampler    FederatedSampler, study.ask with every parameter: fedbo inside Optuna
    botorch    SingleTaskGP and fit_gpytorch_mll, one Matheron path, optimize_posterior_samples
    optuna_gp  GPSampler, study.ask with every parameter: fit, log EI, maximum of log EI

All optimisers see the same trials of a smooth random function on [0, 1]^D. Between two queries each
is told one new trial (not timed), so each refits in every query. Their own queries are told as
failed, which agents ignore here (repeats="allow") and GPSampler always does. The queries run from
t = 41 to 60 and take turns, so that a busy machine slows all of them. All use one thread, and
defaults otherwise. Times are medians of process CPU time. A ratio is GPSampler's time over the
time in this row.

Then whole studies of Optuna are run on the same five functions, each sampler with its own queries.
The trials from t = 41 to 60 are timed, from study.ask to study.tell:

    optuna_gp   GPSampler
    sampler     FederatedSampler, alone
    with_peers  FederatedSampler in a federation with 20 peers, publishing after every trial

Last, agents with EI (only its own queries, no draws) and with TS query listed points, 500 to
30,000 random ones of [0, 1]^2. Hyper-parameters are fitted in every query, and each takes part in
the maximum that is shown beside the median.

    make bench                                   # builds the environment and prints the tables
    python benchmarks/speed.py --json out.json   # in that environment
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Protocol

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
    from trials import command, progress, smooth_function, smooth_trials

    import fedbo
    from fedbo.exchange import Ledger, MemoryExchange
    from fedbo.optuna import FederatedSampler
except ModuleNotFoundError as error:
    sys.exit(f"speed.py: {error}. Run `make bench`: it builds .venv-bench with BoTorch and Optuna.")

DIMENSIONS = (2, 6)
T = 50
QUERIES = 20
M = 100
FUNCTIONS, PEERS = 5, 20
POOLED = 28  # peers of the agent with TipsThenPool
LISTED = (500, 1000, 2000, 2999, 3001, 10_000, 30_000)
TOLD = (10, 50, 200)  # trials before the queries of listed points
LISTED_POLICIES = {"ei": fedbo.EI(schedule=1e-9), "ts": fedbo.TS()}
IMPORTS = {"fedbo": "import fedbo", "numpy_scipy": "import numpy, scipy.optimize"}
IMPORT_RUNS = 15


class Optimiser(Protocol):
    def tell(self, x: np.ndarray, score: float) -> None: ...
    def query(self) -> list[float]: ...


class Fedbo:
    def __init__(self, D: int, policy: fedbo.Policy, peers: int = 0) -> None:
        self.federation, self.names = federation_of(D)
        settings = fedbo.Settings(repeats="allow")
        self.agent = fedbo.Agent(self.federation, policy, seed=0, settings=settings)
        for i in range(peers):
            self.agent.receive(peer(self.federation, self.names, i).message())
        self.trial = None

    def tell(self, x: np.ndarray, score: float) -> None:
        if self.trial is not None:
            self.agent.tell(self.trial, None)
        self.agent.tell(dict(zip(self.names, x.tolist(), strict=True)), score)

    def query(self) -> list[float]:
        self.trial = self.agent.ask()
        return list(self.trial.params.values())


def federation_of(D: int) -> tuple[fedbo.Federation, list[str]]:
    names = [f"x{i}" for i in range(D)]
    return fedbo.Federation({name: fedbo.Float(0.0, 1.0) for name in names}, features=M), names


def peer(federation: fedbo.Federation, names: list[str], i: int) -> fedbo.Agent:
    """Create a peer with T trials of its own smooth function."""
    agent = fedbo.Agent(federation, name=f"peer-{i}", seed=i)
    for x, score in zip(*smooth_trials(len(names), T, seed=100 + i), strict=True):
        agent.tell(dict(zip(names, x.tolist(), strict=True)), float(score))
    return agent


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
        self.space = {f"x{i}": optuna.distributions.FloatDistribution(0.0, 1.0) for i in range(D)}
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        self.trial: optuna.Trial | None = None

    def tell(self, x: np.ndarray, score: float) -> None:
        if self.trial is not None:  # a running trial would make the next query use the slower qEI
            self.study.tell(self.trial, state=optuna.trial.TrialState.FAIL)
        params = dict(zip(self.space, x.tolist(), strict=True))
        self.study.add_trial(
            optuna.trial.create_trial(params=params, distributions=self.space, value=score)
        )

    def query(self) -> list[float]:
        self.trial = self.study.ask(self.space)
        return list(self.trial.params.values())


OPTIMISERS: dict[str, Callable[[int], Optimiser]] = {
    "ei": lambda D: Fedbo(D, fedbo.EI()),
    "ts": lambda D: Fedbo(D, fedbo.TS()),
    "pts": lambda D: Fedbo(D, fedbo.TipsThenPool(), POOLED),
    "sampler": lambda D: InStudy(D, FederatedSampler(seed=0)),
    "botorch": BoTorch,
    "optuna_gp": lambda D: InStudy(D, optuna.samplers.GPSampler(seed=0)),
}


def query_times(D: int, optimisers: dict[str, Callable[[int], Optimiser]]) -> dict[str, float]:
    """Measure the median CPU milliseconds of a query, by optimiser."""
    first = T - QUERIES // 2
    X, y = smooth_trials(D, first + QUERIES)
    running = {name: make(D) for name, make in optimisers.items()}
    for optimiser in running.values():
        for x, score in zip(X[:first], y[:first], strict=True):
            optimiser.tell(x, float(score))
        optimiser.query()  # the first query also pays for lazy imports and caches
    times: dict[str, list[float]] = {name: [] for name in running}
    for i in range(first, first + QUERIES):
        progress(f"D = {D}, query {i - first + 1} of {QUERIES}")
        for name, optimiser in running.items():
            optimiser.tell(X[i], float(y[i]))
            start = time.process_time()
            x = optimiser.query()
            times[name].append(1e3 * (time.process_time() - start))
            if len(x) != D or not all(0 <= value <= 1 for value in x):
                sys.exit(f"speed.py: {name} asked for {x}, expected a point of [0, 1]^{D}")
    return {name: median(values) for name, values in times.items()}


def with_peers(D: int, seed: int, folder: Path) -> optuna.samplers.BaseSampler:
    """Create a FederatedSampler in a federation with peers."""
    federation, names = federation_of(D)
    exchange = MemoryExchange()
    for i in range(PEERS):
        exchange.publish(peer(federation, names, i).message())
    ledger = Ledger(folder / f"{D}-{seed}.jsonl")
    return FederatedSampler(federation, exchange, seed=seed, every=1, ledger=ledger)


SAMPLERS: dict[str, Callable[[int, int, Path], optuna.samplers.BaseSampler]] = {
    "optuna_gp": lambda D, seed, folder: optuna.samplers.GPSampler(seed=seed),
    "sampler": lambda D, seed, folder: FederatedSampler(seed=seed),
    "with_peers": with_peers,
}


def trial_times(D: int, folder: Path) -> dict[str, float]:
    """Measure the median CPU milliseconds of a trial in a study, by sampler."""
    last = T + QUERIES // 2
    space = {f"x{i}": optuna.distributions.FloatDistribution(0.0, 1.0) for i in range(D)}
    times: dict[str, list[float]] = {name: [] for name in SAMPLERS}
    for seed in range(FUNCTIONS):
        f = smooth_function(np.random.default_rng([D, seed]), D)
        studies = {
            name: optuna.create_study(direction="maximize", sampler=make(D, seed, folder))
            for name, make in SAMPLERS.items()
        }
        for t in range(1, last + 1):
            progress(f"D = {D}, function {seed + 1} of {FUNCTIONS}, trial {t} of {last}")
            for name, study in studies.items():
                start = time.process_time()
                trial = study.ask(space)
                study.tell(trial, float(f(np.array([*trial.params.values()]))))
                if t > last - QUERIES:
                    times[name].append(1e3 * (time.process_time() - start))
    return {name: median(values) for name, values in times.items()}


def listed_times(n: int, t: int, policy: fedbo.Policy) -> dict[str, float]:
    """Measure the median and the largest CPU milliseconds of a query of n listed points."""
    X, y = smooth_trials(2, n)
    points = [{"a": a, "b": b} for a, b in X.tolist()]
    space = fedbo.Space({"a": fedbo.Float(0.0, 1.0), "b": fedbo.Float(0.0, 1.0)}, points=points)
    agent = fedbo.Agent(fedbo.Federation(space, features=M), policy, seed=0)
    rows = dict(zip(X[:, 0].tolist(), range(n), strict=True))
    for i in range(t):
        agent.tell(points[i], float(y[i]))
    times = []
    for _ in range(QUERIES // 2 + 1):
        start = time.process_time()
        trial = agent.ask()
        times.append(1e3 * (time.process_time() - start))
        agent.tell(trial, float(y[rows[trial.params["a"]]]))
    return {"median": median(times[1:]), "most": max(times[1:])}


def import_times() -> dict[str, float]:
    """Measure the median CPU milliseconds of each import in a fresh interpreter."""
    times: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for run in range(-1, IMPORT_RUNS):  # run -1 writes the byte code and fills the disk cache
        progress(f"import, run {run + 1} of {IMPORT_RUNS}")
        for name, statement in IMPORTS.items():
            code = (
                f"import time; start = time.process_time()\n{statement}\n"
                "print(time.process_time() - start)"
            )
            done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
            if run >= 0:
                times[name].append(1e3 * float(done.stdout))
    return {name: median(values) for name, values in times.items()}


def measure() -> dict[str, dict]:
    """Measure queries, trials and imports."""
    warnings.simplefilter("ignore", InputDataWarning)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    torch.set_num_threads(1)
    with threadpool_limits(1):
        by_D = {str(D): query_times(D, OPTIMISERS) for D in DIMENSIONS}
        with tempfile.TemporaryDirectory() as folder:
            trials = {str(D): trial_times(D, Path(folder)) for D in DIMENSIONS}
        listed: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
        for name, policy in LISTED_POLICIES.items():
            listed[name] = {}
            for t in TOLD:
                progress(f"listed points, {name}, {t} trials")
                listed[name][str(t)] = {str(n): listed_times(n, t, policy) for n in LISTED}
    imports = import_times()
    cpu_ms = {name: {D: times[name] for D, times in by_D.items()} for name in OPTIMISERS}
    ratio = {
        name: {D: times["optuna_gp"] / times[name] for D, times in by_D.items()}
        for name in OPTIMISERS
        if name != "optuna_gp"
    }
    return {
        "ratio": ratio,
        "import_ratio": imports["fedbo"] / imports["numpy_scipy"],
        "cpu_ms": {**cpu_ms, "import": imports},
        "listed_cpu_ms": listed,
        "trial_cpu_ms": {name: {D: trials[D][name] for D in trials} for name in SAMPLERS},
        "trial_ratio": {
            name: {D: trials[D]["optuna_gp"] / trials[D][name] for D in trials}
            for name in SAMPLERS
            if name != "optuna_gp"
        },
    }


def show(result: dict[str, dict]) -> None:
    """Print the figures."""
    print(f"\nCPU time of one query with its fit, t = {T}, M = {M}, median of {QUERIES}")
    show_rows(result["cpu_ms"], result["ratio"], OPTIMISERS)
    print(f"\nCPU time of one trial in a study of Optuna, t = {T}, median of {FUNCTIONS * QUERIES}")
    show_rows(result["trial_cpu_ms"], result["trial_ratio"], SAMPLERS)
    print(f"\nCPU milliseconds of one query of listed points, median (most) of {QUERIES // 2}")
    print(f"{'trials':>12}" + "".join(f"{n:>14}" for n in LISTED))
    for name, by_t in result["listed_cpu_ms"].items():
        for t, by_n in by_t.items():
            cells = (f"{by_n[str(n)]['median']:.1f} ({by_n[str(n)]['most']:.1f})" for n in LISTED)
            print(f"{name:6}{t:>6}" + "".join(f"{cell:>14}" for cell in cells))
    print(f"\nCPU time of an import, median of {IMPORT_RUNS} fresh interpreters")
    for name, statement in IMPORTS.items():
        print(f"{statement:30}{result['cpu_ms']['import'][name]:>9.1f} ms")
    print(f"{'ratio':30}{result['import_ratio']:>9.2f}x")


def show_rows(cpu_ms: dict[str, dict], ratio: dict[str, dict], names: Iterable[str]) -> None:
    print(f"{'':12}" + "".join(f"{f'D = {D}':>12}{'ratio':>8}" for D in DIMENSIONS))
    for name in names:
        cells = (
            f"{cpu_ms[name][str(D)]:>9.1f} ms"
            + (f"{ratio[name][str(D)]:>7.1f}x" if name in ratio else f"{'':8}")
            for D in DIMENSIONS
        )
        print(f"{name:12}" + "".join(cells))


if __name__ == "__main__":
    command(__doc__, measure, show)
