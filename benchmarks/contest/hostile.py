"""Measure what collaboration costs an agent whose peers are useless, hostile, or lie.

family      messages that the target receives from hostile peers
----------  --------------------------------------------------------------------------------------
unrelated   of peers whose functions have nothing in common with its own; on a real table, each
            peer has the scores of the configurations in another order
negated     of peers that maximise the negative of an honest peer's function
worst       of peers that praise the target's worst point: their function is a bump there
noise       random numbers, with the norms of honest ones
drifting    honest ones at first, and those of "worst" after 8 trials
adaptive    before each query, an answer to the message that the target has just published: it
            agrees with the target where the target has been, and praises a bad point elsewhere

Hostile peers know the target's table, and collude. The target's agent accepts each of these
messages. All peers are hostile by default; with --share 0.4, 40 % of them, chosen at random for
each run, and the others are honest.

The target runs the default policy on synthetic tasks (D = 1, 2, 4, 6; similar tasks, so that honest
peers would help), on the SVM table, and on grids of the landmine fields in both boxes. The delay at
n says how many trials later than EI alone it reaches the mean normalised regret that EI alone has
after n. A regret of 0.001 counts as 0. Means are over targets and seeds.

In the JSON, `grounds` has the figures of each ground and family: `regret`; `regret_ei`, that of EI
alone; `ratio_ei`, the ratio to it; `ratio_honest`, to the honest peers without the hostile ones;
`delay` behind EI alone; `reached`, which is false where that delay is only a lower bound. `runs`
has the regret of every run: for each ground and arm, targets x seeds x trials, rounded to 6 digits.

    FEDBO_DATA=folder python benchmarks/hostile.py --json out.json
    FEDBO_DATA=folder python benchmarks/hostile.py --family worst,adaptive --share 0.4 --targets odd

======  =======================================================================  ============
symbol  meaning                                                                  shape
======  =======================================================================  ============
ψ       coordinates of a point in the basis of the federation                    (k,)
m, R    mean of the coordinates, and the factor of their covariance I − RᵀR, as  (k,), (r, k)
        a receiver of the target's message has them
======  =======================================================================  ============
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

import fedbo
from fedbo.federation.shared import Shared
from fedbo.message.compact import Compact
from fedbo.model.summary import quantise
from fedbo_paper.harness.intervals import TAILS, Effect, Floats, resamples

from . import figures, peers, runs, terminal
from .figures import Curves, Figures, counted
from .grounds import SVM_TABLE, Listed, landmine_grid, svm_table, synthetic
from .peers import DEFAULT, HISTORY, History, evaluate
from .runs import EI, Run

Results = dict[str, dict[str, Figures]]  # by ground and arm

GROUNDS = ("synthetic", "svm", "landmine")
HONEST = "honest peers only"
DIMENSIONS, INSTANCES, TASKS = (1, 2, 4, 6), 2, 12
DELAYS = (5, 10, 20)  # trials at which delays are measured
ZERO = 0.001  # a regret that counts as 0
RESAMPLES = 500  # for the interval of a delay
BUMP = 0.2  # width of the bump at the worst point, as a fraction of the cube's diagonal
DRIFT = 8  # trials of the target after which a drifting liar begins to lie
BAD = 0.5  # share of the target's points that an adaptive liar takes for bad
PRAISE = 1.0  # how far it praises one of them above all others, in standard deviations
SATURATED = 3  # trials in a cell: more of them are sent as so many


class Field(NamedTuple):
    """A table of the ground ``group``, and scores (tasks, n) that are unrelated to it."""

    group: str
    ground: Listed
    unrelated: Floats


def fields(options: argparse.Namespace) -> Iterator[Field]:
    """Create the tables of all selected grounds, one after another."""
    if "synthetic" in options.ground:
        for D in DIMENSIONS:
            for seed in range(INSTANCES):
                others = synthetic(D, seed, unrelated=True, tasks=TASKS)
                yield Field("synthetic", synthetic(D, seed, tasks=TASKS), others.Y)
    tables = [svm_table(options.table)] if "svm" in options.ground else []
    if "landmine" in options.ground:
        tables += [landmine_grid(box, options.cache, options.jobs) for box in ("linear", "log")]
    for table in tables:
        shuffled = np.random.default_rng(0).permuted(table.Y, axis=1)
        yield Field(table.name, table, shuffled)


# What hostile peers send


class Scene:
    """What the peers of one target have, and what they can send.

    ``sent`` has the messages of all tasks' agents: honest, negated and unrelated ones.
    """

    def __init__(
        self, ground: Listed, sent: dict[str, list[fedbo.Message]], target: int, seed: int
    ) -> None:
        self.ground, self.sent, self.target, self.seed = ground, sent, target, seed

    @cached_property
    def agreed(self) -> fedbo.Federation:
        return peers.federation(self.ground, DEFAULT())

    @cached_property
    def points(self) -> Floats:
        """ψ of all points, (n, k)."""
        return Shared.of(self.agreed).basis.coordinates(self.ground.X)

    @cached_property
    def bad(self) -> Floats:
        """Rows of the target's bad points, the worst first."""
        order = np.argsort(self.ground.Y[self.target], kind="stable")
        return order[: int(BAD * len(order))]

    @cached_property
    def baits(self) -> list[fedbo.Message]:
        """Messages that praise the target's worst point."""
        histories = worst_praised(self.ground, self.target, self.seed)
        return peers.messages(self.agreed, histories, self.seed)

    @cached_property
    def noise(self) -> dict[int, fedbo.Message]:
        """Random messages of all peers, by task."""
        rng = np.random.default_rng([6, self.seed, self.target])
        others = np.delete(np.arange(self.ground.tasks), self.target).tolist()
        return {n: only_noise(self.sent["honest"][n], rng) for n in others}


