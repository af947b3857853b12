"""The paper's claims, each with a verdict on the runs that were made.

`CLAIMS` lists them by section, with the paper's sentence, the experiments it is about and the way
it is judged (`answers`); `intervals` has the rules of the verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import numpy as np

from fedbo.table import Cell, Table
from fedbo_paper.experiments.answers import (
    FASTER,
    FEWER,
    GROWTH,
    LINEAR,
    Answer,
    Test,
    across_features,
    ahead,
    all_parts,
    both_ways,
    growth,
    linear,
    message_lengths,
    scale,
    score,
    sentence,
    some_targets,
    sooner,
    speed,
    times,
)
from fedbo_paper.experiments.results import ARM
from fedbo_paper.experiments.sides import UNIT, Floats, Rows, Runs, Side, groups_of
from fedbo_paper.experiments.spec import REAL
from fedbo_paper.harness.intervals import (
    Effect,
    Verdict,
    all_of,
    cluster_means,
    comparable,
    no_worse,
    paired,
    superior,
)

CHECKPOINTS = (10, 50)  # iterations whose regret is listed
BETWEEN = (10, 50)  # iterations at which presets are compared


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A claim of the paper beside what the runs of one experiment with one preset say."""

    id: str
    section: str
    figure: str
    claim: str
    experiment: str
    preset: str
    verdict: Verdict
    measure: str
    value: float
    low: float
    high: float
    n: int
    note: str
    said: str = ""  # instead of effect and interval, where they are not what was found


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """What the paper says, and where."""

    id: str
    section: str
    figure: str
    text: str


class Claim(Sentence, frozen=True, kw_only=True):
    """A sentence about each of these experiments, and how it is judged."""

    experiments: tuple[str, ...]
    test: Test


def judge(runs: Table, published: Table | None = None) -> list[Finding]:
    """Every claim that these runs can say something about, in the paper's order.

    ``published`` are the authors' own runs in the same columns, under a preset of their own:
    they are judged by the same rules.
    """
    groups = [*groups_of(runs), *(groups_of(published) if published is not None else ())]
    findings = [
        _finding(claim, group.experiment, group.preset, answer)
        for claim in CLAIMS
        for group in groups
        if group.experiment in claim.experiments and (answer := claim.test(group)) is not None
    ]
    for preset in dict.fromkeys(group.preset for group in groups):
        real = [group for group in groups if group.preset == preset and group.experiment in REAL]
        if (answer := _consistent(real)) is not None:
            findings.append(_finding(CONSISTENT, "all", preset, answer))
    return sorted(findings, key=lambda finding: finding.section)


def regrets(runs: Table) -> Table:
    """Simple and cumulative regret where the optimum is known: means, and standard errors.

    They are over functions (column ``n`` says how many), each the mean of its repeats.
    """
    rows = [
        [group.experiment, group.preset, *arm, at, *_regret_at(group, of, at)]
        for group in groups_of(runs)
        if np.isfinite(group.curve("simple_regret")[:, -1]).all()
        for arm, of in group.arms()
        for at in sorted({t for t in CHECKPOINTS if t < group.T} | {group.T})
    ]
    means = ("simple_regret", "simple_regret_error", "cumulative_regret", "cumulative_regret_error")
    return Table.from_rows(["experiment", "preset", *ARM, "iteration", "n", *means], rows)


