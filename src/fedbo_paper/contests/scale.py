"""Measure a federation of a million agents: what it costs, and what more agents are worth.

    python benchmarks/scale.py --agents 1000000
    python benchmarks/scale.py --study results/scale --json scale.json --picture scale.png

With --agents, one crowd (`fedbo_paper.contests.crowds`) of that size is made: the trials of its
agents, and from these their compact messages. Then targets run on top of it, and on top of its
first thousand agents in turn. The table has the time of each stage, the memory of the whole
process, and the CPU time of a query. The cost of hearing is that of choosing 1,024 messages, of
receiving them, and of making the target's own message, once in 7 queries.

With --study, targets run with more and more agents: the first 10, 100, ... of a crowd of a million.
A target hears all of them if they are at most 1,024, and otherwise

uniform     1,024 at random, the same all the time
alike       the 1,024 whose messages are most like its own: the correlation of their functions
latest      the 1,024 that joined last; for the crowd that drifts
own kind    agents of its own kind of task only; for the crowds with many: what the best choice
            could give, which nobody can know

All runs of a target have 20 trials, of which the first 3 are the same points. Before trials 4, 11
and 18 it publishes, and hears anew. Regrets are in standard deviations of the target's function
over the space. Intervals are 95 % bootstraps over kinds of task: over crowds, with all targets of a
crowd, or over targets where each has a kind of its own. Ratios are paired. Their means over the
four crowds decide, by rules that were fixed before a reported result was seen. A way to choose is
worth it if its ratio to "uniform" is below 1 at 10 or 20 trials, and at none of 5, 10 and 20 above
1. Ten times as many agents help if the ratio to a tenth of them is below 1 at 10 or 20. Both by the
intervals. Finished crowds are kept in the folder, and a study that was stopped continues.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import fedbo
from fedbo import files
from fedbo.insight.colours import COLOURS
from fedbo.model.kernel import one_thread
from fedbo.population import MOST, Hear, Population, Rows, alike, uniform
from fedbo_paper.contests import options, picture, screen
from fedbo_paper.contests.contest import DEFAULT
from fedbo_paper.contests.crowds import CROWDS, TRIALS, Crowd, Objective, names
from fedbo_paper.contests.summary import AT
from fedbo_paper.harness import intervals
from fedbo_paper.harness.intervals import Effect, Floats

D, LENGTH, INITIAL, EVERY = 3, 20, 3, 7  # LENGTH trials, the INITIAL points included
FEW = 1_000  # agents that a large crowd is compared with
ALONE, ALL, UNIFORM, ALIKE, LATEST, OWN_KIND = (
    "alone", "all", "uniform", "alike", "latest", "own kind",
)  # fmt: skip
RUNS, REPORTED = 1000, 100  # targets of a crowd at most; the first seed that is reported
#: Seeds of the crowds of a study, and targets of each: those of one cluster are alike.
SEEDS = {"alike": 8, "one in 10": 4, "one in 200": 2, "drifting": 8}
TARGETS = {"alike": 4, "one in 10": 10, "one in 200": 20, "drifting": 4}
COLOUR = {
    ALONE: "black",
    ALL: "0.35",
    UNIFORM: COLOURS[0],
    ALIKE: COLOURS[1],
    LATEST: COLOURS[3],
    OWN_KIND: "0.6",
}

TABLES = {
    "regret": "mean regret",
    "to alone": "ratio to the regret of EI alone",
    "to uniform": "ratio to the regret with a uniform sample of as many agents",
    "to a tenth": "ratio to the regret with a tenth of the agents",
}

Figures = dict[str, Any]


def federation() -> fedbo.Federation:
    """Return the federation of all crowds."""
    space = {name: fedbo.Float(0.0, 1.0) for name in names(D)}
    return fedbo.Federation(space, kind="compact")


def built(crowd: Crowd, seed: int, stage: str) -> Population:
    """Make the messages of a crowd, and show the progress."""
    size = len(crowd.traits)
    with screen.progress(stage, size) as show:
        return Population.from_histories(federation(), crowd.histories(), seed=seed, progress=show)


def run(
    objective: Objective, seed: int, population: Population | None, hear: Hear, timed: bool = False
) -> fedbo.Table:
    """Run a target: one row for each of its trials."""
    policy = fedbo.EI() if population is None else DEFAULT()
    agent = fedbo.Agent(federation(), policy, name="target", seed=seed)
    party = fedbo.Party(agent=agent, objective=objective.score, optimum=objective.optimum)
    return fedbo.simulate(
        [party],
        LENGTH - INITIAL,
        every=EVERY,
        population=population,
        hear=hear,
        seed=seed,
        timed=timed,
    )


# What it costs


def cost(size: int, targets: int) -> Figures:
    """Make a crowd of this size, run targets on top of it, and measure what that takes."""
    stages: dict[str, list[float]] = {}
    with _timed(stages, "trials and messages"):
        crowd = Crowd("one in 200", 0, size, D)
        population = built(crowd, 0, "messages")
    sizes = {FEW: population.first(min(FEW, size)), size: population}
    message = population.messages([0])[0]
    run(
        crowd.target(0)[1], 0, sizes[FEW], uniform
    )  # the first query also pays for lazy imports and caches
    found: dict[str, dict[str, list[float]]] = {}
    with _timed(stages, "targets"), screen.progress("targets", targets) as show:
        for i in range(targets):  # sizes take turns, so that a busy machine slows all of them
            _, objective = crowd.target(i)
            for N, some in sizes.items():
                for rule, hear in ((UNIFORM, uniform), (ALIKE, alike)):
                    each = found.setdefault(f"{N} {rule}", {"query": [], "whole": []})
                    start = time.process_time()
                    table = run(objective, i, some, hear, timed=True)
                    each["whole"].append(1e3 * (time.process_time() - start) / (LENGTH - INITIAL))
                    query = table["cpu_fit"] + table["cpu_other"] + table["cpu_maximise"]
                    each["query"].append(1e3 * float(query[INITIAL:].mean()))
            show(i + 1)
    with _timed(stages, "one choice of the most alike"):
        alike(population, message, np.random.default_rng(0))
    by_size = {key: {name: float(np.median(ms)) for name, ms in each.items()}
               for key, each in found.items()}  # fmt: skip
    few, many = by_size[f"{FEW} {UNIFORM}"], by_size[f"{size} {UNIFORM}"]
    return {
        "agents": size,
        "trials": TRIALS * size,
        "targets": targets,
        "stages": stages,
        "message_bytes": message.nbytes,
        "population_mb": population.nbytes / 1e6,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "cpu_ms": by_size,
        "ratio_of_a_query": many["query"] / few["query"],
        "ratio_with_hearing": many["whole"] / few["whole"],
        "ratio_with_hearing_alike": by_size[f"{size} {ALIKE}"]["whole"] / few["whole"],
    }


@contextmanager
def _timed(stages: dict[str, list[float]], name: str) -> Iterator[None]:
    """Record wall and CPU seconds of a stage."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    stages[name] = [time.perf_counter() - wall, time.process_time() - cpu]


