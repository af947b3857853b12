"""Own parameters: two of a target's parameters that its federation does not know.

The peers have made 30 trials alone, with these two fixed at usual values. The target tunes all
parameters, with the messages of its peers or alone,

``one model``   by one model of all (`fedbo.Agent` with ``own``)
``TPE beside``  the federation's by its agent, and its own by Optuna's TPE
``shared``      the federation's only; its own are fixed as its peers have them

Shown are the mean regret (0: the best score of all runs on the target, 1: the median of 100
random settings), the ratio of one model to TPE beside it, paired, and what the messages gain at
trial 3: the regret alone minus the regret together, in one model and with shared ones only. Targets
whose best score is no better than the median are left out.

    FEDBO_DATA=folder python benchmarks/own.py --seeds 10 --json out.json
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import fedbo
from fedbo.space.axis import Value
from fedbo_paper.harness.intervals import Floats, bootstrap, paired

from .objectives import KERNELS, lcbench_error, shard_error, svm_error
from .peers import seed_of
from .stored import FEDBO, stored
from .terminal import contest_parser, estimate, finish, some, table, work

Params = dict[str, Value]

HISTORY = 30  # trials of a peer
RANDOM = 100  # settings, whose median is a regret of 1
GAIN_AT = 3
AT = (1, 3, 5, 10, 20, 30)


class Ground(NamedTuple):
    """Tasks with parameters that all share, and parameters of the target; scores are errors."""

    tasks: int
    shared: dict[str, fedbo.Parameter]
    own: dict[str, fedbo.Parameter]
    usual: Params  # of the own ones
    error: Callable[..., float]  # of a task and all parameters


GROUNDS = {
    "svm": Ground(
        tasks=50,
        shared={
            "kernel": fedbo.Categorical(KERNELS),
            "C": fedbo.Float(2**-5, 2**6, log=True),
        },
        own={"gamma": fedbo.Float(1e-4, 1e3, log=True), "degree": fedbo.Int(2, 10)},
        usual={"gamma": 0.1, "degree": 3},
        error=svm_error,
    ),
    "lcbench": Ground(
        tasks=35,
        shared={
            "batch": fedbo.Int(16, 512, log=True),
            "layers": fedbo.Int(1, 4),
            "learning_rate": fedbo.Float(1e-4, 1e-1, log=True),
            "momentum": fedbo.Float(0.1, 0.99),
            "units": fedbo.Int(64, 1024, log=True),
        },
        own={"dropout": fedbo.Float(0.0, 1.0), "weight_decay": fedbo.Float(1e-5, 1e-1)},
        usual={"dropout": 0.5, "weight_decay": 0.01},
        error=lcbench_error,
    ),
    "shards": Ground(
        tasks=10,
        shared={
            "learning_rate": fedbo.Float(0.01, 1.0, log=True),
            "max_leaf_nodes": fedbo.Int(2, 32, log=True),
            "n_estimators": fedbo.Int(5, 60, log=True),
        },
        own={"min_samples_leaf": fedbo.Int(1, 50, log=True), "subsample": fedbo.Float(0.2, 1.0)},
        usual={"min_samples_leaf": 1, "subsample": 1.0},
        error=shard_error,
    ),
}


ARMS = ("one model", "TPE beside", "shared")
TOGETHER, ALONE = " together", " alone"  # the ends of their names


# Runs


def federation(ground: Ground) -> fedbo.Federation:
    return fedbo.Federation(fedbo.Space(ground.shared, direction="minimize"))


def peer(name: str, task: int, history: int) -> tuple[fedbo.Message, list[float]]:
    """Run a peer alone; return its message, and the errors of random settings of its task."""
    ground = GROUNDS[name]
    seed = seed_of(1, history, task)
    agent = fedbo.Agent(federation(ground), name=f"task-{task}", seed=seed)
    for _ in range(HISTORY):
        trial = agent.ask()
        agent.tell(trial, ground.error(task, **trial.params, **ground.usual))
    space = fedbo.Space({**ground.shared, **ground.own})
    settings = map(space.decode, space.sample(np.random.default_rng([2, task]), RANDOM))
    return agent.message(), [ground.error(task, **params) for params in settings]


def play(
    name: str, arm: str, task: int, seed: int, trials: int, received: Sequence[fedbo.Message]
) -> list[float]:
    """Run a target; return the errors of its trials."""
    ground = GROUNDS[name]
    own = ground.own if arm == "one model" else None
    agent = fedbo.Agent(federation(ground), name="target", seed=seed_of(3, seed, task), own=own)
    agent.receive(received)
    beside = Beside(ground, seed_of(4, seed, task)) if arm == "TPE beside" else None
    errors: list[float] = []
    for _ in range(trials):
        trial = agent.ask()
        rest = beside.ask() if beside else {} if own else ground.usual
        errors.append(ground.error(task, **trial.params, **rest))
        agent.tell(trial, errors[-1])
        if beside:
            beside.tell(errors[-1])
    return errors


class Beside:
    """Optuna's TPE, which samples a target's own parameters and sees nothing else."""

    def __init__(self, ground: Ground, seed: int) -> None:
        import optuna

        from fedbo.optuna.distributions import distribution_of

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._ranges = {key: distribution_of(of) for key, of in ground.own.items()}
        self._study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))

    def ask(self) -> Params:
        self._trial = self._study.ask(self._ranges)
        return self._trial.params

    def tell(self, error: float) -> None:
        self._study.tell(self._trial, error)


# The contest


def hold(name: str, options: Any) -> dict[str, Any]:
    """Run all arms on a ground; return the figures."""
    ground = GROUNDS[name]
    histories = range(min(3, options.seeds))
    calls = [partial(peer, name, task, h) for h in histories for task in range(ground.tasks)]
    peers = work(f"{name}: peers", calls, options.jobs)
    every = range(ground.tasks)
    targets = [t for t in every if options.targets in ("all", ("even", "odd")[t % 2])]
    runs: list[Callable[[], list[float]]] = []
    arms = [arm + end for arm in ARMS for end in (TOGETHER, ALONE)]
    for arm in arms:
        kind, is_together = arm.removesuffix(TOGETHER).removesuffix(ALONE), TOGETHER in arm
        for task in targets:
            for seed in range(options.seeds):
                first = seed % len(histories) * ground.tasks
                met = [peers[first + n][0] for n in range(ground.tasks) if n != task]
                sent = met if is_together else []
                compute = partial(play, name, kind, task, seed, options.trials, sent)
                file, source = f"{name}-{arm}-{task}-{seed}", (*FEDBO, __name__)
                runs.append(
                    partial(stored, options.cache, file, options.trials, compute, source=source)
                )
    errors = np.array(work(name, runs, options.jobs))
    errors = errors.reshape(len(arms), len(targets), options.seeds, options.trials)
    best = errors.min(axis=(0, 2, 3))
    middle = np.array([np.median(peers[task][1]) for task in targets])
    lowest = np.minimum.accumulate(errors, axis=-1)
    varies = best < middle
    best, scale = (x[varies, None, None] for x in (best, middle - best))
    regret = (lowest[:, varies] - best) / scale
    return figures(dict(zip(arms, regret, strict=True)))


def figures(regret: dict[str, Floats]) -> dict[str, Any]:
    """Compute the figures from regrets (targets, seeds, trials)."""
    together, alone = (regret[f"one model{end}"] for end in (TOGETHER, ALONE))
    at = [n for n in AT if n <= together.shape[-1]]

    def ratio(end: str, n: int) -> Any:
        a, b = (regret[arm + end][..., n - 1] for arm in ("one model", "TPE beside"))
        return bootstrap(np.divide, a, b)

    def gain(kind: str) -> Any:
        a, b = (regret[kind + end][..., GAIN_AT - 1].mean(axis=1) for end in (ALONE, TOGETHER))
        return paired(a, b)

    return {
        "regret": {arm: {n: float(r[..., n - 1].mean()) for n in at} for arm, r in regret.items()},
        "one model / TPE beside, together": {n: ratio(TOGETHER, n) for n in at},
        "one model / TPE beside, alone": {n: ratio(ALONE, n) for n in at},
        "together / alone, one model": {
            n: bootstrap(np.divide, together[..., n - 1], alone[..., n - 1]) for n in at
        },
        "gain, one model": gain("one model"),
        "gain, shared": gain("shared"),
    }


def main() -> None:
    parser = contest_parser(__doc__, trials=AT[-1])
    parser.add_argument("--grounds", type=some([*GROUNDS]), default=[*GROUNDS], metavar="A,B,...")
    options = parser.parse_args()
    result = {}
    for name in options.grounds:
        result[name] = of = hold(name, options)
        at = [*of["regret"]["one model alone"]]
        rows = [[arm, *(f"{r[n]:.3f}" for n in at)] for arm, r in of["regret"].items()]
        rows += [[key, *(estimate(of[key][n]) for n in at)] for key in of if " / " in key]
        table(f"{name}: mean regret after this many trials", ["", *map(str, at)], rows)
        gains = [[key, estimate(of[key], 3)] for key in of if "gain" in key]
        table(f"{name}: regret at trial {GAIN_AT}, alone - together", ["", ""], gains)
    finish(result, options.json)