class Turn(NamedTuple):
    """The moment before a query of the target, in which hostile peers may send something.

    ``liars`` are their tasks, ``t`` is how many trials the target has made, and ``agent`` is its
    agent, which publishes a message after each of them.
    """

    scene: Scene
    liars: Sequence[int]
    t: int
    agent: fedbo.Agent


def once(pick: Callable[[Scene, int], fedbo.Message], turn: Turn) -> list[fedbo.Message]:
    """Send one message before the first query."""
    return [] if turn.t else [pick(turn.scene, n) for n in turn.liars]


def drifting(turn: Turn) -> list[fedbo.Message]:
    """Be honest until the target has made `DRIFT` trials, then praise its worst point."""
    if turn.t != DRIFT:
        return once(lambda scene, n: scene.sent["honest"][n], turn)
    later = HISTORY + 1  # a larger sequence number than that of the honest message
    return [replace(turn.scene.baits[n], sequence=later) for n in turn.liars]


def adaptive(turn: Turn) -> list[fedbo.Message]:
    """Agree with the target where it has been, and praise a bad point elsewhere."""
    if not turn.t:
        return [replace(turn.scene.baits[n], sequence=1) for n in turn.liars]
    answer = agreeing(turn.scene, turn.agent.message())
    return [replace(answer, sender=f"task-{n}", sequence=turn.t + 1) for n in turn.liars]


FAMILIES: dict[str, Callable[[Turn], list[fedbo.Message]]] = {
    "unrelated": partial(once, lambda scene, n: scene.sent["unrelated"][n]),
    "negated": partial(once, lambda scene, n: scene.sent["negated"][n]),
    "worst": partial(once, lambda scene, n: scene.baits[n]),
    "noise": partial(once, lambda scene, n: scene.noise[n]),
    "drifting": drifting,
    "adaptive": adaptive,
}