def show_cost(found: Figures) -> None:
    """Print what a crowd costs."""
    rows = [[name, *(f"{s:.2f} s" for s in spent)] for name, spent in found["stages"].items()]
    title = f"{found['agents']:,} agents with {TRIALS} trials each, and {found['targets']} targets"
    screen.table(title, ["stage", "wall", "CPU"], rows)
    rows = [
        ["a message on the wire", f"{found['message_bytes']} bytes"],
        ["all messages, as arrays", f"{found['population_mb']:.0f} MB"],
        ["most memory of the process", f"{found['peak_mb']:.0f} MB"],
    ]
    screen.table("memory", ["", "size"], rows)
    rows = [
        [key, f"{each['query']:.1f} ms", f"{each['whole']:.1f} ms"]
        for key, each in found["cpu_ms"].items()
    ]
    title = "CPU time of a query, without and with its share of hearing (medians over targets)"
    screen.table(title, ["agents", "a query", "with hearing"], rows)
    screen.out.print(
        f"a query with {found['agents']:,} agents over one with {FEW:,}: "
        f"{found['ratio_of_a_query']:.2f}; with hearing {found['ratio_with_hearing']:.2f} "
        f"({UNIFORM}), {found['ratio_with_hearing_alike']:.2f} ({ALIKE})",
        highlight=False,
    )


# What more agents are worth


def rules(crowd: Crowd, trait: float, size: int) -> dict[str, Hear]:
    """Return the ways in which a target can hear the first agents of a crowd, by name."""
    if size <= MOST:
        return {ALL: uniform}
    found: dict[str, Hear] = {UNIFORM: uniform, ALIKE: alike}
    traits = crowd.traits[:size]
    if not crowd.kinds:
        found[LATEST] = _only(np.argpartition(traits, -MOST)[-MOST:])
    elif crowd.kinds > 1:
        found[OWN_KIND] = _only(np.flatnonzero(traits == trait)[:MOST])
    return found


def _only(rows: Rows) -> Hear:
    """Return a rule that always chooses these agents."""
    return lambda population, own, rng: rows