def _regret_at(group: Runs, of: Rows, iteration: int) -> list[Cell]:
    cells: list[Cell] = []
    for name in ("simple_regret", "cumulative_regret"):
        means = cluster_means(group.curve(name)[of, iteration], group.clusters[of])
        n = len(means)
        error = float(means.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
        cells += [float(means.mean()), error]
    return [n, *cells]


def between_presets(runs: Table) -> Table:
    """How far the default preset is ahead of the paper's: each method from the same points.

    A unit is a target with a repeat; methods that have several M are averaged over them.
    """
    groups = {(group.experiment, group.preset): group for group in groups_of(runs)}
    rows = [
        [experiment, side.method, at, *compared]
        for experiment in REAL
        for side in (TS, FTS, RGPE, TAF)
        for at in BETWEEN
        if (default := groups.get((experiment, "default"))) is not None
        and (paper := groups.get((experiment, "paper"))) is not None
        and (compared := _lead(default, paper, side, at))
    ]
    columns = ("experiment", "method", "iteration", "default", "paper", "lead", "low", "high", "n")
    return Table.from_rows(columns, rows)


def _lead(default: Runs, paper: Runs, side: Side, at: int) -> list[Cell]:
    """Means of the two, and the lead of the first; nothing if they share fewer than two starts."""
    ours, theirs = (_by_start(runs, side, at) for runs in (default, paper))
    shared = [start for start in ours if start in theirs]
    if len(shared) < 2:
        return []
    a, b = (np.array([side[start] for start in shared]) for side in (ours, theirs))
    sign, _ = scale(default)
    effect = paired(sign * a, sign * b)
    return [float(a.mean()), float(b.mean()), effect.value, effect.low, effect.high, effect.n]


def _by_start(runs: Runs, side: Side, at: int) -> dict[tuple[Cell, ...], float]:
    """The side's best score after so many iterations, for each target and repeat."""
    of = side.of(runs)
    starts = zip(*(runs.label(name)[of].tolist() for name in UNIT), strict=True)
    found: dict[tuple[Cell, ...], list[float]] = {}
    for start, best in zip(starts, runs.best[of, min(at, runs.T)].tolist(), strict=True):
        found.setdefault(start, []).append(best)
    return {start: float(np.mean(values)) for start, values in found.items()}


def _finding(claim: Sentence, experiment: str, preset: str, answer: Answer) -> Finding:
    return Finding(
        id=claim.id,
        section=claim.section,
        figure=claim.figure,
        claim=claim.text,
        experiment=experiment,
        preset=preset,
        verdict=answer.verdict,
        measure=answer.measure,
        note=answer.note,
        said=answer.said,
        **msgspec.structs.asdict(answer.effect),
    )


def _consistent(real: Sequence[Runs]) -> Answer | None:
    """Whether FTS beats all others on all data; low: parts that hold, high: not refuted ones."""
    named = [
        (f"{runs.experiment} against {rival}", answer)
        for runs in real
        for rival in ("TS", "RGPE", "TAF")
        if (answer := ahead(runs, ours=FTS, theirs=Side(rival), by=score)) is not None
    ]
    if len(real) < 2 or not named:
        return None
    n, verdicts = len(named), [answer.verdict for _, answer in named]
    effect = Effect(
        float(sum(answer.effect.value > 0 for _, answer in named)),
        float(verdicts.count("holds")),
        float(n - verdicts.count("does not hold")),
        n,
    )
    missing: list[Verdict] = ["not decided"] * (3 * len(REAL) - n)
    notes = [", ".join(f"{name}: {answer.verdict}" for name, answer in named)]
    if missing:
        notes.append(f"{len(missing)} of {3 * len(REAL)} comparisons were not run")
    said = (
        f"ahead in {effect.value:.0f} of {n} comparisons: {verdicts.count('holds')} hold, "
        f"{verdicts.count('does not hold')} do not"
    )
    measure = f"comparisons, of {n}, in which FTS is ahead"
    return Answer(all_of([*verdicts, *missing]), effect, measure, sentence(notes), said=said)


def _seconds(runs: Runs) -> Floats:
    return runs.clock[:, -1]


def _sent(runs: Runs) -> Floats:
    return runs.sent


TS, FTS, RGPE, TAF = map(Side, ("TS", "FTS", "RGPE", "TAF"))
ONCE, GROWING = Side("FTS", M=100), Side("FTS", M=100, every=1)
NEAR_40, NEAR_100 = (Side("FTS", t_n=t_n, d_n=0.02, fewest=25) for t_n in (40, 100))
FAR, FAR_FASTER = (Side("FTS", t_n=100, d_n=1.2, power=power) for power in (0.5, 2.0))


def _leads(*pairs: tuple[Side, Side]) -> Test:
    """Every first side is ahead of its second, by the best score in the end."""
    parts = [partial(ahead, ours=ours, theirs=theirs, by=score) for ours, theirs in pairs]
    return parts[0] if len(parts) == 1 else partial(all_parts, parts=parts)


def _needs(what: str, of: Callable[[Runs], Floats], matters: float) -> Test:
    """Both others need many times as much."""
    need = partial(times, ours=FTS, what=what, of=of, matters=matters)
    return partial(all_parts, parts=[partial(need, theirs=theirs) for theirs in (RGPE, TAF)])


CLAIMS = (
    # Section 3.2
    Claim(
        id="message-length",
        section="3.2",
        figure="fig2",
        text="FTS needs M numbers from each agent, RGPE M + M², and TAF its incumbent besides.",
        experiments=REAL,
        test=message_lengths,
    ),
    *(
        Claim(
            id=f"{method.lower()}-linear-in-agents",
            section="3.2",
            figure="fig3d",
            text=f"The computation of {method} grows linearly in the number of agents.",
            experiments=("agents",),
            test=partial(growth, method=method, rule=linear, delta=LINEAR, last=10.0),
        )
        for method in ("RGPE", "TAF")
    ),
    Claim(
        id="practical-performance",
        section="3.2",
        figure="fig2",
        text="FTS outperforms both RGPE and TAF in practical performance.",
        experiments=REAL,
        test=_leads((FTS, RGPE), (FTS, TAF)),
    ),
    # Section 5, before 5.1
    Claim(
        id="consistent-with-growing-t_n",
        section="5",
        figure="fig4",
        text="FTS performs consistently whether messages are sent once or t_n grows: "
        "growing t_n costs nothing that matters.",
        experiments=REAL,
        test=partial(ahead, ours=GROWING, theirs=ONCE, by=score, rule=no_worse),
    ),
    # Section 5.1
    *(
        Claim(
            id=f"near-peers-help-{figure}",
            section="5.1",
            figure=figure,
            text=f"With d_n = 0.02 FTS performs better than TS (t_n = {side.t_n}).",
            experiments=("synthetic",),
            test=partial(ahead, ours=side, theirs=TS, by=speed),
        )
        for figure, side in (("fig1a", NEAR_40), ("fig1b", NEAR_100))
    ),
    Claim(
        id="few-observations-M-negligible",
        section="5.1",
        figure="fig1a",
        text="When t_n is small (40), the effect of M is negligible.",
        experiments=("synthetic",),
        test=partial(across_features, side=NEAR_40, rule=comparable),
    ),
    Claim(
        id="few-features-M-negligible",
        section="5.1",
        figure="fig1a",
        text="Beyond the paper: the same from far fewer features than the kernel needs (M = 10).",
        experiments=("synthetic",),
        test=partial(
            across_features, side=msgspec.structs.replace(NEAR_40, fewest=0), rule=comparable
        ),
    ),
    Claim(
        id="many-observations-M-matters",
        section="5.1",
        figure="fig1b",
        text="When t_n is large (100), increasing M leads to evident improvement.",
        experiments=("synthetic",),
        test=partial(across_features, side=NEAR_100, rule=superior),
    ),
    Claim(
        id="more-observations-help",
        section="5.1",
        figure="fig1b",
        text="With d_n = 0.02 and M = 100, t_n = 100 improves on t_n = 40.",
        experiments=("synthetic",),
        test=partial(
            ahead,
            ours=msgspec.structs.replace(NEAR_100, M=100),
            theirs=msgspec.structs.replace(NEAR_40, M=100),
            by=speed,
        ),
    ),
    Claim(
        id="far-peers-comparable",
        section="5.1",
        figure="fig1c",
        text="Even when all others are heterogeneous (d_n = 1.2), FTS is comparable to TS: "
        "no worse by what matters.",
        experiments=("synthetic",),
        test=partial(both_ways, ours=FAR, theirs=TS, rule=no_worse),
    ),
    Claim(
        id="far-peers-slow",
        section="5.1",
        figure="fig1c",
        text="With d_n = 1.2, FTS may converge slightly slower than TS if p_t grows slowly "
        "(1 − 1/√t).",
        experiments=("synthetic",),
        test=partial(both_ways, ours=TS, theirs=FAR),
    ),
    Claim(
        id="faster-schedule-helps",
        section="5.1",
        figure="fig1c",
        text="With d_n = 1.2, making p_t grow faster (1 − 1/t²) improves FTS.",
        experiments=("synthetic",),
        test=partial(both_ways, ours=FAR_FASTER, theirs=FAR),
    ),
    Claim(
        id="faster-schedule-matches",
        section="5.1",
        figure="fig1c",
        text="With d_n = 1.2, making p_t grow faster (1 − 1/t²) allows FTS to match TS.",
        experiments=("synthetic",),
        test=partial(both_ways, ours=FAR_FASTER, theirs=TS, rule=no_worse),
    ),
    # Section 5.2
    *(
        Claim(
            id=f"beats-{rival.method.lower()}",
            section="5.2",
            figure="fig2",
            text=f"FTS outperforms {rival.method} in terms of the performance metric.",
            experiments=REAL,
            test=_leads((FTS, rival)),
        )
        for rival in (RGPE, TAF, TS)
    ),
    Claim(
        id="fewer-parameters",
        section="5.2",
        figure="fig2",
        text="FTS outperforms both RGPE and TAF in communication efficiency.",
        experiments=REAL,
        test=_needs("numbers a peer sends", _sent, FEWER),
    ),
    Claim(
        id="shorter-time",
        section="5.2",
        figure="fig3",
        text="FTS completes 50 iterations in significantly shorter time than RGPE and TAF.",
        experiments=REAL,
        test=_needs("CPU seconds (evaluations left out)", _seconds, FASTER),
    ),
    Claim(
        id="fastest-convergence",
        section="5.2",
        figure="fig3",
        text="FTS achieves the fastest convergence among all methods (first target, M = 100).",
        experiments=REAL,
        test=partial(
            all_parts,
            parts=[
                partial(sooner, ours=ONCE, theirs=theirs)
                for theirs in (TS, Side("RGPE", M=100), Side("TAF", M=100))
            ],
        ),
    ),
    Claim(
        id="fts-level-in-agents",
        section="5.2",
        figure="fig3d",
        text="Increasing the number of agents has minimal effect on the run time of FTS.",
        experiments=("agents",),
        test=partial(growth, method="FTS", rule=comparable, delta=GROWTH),
    ),
    *(
        Claim(
            id=f"{method.lower()}-grows-with-agents",
            section="5.2",
            figure="fig3d",
            text=f"Increasing the number of agents leads to growing cost for {method}.",
            experiments=("agents",),
            test=partial(growth, method=method, rule=superior, delta=GROWTH),
        )
        for method in ("RGPE", "TAF")
    ),
    # Appendix D.2.1
    Claim(
        id="beats-ts-in-both-settings",
        section="D",
        figure="fig4",
        text="FTS outperforms TS in both settings: messages sent once, and growing t_n.",
        experiments=REAL,
        test=_leads((ONCE, TS), (GROWING, TS)),
    ),
    Claim(
        id="growing-t_n-improves",
        section="D",
        figure="fig4",
        text="With growing t_n the performance in activity recognition improves.",
        experiments=("glass", "har"),
        test=_leads((GROWING, ONCE)),
    ),
    Claim(
        id="growing-t_n-comparable",
        section="D",
        figure="fig4",
        text="With growing t_n the performance in landmine detection is comparable.",
        experiments=("landmine",),
        test=partial(ahead, ours=GROWING, theirs=ONCE, by=score, rule=comparable),
    ),
    # Appendix D.2.3
    Claim(
        id="some-targets-better",
        section="D",
        figure="appendix",
        text="FTS performs better than TS for some of the other agents, comparably for others.",
        experiments=REAL,
        test=partial(some_targets, ours=ONCE, theirs=TS),
    ),
)

CONSISTENT = Sentence(  # about all data sets at once
    id="consistent-advantage",
    section="5.2",
    figure="fig2",
    text="FTS has a consistent performance advantage across all real-world experiments.",
)