def worst_praised(ground: Listed, target: int, seed: int) -> list[History]:
    """Create trials of a bump at the target's worst point: half near it, half anywhere."""
    n, D = ground.X.shape
    distance2 = ((ground.X - ground.X[ground.Y[target].argmin()]) ** 2).sum(axis=1)
    bump = np.exp(-distance2 / (2 * D * BUMP**2))
    near = np.argsort(distance2, kind="stable")[: HISTORY // 2]
    histories = []
    for task in range(ground.tasks):
        rng = np.random.default_rng([seed, target, task])
        far = rng.choice(n, min(n, HISTORY - len(near)), replace=False)
        rows = np.unique([*near, *far]).tolist()
        histories.append([(ground.params(row), float(bump[row])) for row in rows])
    return histories


def only_noise(message: fedbo.Message, rng: np.random.Generator) -> fedbo.Message:
    """Replace the mean of a message by random numbers with the same norm."""
    assert isinstance(message.body, Compact)
    norm = np.linalg.norm(message.body.nu.astype(float))
    levels, _ = quantise(rng.standard_normal(message.body.M)[None], rng)
    step = float(norm / np.linalg.norm(levels))
    sent = levels[0] * bool(step), step, message.body.counts, b"", message.body.basis
    return replace(message, body=Compact.pack(*sent))


def agreeing(scene: Scene, message: fedbo.Message) -> fedbo.Message:
    """Answer the target's message: agree with it, except for a bad point that is praised.

    The answer is what the target would believe if it heard of one excellent trial at the bad point
    that it knows least about. So hardly anything changes where it has made trials. It claims as
    many trials as can be sent.
    """
    m, R = (numbers.astype(float) for numbers in Shared.of(scene.agreed).held(message).content)
    Psi = scene.points[scene.bad]
    shared = Psi - Psi @ R.T @ R  # covariances of the points with all coordinates, (bad, k)
    variance = np.einsum("ij,ij->i", shared, Psi)
    n = int(variance.argmax())
    wanted = float((scene.points @ m).max()) + PRAISE
    m += shared[n] * (wanted - Psi[n] @ m) / max(variance[n], 1e-9)
    levels, scales = quantise(m[None], np.random.default_rng(0))
    counts = np.full(len(Shared.of(scene.agreed).cells), SATURATED)
    body = Compact.pack(levels[0], float(scales[0]), counts, b"", Shared.of(scene.agreed).digest)
    return replace(message, t_n=int(counts.sum()), body=body)


# Runs


def divided(scene: Scene, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Divide the peers of a run into hostile and honest ones, at random."""
    others = np.delete(np.arange(scene.ground.tasks), scene.target)
    order = np.random.default_rng([8, seed, scene.target]).permutation(others).tolist()
    hostile = round(share * len(order))
    return sorted(order[:hostile]), sorted(order[hostile:])


def among(family: str, share: float, scene: Scene, seed: int, trials: int) -> list[float]:
    """Run a target that receives the messages of hostile and of honest peers.

    The family is one of `FAMILIES`, or `HONEST`: hostile peers send nothing.
    """
    hostile, honest = divided(scene, share, seed)
    ground, target = scene.ground, scene.target
    agent = runs.site(ground, DEFAULT(), target, seed, ground.initial(target, seed))
    agent.receive([scene.sent["honest"][n] for n in honest])
    scores = []
    for t in range(trials):
        if family != HONEST:
            agent.receive(FAMILIES[family](Turn(scene, hostile, t, agent)))
        scores += [score for _, score in evaluate(agent, ground, target, 1)]
    return scores


def measure(field: Field, options: argparse.Namespace) -> Curves:
    """Compute normalised regrets (targets, seeds, trials), alone and with each family."""
    ground = field.ground
    tables = {"honest": ground.Y, "negated": -ground.Y, "unrelated": field.unrelated}
    agreed = peers.federation(ground, DEFAULT())
    sent: list[dict[str, list[fedbo.Message]]] = [{} for _ in range(peers.HISTORIES)]
    for sort, Y in tables.items():
        stage = f"{ground.name}, {sort}"
        histories = peers.histories(Listed(ground.X, Y), options.jobs, options.seeds, stage)
        for h, group in enumerate(histories):
            sent[h][sort] = peers.messages(agreed, group, h)
    tasks = runs.targets(ground, options.targets)
    listed: list[Run] = []
    for seed in range(options.seeds):
        h = seed % peers.HISTORIES
        for target in tasks:
            scene = Scene(ground, sent[h], target, h)
            listed.append(runs.solitary(ground, EI, target, seed, options.trials))
            for arm in arms(options):
                compute = partial(among, arm, options.share, scene, seed, options.trials)
                listed.append(Run(arm, target, seed, compute, (str(options.share),)))
    scores = runs.carry_out(ground, listed, options, ground.name)
    curves = runs.curves(scores, (EI, *arms(options)), tasks)
    return figures.regrets(ground, tasks, curves)


def arms(options: argparse.Namespace) -> tuple[str, ...]:
    """List what is compared with EI alone."""
    return (*((HONEST,) if options.share < 1.0 else ()), *options.family)


# Results


def summary(regret: Curves, arm: str) -> Figures:
    """Compute the regrets, ratios and delays of an arm on a ground."""
    own, ei = regret[arm], regret[EI]
    by_target, ei_by_target = own.mean(axis=1), ei.mean(axis=1)
    mean, ei_mean = by_target.mean(axis=0), ei_by_target.mean(axis=0)
    W = resamples(len(own), RESAMPLES)
    result: Figures = {key: {} for key in ("regret", "regret_ei", "ratio_ei", "delay", "reached")}
    for n in counted(own.shape[-1]):
        result["regret"][str(n)] = float(mean[n - 1])
        result["regret_ei"][str(n)] = float(ei_mean[n - 1])
        result["ratio_ei"][str(n)] = figures.ratio(own[:, :, n - 1], ei[:, :, n - 1])
        if HONEST in regret:
            honest = regret[HONEST][:, :, n - 1]
            result.setdefault("ratio_honest", {})[str(n)] = figures.ratio(own[:, :, n - 1], honest)
    for n in (n for n in DELAYS if n <= own.shape[-1]):
        value, is_reached = figures.delay(mean, ei_mean, n - 1, ZERO)
        samples = [
            figures.delay(a, b, n - 1, ZERO)[0]
            for a, b in zip(W @ by_target, W @ ei_by_target, strict=True)
        ]
        low, high = np.quantile(samples, TAILS).tolist()
        result["delay"][str(n)] = Effect(value, low, high, len(own))
        result["reached"][str(n)] = is_reached
    return result


def show(results: Results, title: str) -> None:
    """Print regrets in one table, and delays and ratios in another."""
    rows = {
        f"{ground}, {arm}": row for ground, by_arm in results.items() for arm, row in by_arm.items()
    }
    first = next(iter(rows.values()))
    at, delays = [*first["regret"]], [*first["delay"]]
    terminal.table(
        f"{title}: mean regret of EI alone → with these peers",
        ["ground, peers", *at],
        [
            [name, *(f"{row['regret_ei'][n]:.3f} → {row['regret'][n]:.3f}" for n in at)]
            for name, row in rows.items()
        ],
    )
    ratios = [key for key in ("ratio_ei", "ratio_honest") if key in first]
    words = {"ratio_ei": "to EI", "ratio_honest": "to honest"}
    terminal.table(
        f"{title}: delay in trials behind EI alone, and ratios of regrets, 95 % intervals",
        [
            "ground, peers",
            *(f"delay at {n}" for n in delays),
            *(f"{words[key]} at {n}" for key in ratios for n in at[-2:]),
        ],
        [
            [
                name,
                *(
                    ("" if row["reached"][n] else "≥ ") + terminal.estimate(row["delay"][n], 1)
                    for n in delays
                ),
                *(terminal.estimate(row[key][n]) for key in ratios for n in at[-2:]),
            ]
            for name, row in rows.items()
        ],
    )
    hostile = [row for name, row in rows.items() if not name.endswith(HONEST)]
    means = (f"{np.mean([row['delay'][n].value for row in hostile]):.1f} at {n}" for n in delays)
    terminal.out.print(f"mean delay: {', '.join(means)}", highlight=False)


def main() -> None:
    """Run the command."""
    parser = terminal.contest_parser(__doc__)
    for name, names in (("--family", tuple(FAMILIES)), ("--ground", GROUNDS)):
        text = f"some of {', '.join(names)}; default: all"
        choice = terminal.some(names)
        parser.add_argument(name, type=choice, default=names, metavar="A,B,...", help=text)
    text = "share of the peers that are hostile, above 0; default: 1"
    parser.add_argument("--share", type=float, default=1.0, metavar="S", help=text)
    text = f"the SVM table; default: {SVM_TABLE} in the data folder"
    parser.add_argument("--table", type=Path, help=text)
    options = parser.parse_args()
    if not 0.0 < options.share <= 1.0:
        parser.error(f"--share is {options.share}, expected a number above 0 and at most 1")
    tables: dict[str, list[Curves]] = {}
    for field in fields(options):
        tables.setdefault(field.group, []).append(measure(field, options))
    regret = {
        group: {arm: np.concatenate([part[arm] for part in parts]) for arm in parts[0]}
        for group, parts in tables.items()
    }
    results: Results = {}
    for group, curves in regret.items():
        figures.warn_of_few(len(curves[EI]), group)
        results[group] = {arm: summary(curves, arm) for arm in arms(options)}
    show(results, f"{DEFAULT.__name__}, {options.share:.0%} of the peers are hostile")
    setting = {"default": DEFAULT.__name__, "share": options.share, "seeds": options.seeds}
    all_runs = {group: figures.runs(curves) for group, curves in regret.items()}
    terminal.finish({**setting, "grounds": results, "runs": all_runs}, options.json)
