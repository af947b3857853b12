"""The paper's claims, each with a verdict on our runs.

`CLAIMS` lists the sentences of the paper by section and figure, the experiments that each is about,
and how it is judged (`answers`). The rules of the verdicts are in `fedbo_paper.harness.intervals`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec

from fedbo.table import Table
from fedbo_paper.experiments.answers import (
    FASTER,
    GROWTH,
    LINEAR,
    SCORES,
    Answer,
    Test,
    across_features,
    ahead,
    end,
    falls,
    growth,
    length_ratio,
    linear,
    some_targets,
    sooner,
    speed,
    times,
)
from fedbo_paper.experiments.sides import Runs, Side, groups_of
from fedbo_paper.experiments.spec import REAL
from fedbo_paper.harness.intervals import Verdict, comparable, no_worse, sighted, superior


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence of the paper, its section, and the figure that shows it."""

    id: str
    section: str
    figure: str
    claim: str


class Claim(Sentence, frozen=True, kw_only=True):
    """A sentence about each of some experiments, and how it is judged."""

    experiments: tuple[str, ...]
    test: Test


class Finding(Sentence, frozen=True, kw_only=True):
    """A claim, and what the runs of one experiment with one preset say about it.

    ``value``, ``low``, ``high`` and ``n`` are the effect, its interval and the number of units;
    ``matters`` is δ, the smallest difference that matters.
    """

    experiment: str
    preset: str
    verdict: Verdict
    measure: str
    matters: float
    value: float
    low: float
    high: float
    n: int


def judge(runs: Table) -> list[Finding]:
    """Judge every claim that these runs are evidence for, in the order of the paper's sections."""
    groups = groups_of(runs)
    findings = [
        _finding(claim, group, answer)
        for claim in CLAIMS
        for group in groups
        if group.experiment in claim.experiments and (answer := claim.test(group)) is not None
    ]
    return sorted(findings, key=lambda finding: finding.section)


def _finding(claim: Claim, group: Runs, answer: Answer) -> Finding:
    return Finding(
        **{name: getattr(claim, name) for name in Sentence.__struct_fields__},
        experiment=group.experiment,
        preset=group.preset,
        verdict=answer.verdict,
        measure=answer.measure,
        matters=answer.matters,
        **msgspec.structs.asdict(answer.effect),
    )


TS, FTS, RGPE, TAF = map(Side, ("TS", "FTS", "RGPE", "TAF"))
ONCE, GROWING = Side("FTS", M=100), Side("FTS", M=100, every=1)
#: Peers of the synthetic functions by t_n; far ones also by the power in p_t.
PEERS = (40, 100)
NEAR = {t_n: Side("FTS", t_n=t_n, d_n=0.02, fewest=25) for t_n in PEERS}
FAR, FAR_FASTER = (
    {t_n: Side("FTS", t_n=t_n, d_n=1.2, power=power) for t_n in PEERS} for power in (0.5, 2.0)
)


def _with(side: Side, **settings: int) -> Side:
    return msgspec.structs.replace(side, **settings)


def _claims(
    section: str,
    figure: str,
    experiments: tuple[str, ...],
    claims: Mapping[str, tuple[str, Test]],
) -> list[Claim]:
    return [
        Claim(
            id=id, section=section, figure=figure, claim=claim, experiments=experiments, test=test
        )
        for id, (claim, test) in claims.items()
    ]


_SYNTHETIC, _AGENTS = ("synthetic",), ("agents",)

