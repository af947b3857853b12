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
    FEWER,
    GROWTH,
    LINEAR,
    Answer,
    Test,
    across_features,
    ahead,
    end,
    growth,
    linear,
    message_lengths,
    score,
    some_targets,
    sooner,
    speed,
    times,
)
from fedbo_paper.experiments.sides import Runs, Side, groups_of
from fedbo_paper.experiments.spec import REAL
from fedbo_paper.harness.intervals import Verdict, comparable, no_worse, superior


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

    ``value``, ``low``, ``high`` and ``n`` are the effect, its interval and the number of units.
    """

    experiment: str
    preset: str
    verdict: Verdict
    measure: str
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
        **msgspec.structs.asdict(answer.effect),
    )


TS, FTS, RGPE, TAF = map(Side, ("TS", "FTS", "RGPE", "TAF"))
ONCE, GROWING = Side("FTS", M=100), Side("FTS", M=100, every=1)
NEAR_40, NEAR_100 = (Side("FTS", t_n=t_n, d_n=0.02, fewest=25) for t_n in (40, 100))
FAR, FAR_FASTER = (Side("FTS", t_n=100, d_n=1.2, power=power) for power in (0.5, 2.0))


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
    *_claims("3.2", "fig2", REAL, {
        "message-length": (
            "FTS needs M numbers from each agent, RGPE needs M + M², and TAF also needs the "
            "incumbent.",
            message_lengths,
        ),
    }),
    *_claims("3.2", "fig3d", _AGENTS, {
        f"{method.lower()}-linear-in-agents": (
            f"The computation of {method} grows linearly in the number of agents.",
            partial(growth, method=method, rule=linear, delta=LINEAR, last=10.0),
        )
        for method in ("RGPE", "TAF")
    }),
    *_claims("5", "fig4", REAL, {
        "consistent-with-growing-t_n": (
            "FTS performs consistently whether messages are sent once or t_n grows: "
            "with growing t_n it is not worse by a difference that matters.",
            partial(ahead, ours=GROWING, theirs=ONCE, by=score, rule=no_worse),
        ),
    }),
    *_claims("5.1", "fig1a", _SYNTHETIC, {
        "near-peers-help-fig1a": (
            "With d_n = 0.02, FTS performs better than TS (t_n = 40).",
            partial(ahead, ours=NEAR_40, theirs=TS, by=speed),
        ),
        "few-observations-M-negligible": (
            "When t_n is small (40), the effect of M is negligible.",
            partial(across_features, side=NEAR_40, rule=comparable),
        ),
        "few-features-M-negligible": (
            "Not in the paper: the effect of M is negligible even from M = 10, far fewer features "
            "than the kernel needs.",
            partial(
                across_features, side=msgspec.structs.replace(NEAR_40, fewest=0), rule=comparable
            ),
        ),
    }),
    *_claims("5.1", "fig1b", _SYNTHETIC, {
        "near-peers-help-fig1b": (
            "With d_n = 0.02, FTS performs better than TS (t_n = 100).",
            partial(ahead, ours=NEAR_100, theirs=TS, by=speed),
        ),
        "many-observations-M-matters": (
            "When t_n is large (100), increasing M leads to evident improvement.",
            partial(across_features, side=NEAR_100, rule=superior),
        ),
        "more-observations-help": (
            "With d_n = 0.02 and M = 100, t_n = 100 improves on t_n = 40.",
            partial(
                ahead,
                ours=msgspec.structs.replace(NEAR_100, M=100),
                theirs=msgspec.structs.replace(NEAR_40, M=100),
                by=speed,
            ),
        ),
    }),
    *(
        claim
        for name, by in (("mean", speed), ("final", end))
        for claim in _claims("5.1", "fig1c", _SYNTHETIC, {
            f"far-peers-comparable-{name}": (
                "Even when all other agents are heterogeneous (d_n = 1.2), FTS is comparable to "
                f"TS: it is not worse by a difference that matters ({name} regret).",
                partial(ahead, ours=FAR, theirs=TS, by=by, rule=no_worse),
            ),
            f"far-peers-slow-{name}": (
                "With d_n = 1.2, FTS may converge slightly slower than TS if p_t grows slowly "
                f"(1 − 1/√t; {name} regret).",
                partial(ahead, ours=TS, theirs=FAR, by=by),
            ),
            f"faster-schedule-helps-{name}": (
                f"With d_n = 1.2, FTS improves if p_t grows faster (1 − 1/t²; {name} regret).",
                partial(ahead, ours=FAR_FASTER, theirs=FAR, by=by),
            ),
            f"faster-schedule-matches-{name}": (
                f"With d_n = 1.2, FTS matches TS if p_t grows faster (1 − 1/t²; {name} regret).",
                partial(ahead, ours=FAR_FASTER, theirs=TS, by=by, rule=no_worse),
            ),
        })
    ),
    *_claims("5.2", "fig2", REAL, {
        f"beats-{rival.method.lower()}": (
            f"FTS outperforms {rival.method} in the performance metric.",
            partial(ahead, ours=FTS, theirs=rival, by=score),
        )
        for rival in (RGPE, TAF, TS)
    }),
    *_claims("5.2", "fig2", REAL, {
        f"fewer-parameters-than-{rival.method.lower()}": (
            f"FTS outperforms {rival.method} in communication efficiency.",
            partial(
                times,
                ours=FTS,
                theirs=rival,
                what="numbers that a peer sends",
                of=lambda runs: runs.sent,
                matters=FEWER,
            ),
        )
        for rival in (RGPE, TAF)
    }),
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
    *_claims("D", "fig4", REAL, {
        "beats-ts-sent-once": (
            "FTS outperforms TS if messages are sent once.",
            partial(ahead, ours=ONCE, theirs=TS, by=score),
        ),
        "beats-ts-growing-t_n": (
            "FTS outperforms TS with growing t_n.",
            partial(ahead, ours=GROWING, theirs=TS, by=score),
        ),
    }),
    *_claims("D", "fig4", ("glass", "har"), {
        "growing-t_n-improves": (
            "With growing t_n, the performance in activity recognition improves.",
            partial(ahead, ours=GROWING, theirs=ONCE, by=score),
        ),
    }),
    *_claims("D", "fig4", ("landmine",), {
        "growing-t_n-comparable": (
            "With growing t_n, the performance in landmine detection is comparable.",
            partial(ahead, ours=GROWING, theirs=ONCE, by=score, rule=comparable),
        ),
    }),
    *_claims("D", "appendix", REAL, {
        "some-targets-better": (
            "FTS performs better than TS for some of the other agents, and comparably for the "
            "rest.",
            partial(some_targets, ours=ONCE, theirs=TS),
        ),
    }),
)  # fmt: skip