def play(name: str, seed: int, sizes: list[int], targets: int) -> dict[str, list[list[float]]]:
    """Run all targets of a crowd with all sizes and rules.

    Returns:
        For each size and rule, as "size rule", the regrets (targets, trials).
    """
    crowd = Crowd(name, seed, sizes[-1], D)
    stage = f"{name}, seed {seed}"
    population = built(crowd, seed, f"{stage}: messages")
    found: dict[str, list[list[float]]] = {}
    with screen.progress(f"{stage}: targets", targets) as show:
        for i in range(targets):
            trait, objective = crowd.target(i)
            run_seed = RUNS * seed + i
            tables = {f"0 {ALONE}": run(objective, run_seed, None, uniform)}
            for N in sizes:
                for rule, hear in rules(crowd, trait, N).items():
                    tables[f"{N} {rule}"] = run(objective, run_seed, population.first(N), hear)
            for arm, table in tables.items():
                found.setdefault(arm, []).append(table["simple_regret"].tolist())
            show(i + 1)
    return found


def study(folder: Path, given: argparse.Namespace) -> Figures:
    """Play all crowds, or read what is in the folder; compute regrets and ratios."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = [10**k for k in range(1, 7) if 10**k <= given.agents]
    first = 0 if given.try_out else REPORTED
    counts = {name: given.seeds or SEEDS[name] for name in given.crowds}
    parts: dict[str, list[Figures]] = {name: [] for name in given.crowds}
    for seed in range(max(counts.values())):  # kinds take turns, so that a part says something
        for name in (name for name in given.crowds if seed < counts[name]):
            targets = given.targets or TARGETS[name]
            file = f"{name.replace(' ', '-')}-{first + seed}-{sizes[-1]}x{targets}-{LENGTH}.json"
            path = folder / file
            if not path.exists():
                part = play(name, first + seed, sizes, targets)
                files.write(path, json.dumps(part).encode())
            parts[name].append(json.loads(path.read_text()))
    regrets = {
        name: {arm: _units(name, [part[arm] for part in some]) for arm in some[0]}
        for name, some in parts.items()
    }
    return {
        "crowds": {name: figures([arms]) for name, arms in regrets.items()},
        "together": figures([*regrets.values()]),
    }


def _units(name: str, regrets: list[list[list[float]]]) -> Floats:
    """Return regrets (units, targets of a unit, trials); a unit has a kind of task of its own."""
    found = np.array(regrets)
    return found.reshape(-1, 1, found.shape[2]) if CROWDS[name] > 1 else found


def figures(crowds: list[dict[str, Floats]]) -> Figures:
    """Compute the mean regret of each arm that all crowds have, and its ratios to other arms.

    Args:
        crowds: For each crowd, the regrets of each arm, (units, targets, trials).
    """
    found: Figures = {}
    at = [n for n in AT if n <= LENGTH]
    for arm in crowds[0]:
        if not all(arm in arms for arms in crowds):
            continue
        size, _, rule = arm.partition(" ")
        N, is_choice = int(size), rule not in (ALONE, ALL)
        bases = {"to alone": f"0 {ALONE}"}
        if is_choice and rule != UNIFORM:
            bases["to uniform"] = f"{N} {UNIFORM}"
        if N > 10:
            bases["to a tenth"] = f"{N // 10} {rule if N // 10 > MOST else ALL}"
        found[arm] = {"regret": {str(n): _mean(crowds, n, arm) for n in at}}
        for title, base in bases.items():
            found[arm][title] = {str(n): _mean(crowds, n, arm, base) for n in at}
    return found


def _mean(crowds: list[dict[str, Floats]], n: int, arm: str, base: str | None = None) -> Effect:
    """Compute the mean over crowds of an arm's regret after n trials, or of its ratio to another.

    Each crowd is resampled by itself.
    """
    values, samples = [], []
    for k, arms in enumerate(crowds):
        above = arms[arm][:, :, n - 1].mean(axis=1)
        below = np.ones(len(above))
        if base is not None:
            below = arms[base][:, :, n - 1].mean(axis=1)
        even = np.full(len(above), 1 / len(above))
        W = np.random.default_rng(k).multinomial(len(above), even, size=intervals.RESAMPLES)
        values.append(above.mean() / below.mean())
        samples.append((W @ above) / (W @ below))
    low, high = np.quantile(np.mean(samples, axis=0), intervals.TAILS).tolist()
    return Effect(float(np.mean(values)), low, high, len(crowds))


def show_study(found: Figures) -> None:
    """Print regrets, and their ratios to those of other arms."""
    at = [str(n) for n in AT if n <= LENGTH]
    columns = ["agents", "hears", *(f"at {n}" for n in at)]
    for name, arms in [*found["crowds"].items(), ("mean of the crowds", found["together"])]:
        for title, text in TABLES.items():
            rows = [
                [f"{int(size):,}", rule, *(screen.estimate(each[title][n], 3) for n in at)]
                for arm, each in arms.items()
                for size, _, rule in (arm.partition(" "),)
                if title in each and not (title == "to alone" and rule == ALONE)
            ]
            if rows:
                screen.table(f"{name}: {text}", columns, rows)


def drawn(found: Figures) -> Figure:
    """Draw regret against the number of agents, a column for each crowd, a row for each time."""
    found = found["crowds"]
    at = [n for n in AT if n <= LENGTH][-3:]
    figure = Figure(figsize=(3.0 * len(found) + 1.2, 2.3 * len(at) + 0.6), layout="constrained")
    panels = figure.subplots(len(at), len(found), squeeze=False, sharex=True, sharey="row")
    for column, (name, arms) in enumerate(found.items()):
        for row, n in enumerate(at):
            axes: Axes = panels[row, column]
            _draw_panel(axes, arms, str(n))
            picture.label(axes, name if row == 0 else "")
            if row == len(at) - 1:
                axes.set_xlabel("agents")
            if column == 0:
                axes.set_ylabel(f"regret after {n} trials")
    lines = {line.get_label(): line for axes in panels.flat for line in axes.get_lines()}
    known = [rule for rule in COLOUR if rule in lines]
    figure.legend(
        [lines[rule] for rule in known], known, loc="outside lower center", ncols=len(known),
        frameon=False,
    )  # fmt: skip
    return figure


def _draw_panel(axes: Axes, arms: Figures, n: str) -> None:
    """Draw one crowd after n trials."""
    by_rule: dict[str, dict[int, Effect]] = {}
    for arm, each in arms.items():
        size, _, rule = arm.partition(" ")
        by_rule.setdefault(rule, {})[int(size)] = each["regret"][n]
    alone = by_rule.pop(ALONE)[0]
    axes.axhline(alone.value, color=COLOUR[ALONE], lw=1.2, ls="--", label=ALONE)
    axes.axhspan(alone.low, alone.high, color="0.9", lw=0)
    for k, (rule, effects) in enumerate(by_rule.items()):
        aside = 1.12 ** (k - 2)  # so that intervals do not overlap
        joined = by_rule[ALL] if ALL in by_rule and rule != ALL else {}
        last = {max(joined): joined[max(joined)]} if joined else {}  # where the line comes from
        points = {N: effect for N, effect in sorted((last | effects).items())}
        axes.plot(
            [N * (aside if N in effects else 1.12**-2) for N in points],
            [effect.value for effect in points.values()],
            color=COLOUR[rule], lw=1.4, label=rule,
        )  # fmt: skip
        for N, effect in effects.items():
            values = (effect.value, effect.low, effect.high)
            picture.interval(axes, N * aside, values, up=True, color=COLOUR[rule])
    axes.set_xscale("log")
    axes.set_yscale("log")


def main() -> None:
    """Run the command."""
    parser = options.parser(__doc__)
    add = parser.add_argument
    text = "agents of a crowd, or of the largest one of a study; default: 1,000,000"
    add("--agents", type=options.positive, default=1_000_000, metavar="N", help=text)
    text = "hold the study, and keep finished crowds in this folder"
    add("--study", type=Path, metavar="FOLDER", help=text)
    text = f"crowds of the study, some of {', '.join(CROWDS)}; default: all"
    add("--crowds", type=options.some([*CROWDS]), default=tuple(CROWDS), help=text)
    text = "crowds of each kind; default: 2 to 10, fewer of those with many clusters"
    add("--seeds", type=options.positive, metavar="N", help=text)
    text = "targets of a crowd; default: 20, and in a study 4 to 20"
    add("--targets", type=options.positive, metavar="N", help=text)
    add("--try-out", action="store_true", help="use crowds that are not reported")
    add("--picture", type=Path, metavar="OUT.png", help="also draw the study")
    options.add_json(parser)
    given = parser.parse_args()
    show: Callable[[Figures], None]
    with one_thread():
        if given.study is None:
            found, show = cost(given.agents, given.targets or 20), show_cost
        else:
            found, show = study(given.study, given), show_study
    show(found)
    screen.finish(found, given.json)
    if given.study is not None and given.picture:
        drawn(found).savefig(given.picture, dpi=110)