CLAIMS = (
    *_claims("3.1", "fig1-messages", _SYNTHETIC, {
        f"messages-once-or-always-{t_n}": (
            "With many agents and uniform P_N, FTS performs similarly whether messages come once "
            f"or before every iteration (t_n fixed at {t_n}).",
            partial(
                ahead,
                ours=_with(NEAR[t_n], M=100, every=1),
                theirs=_with(NEAR[t_n], M=100),
                by=speed,
                rule=comparable,
            ),
        )
        for t_n in PEERS
    }),
    *_claims("3.2", "fig2", REAL, {
        f"fewer-parameters-than-{rival.method.lower()}": (
            f"FTS outperforms {rival.method} in communication efficiency: a peer sends M numbers, "
            "not M of a mean and M² of a covariance.",
            partial(length_ratio, ours=FTS, theirs=rival),
        )
        for rival in (RGPE, TAF)
    }),
    *_claims("3.2", "fig3d", _AGENTS, {
        f"{method.lower()}-linear-in-agents": (
            f"The computation of {method} grows linearly in the number of agents.",
            partial(growth, method=method, rule=linear, delta=LINEAR, last=10.0),
        )
        for method in ("RGPE", "TAF")
    }),
    *_claims("4", "fig1-cumulative", _SYNTHETIC, {
        f"no-regret-{name}": (
            "The regret of a query falls in a run, as it must if FTS achieves no regret however "
            f"different the others are ({words}).",
            partial(falls, side=side),
        )
        for name, words, side in (
            ("near", "d_n = 0.02, t_n = 100", _with(NEAR[100], M=100)),
            ("far", "d_n = 1.2, t_n = 100", FAR[100]),
        )
    }),
    *(
        claim
        for after, score in SCORES.items()
        for claim in _claims("5", "fig4", REAL, {
            f"consistent-with-growing-t_n-{after}": (
                "FTS performs consistently whether messages are sent once or t_n grows: "
                "with growing t_n it is not worse by a difference that matters "
                f"({after} iterations).",
                partial(ahead, ours=GROWING, theirs=ONCE, by=score, rule=no_worse),
            ),
        })
    ),
    *(
        claim
        for letter, t_n in zip("ab", PEERS, strict=True)
        for claim in _claims("5.1", f"fig1{letter}", _SYNTHETIC, {
            f"near-peers-help-{t_n}": (
                f"With d_n = 0.02, FTS performs better than TS (t_n = {t_n}).",
                partial(ahead, ours=NEAR[t_n], theirs=TS, by=speed),
            ),
        })
    ),
    *_claims("5.1", "fig1a", _SYNTHETIC, {
        "few-observations-M-negligible": (
            "When t_n is small (40), the effect of M is negligible.",
            partial(across_features, side=NEAR[40], rule=comparable),
        ),
        "few-features-M-negligible": (
            "Not in the paper: the effect of M is negligible even from M = 10, far fewer features "
            "than the kernel needs.",
            partial(across_features, side=_with(NEAR[40], fewest=0), rule=comparable),
        ),
    }),
    *_claims("5.1", "fig1b", _SYNTHETIC, {
        "many-observations-M-matters": (
            "When t_n is large (100), increasing M leads to evident improvement.",
            partial(across_features, side=NEAR[100], rule=superior),
        ),
        "more-observations-help": (
            "With d_n = 0.02 and M = 100, t_n = 100 improves on t_n = 40.",
            partial(
                ahead, ours=_with(NEAR[100], M=100), theirs=_with(NEAR[40], M=100), by=speed
            ),
        ),
    }),
    *(
        claim
        for letter, t_n in zip("cd", PEERS, strict=True)
        for name, by in (("mean", speed), ("final", end))
        for claim in _claims("5.1", f"fig1{letter}", _SYNTHETIC, {
            f"far-peers-comparable-{name}-{t_n}": (
                f"Even when all other agents are heterogeneous (d_n = 1.2, t_n = {t_n}), FTS is "
                "comparable to TS: it is not worse by a difference that matters "
                f"({name} regret).",
                partial(ahead, ours=FAR[t_n], theirs=TS, by=by, rule=no_worse),
            ),
            f"far-peers-slow-{name}-{t_n}": (
                "With d_n = 1.2, FTS may converge slightly slower than TS if p_t grows slowly "
                f"(1 − 1/√t; t_n = {t_n}, {name} regret).",
                partial(ahead, ours=TS, theirs=FAR[t_n], by=by, rule=sighted),
            ),
            f"far-peers-help-{name}-{t_n}": (
                "Not in the paper: far peers help, because a coin toss of ±d_n at every point "
                f"averages out in their fits (t_n = {t_n}, {name} regret).",
                partial(ahead, ours=FAR[t_n], theirs=TS, by=by),
            ),
            f"faster-schedule-helps-{name}-{t_n}": (
                "With d_n = 1.2, FTS improves if p_t grows faster "
                f"(1 − 1/t²; t_n = {t_n}, {name} regret).",
                partial(ahead, ours=FAR_FASTER[t_n], theirs=FAR[t_n], by=by),
            ),
            f"faster-schedule-matches-{name}-{t_n}": (
                "With d_n = 1.2, FTS matches TS if p_t grows faster "
                f"(1 − 1/t²; t_n = {t_n}, {name} regret).",
                partial(ahead, ours=FAR_FASTER[t_n], theirs=TS, by=by, rule=comparable),
            ),
        })
    ),
    *(
        claim
        for rival in (RGPE, TAF, TS)
        for after, score in SCORES.items()
        for claim in _claims("5.2", "fig2", REAL, {
            f"beats-{rival.method.lower()}-{after}": (
                f"FTS outperforms {rival.method} in the performance metric ({after} iterations).",
                partial(ahead, ours=FTS, theirs=rival, by=score),
            ),
        })
    ),
    *_claims("5.2", "fig3", REAL, {
        f"shorter-time-than-{rival.method.lower()}": (
            f"FTS completes 50 iterations in significantly shorter time than {rival.method}.",
            partial(
                times,
                ours=FTS,
                theirs=rival,
                what="CPU seconds without evaluations",
                of=lambda runs: runs.clock[:, -1],
                matters=FASTER,
            ),
        )
        for rival in (RGPE, TAF)
    }),
    *_claims("5.2", "fig3", REAL, {
        f"faster-convergence-than-{rival.method.lower()}": (
            f"FTS converges faster than {rival.method} (first target, M = 100).",
            partial(sooner, ours=ONCE, theirs=rival),
        )
        for rival in (TS, Side("RGPE", M=100), Side("TAF", M=100))
    }),
    *_claims("5.2", "fig3d", _AGENTS, {
        "fts-level-in-agents": (
            "The number of agents has minimal effect on the run time of FTS.",
            partial(growth, method="FTS", rule=comparable, delta=GROWTH),
        ),
    }),
    # Appendix D.2.1 has figure 4, appendix D.2.3 the other targets
    *(
        claim
        for after, score in SCORES.items()
        for experiments, claims in (
            (REAL, {
                f"beats-ts-sent-once-{after}": (
                    f"FTS outperforms TS if messages are sent once ({after} iterations).",
                    partial(ahead, ours=ONCE, theirs=TS, by=score),
                ),
                f"beats-ts-growing-t_n-{after}": (
                    f"FTS outperforms TS with growing t_n ({after} iterations).",
                    partial(ahead, ours=GROWING, theirs=TS, by=score),
                ),
            }),
            (("glass", "har"), {
                f"growing-t_n-improves-{after}": (
                    "With growing t_n, the performance in activity recognition improves "
                    f"({after} iterations).",
                    partial(ahead, ours=GROWING, theirs=ONCE, by=score),
                ),
            }),
            (("landmine",), {
                f"growing-t_n-comparable-{after}": (
                    "With growing t_n, the performance in landmine detection is comparable "
                    f"({after} iterations).",
                    partial(ahead, ours=GROWING, theirs=ONCE, by=score, rule=comparable),
                ),
            }),
        )
        for claim in _claims("D", "fig4", experiments, claims)
    ),
    *(
        claim
        for after, score in SCORES.items()
        for claim in _claims("D", "appendix", REAL, {
            f"some-targets-better-{after}": (
                "FTS performs better than TS for some of the other agents, and comparably for the "
                f"rest ({after} iterations).",
                partial(some_targets, ours=ONCE, theirs=TS, by=score),
            ),
        })
    ),
)  # fmt: skip
