"""Claims on made-up runs: what was planted is found, what is missing is left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from paper.made_runs import COLUMNS, Level, arm, nan, table

from fedbo.table import Cell, Table
from fedbo_paper.experiments.claims import CLAIMS, Finding, judge


def noisy(centre: float, spread: float = 0.002, seed: int = 0) -> Level:
    """A level that differs from run to run; targets differ much more, but for all arms alike."""
    noise = np.random.default_rng(seed).standard_normal((50, 10))
    return lambda target, repeat: centre + 0.05 * target + spread * noise[target, repeat]


def found(
    findings: Sequence[Finding], id: str, experiment: str = "landmine", preset: str = "paper"
) -> Finding:
    (finding,) = [f for f in findings if (f.id, f.experiment, f.preset) == (id, experiment, preset)]
    return finding


def real(experiment: str, lead: float, **settings: str) -> Table:
    """All arms of a real experiment, FTS ahead of each other method by ``lead`` in what counts."""
    ahead = lead if experiment == "landmine" else -lead
    arms = [arm("TS", noisy(0.5, seed=1), experiment=experiment, **settings)]
    for k, M in enumerate((50, 100)):
        for i, method in enumerate(("FTS", "RGPE", "TAF")):
            level = noisy(0.5 + ahead * (method == "FTS"), seed=10 * k + i)
            cost = {"FTS": 0.01, "RGPE": 0.05, "TAF": 0.1}[method]
            arms.append(arm(method, level, M=M, seconds=cost, experiment=experiment, **settings))
    level = noisy(0.5 + 2 * ahead, seed=99)
    arms.append(arm("FTS", level, every=1, seconds=nan, experiment=experiment, **settings))
    return table(*arms)


def synthetic(levels: dict[str, float], functions: int = 12) -> Table:
    """Figure 1 with these mean regrets, by a name for each curve."""

    def one(name: str, method: str = "FTS", **settings: float) -> list[tuple[Cell, ...]]:
        level = noisy(levels[name], spread=0.002, seed=sum(map(ord, name)))
        return arm(method, level, experiment="synthetic", targets=functions, **settings)  # type: ignore[arg-type]

    near = [
        one(f"a{M}" if t_n == 40 else f"b{M}", M=M, t_n=t_n, d_n=0.02, power=0.5)
        for t_n, M in ((40, 10), (40, 25), (40, 100), (100, 25), (100, 100))
    ]
    far = [
        one(f"{letter}{power}", t_n=t_n, d_n=1.2, power=power)
        for letter, t_n in (("c", 40), ("d", 100))
        for power in (0.5, 2.0)
    ]
    new = [
        one(f"{letter}new", t_n=t_n, d_n=0.02, power=0.5, every=1)
        for letter, t_n in (("a", 40), ("b", 100))
    ]
    return table(one("TS", "TS"), *near, *far, *new)


AS_IN_THE_PAPER = {
    "TS": 0.30, "a10": 0.20, "a25": 0.20, "a100": 0.20, "b25": 0.20, "b100": 0.10,
    "c0.5": 0.3025, "c2.0": 0.30, "d0.5": 0.3025, "d2.0": 0.30, "anew": 0.20, "bnew": 0.10,
}  # fmt: skip


@pytest.mark.parametrize("experiment", ["landmine", "glass", "har"])
def test_a_planted_advantage_is_found_in_either_direction(experiment: str) -> None:
    findings = judge(real(experiment, lead=0.03))
    ids = [f"beats-{rival}-{after}" for rival in ("rgpe", "taf", "ts") for after in (10, 20, 50)]
    for id in ids:
        finding = found(findings, id, experiment)
        assert finding.verdict == "holds"
        assert finding.value == pytest.approx(0.03, abs=0.002)
        assert finding.n == 30
    behind = judge(real(experiment, lead=-0.03))
    for id in ids:
        finding = found(behind, id, experiment)
        assert finding.verdict == "does not hold"
        assert finding.value == pytest.approx(-0.03, abs=0.002)


def test_scores_are_those_after_10_20_and_50_iterations() -> None:
    """FTS is ahead at first, and behind from iteration 30 on."""
    runs = table(
        arm("TS", noisy(0.5, seed=1)),
        arm("FTS", noisy(0.53, seed=2), later=-0.06),
        arm("RGPE", 0.5),
    )
    verdicts = {after: found(judge(runs), f"beats-ts-{after}").verdict for after in (10, 20, 50)}
    assert verdicts == {10: "holds", 20: "holds", 50: "does not hold"}
    measure = found(judge(runs), "beats-ts-20").measure
    assert "AUC after 20 iterations" in measure
    assert measure.endswith("FTS followed 1.0 messages a run, and none in 0% of the runs")


def test_mean_and_final_regret_are_told_apart() -> None:
    """FTS with far peers has less regret until iteration 30, and .001 more from then on."""

    def level(centre: float, seed: int) -> Level:
        return noisy(centre, spread=1e-4, seed=seed)

    shared = {"experiment": "synthetic", "targets": 12}
    far = shared | {"t_n": 100, "d_n": 1.2}
    arms = [
        arm("TS", level(0.1, 1), **shared),  # type: ignore[arg-type]
        arm("FTS", level(0.05, 2), power=0.5, later=0.051, **far),  # type: ignore[arg-type]
        arm("FTS", level(0.1, 3), power=2.0, **far),  # type: ignore[arg-type]
    ]
    findings = judge(table(*arms))
    verdicts = {f.id.removesuffix("-100"): f.verdict for f in findings if f.section == "5.1"}
    assert verdicts == {
        "far-peers-comparable-mean": "holds",
        "far-peers-comparable-final": "does not hold",
        "far-peers-slow-mean": "not seen",
        "far-peers-slow-final": "seen",
        "far-peers-help-mean": "holds",
        "far-peers-help-final": "does not hold",
        "faster-schedule-helps-mean": "does not hold",
        "faster-schedule-helps-final": "holds",
        "faster-schedule-matches-mean": "holds",
        "faster-schedule-matches-final": "holds",
    }


def test_the_length_of_a_message_is_what_is_sent_and_no_statistic() -> None:
    """Of a covariance one triangle is sent: 1 + M + M (M + 1) / 2 numbers, with the incumbent."""
    fewer = found(judge(real("landmine", 0.0)), "fewer-parameters-than-rgpe")
    assert fewer.verdict == "by definition"
    lengths = {M: (1 + M + M * (M + 1) / 2) / M for M in (50, 100)}
    assert (fewer.low, fewer.high) == pytest.approx((lengths[50], lengths[100]))
    assert lengths[100] == pytest.approx(51.5, abs=0.02)


def test_run_times_are_compared_as_ratios() -> None:
    finding = found(judge(real("landmine", 0.0)), "shorter-time-than-rgpe")
    assert finding.verdict == "holds"
    assert finding.value == pytest.approx(5.0, rel=0.01)


def agents(seconds: Callable[[str, int], float]) -> Table:
    arms = [
        arm(method, 0.5, experiment="agents", N=N, seconds=seconds(method, N), targets=1, repeats=3)
        for method in ("FTS", "RGPE", "TAF")
        for N in (7, 28, 100, 1000)
    ]
    return table(*arms)


def test_growth_with_the_number_of_agents() -> None:
    findings = judge(agents(lambda method, N: 0.01 if method == "FTS" else 0.05 + 0.001 * N))
    verdicts = {f.id: f.verdict for f in findings if f.figure == "fig3d"}
    assert verdicts == {
        "rgpe-linear-in-agents": "holds",
        "taf-linear-in-agents": "holds",
        "fts-level-in-agents": "holds",
    }
    assert found(findings, "rgpe-linear-in-agents", "agents").measure.endswith("100 to 1000")
    root = judge(agents(lambda method, N: 0.01 * math.sqrt(N)))
    assert found(root, "rgpe-linear-in-agents", "agents").verdict == "does not hold"
    assert found(root, "rgpe-linear-in-agents", "agents").value == pytest.approx(0.5, abs=0.01)
    assert found(root, "fts-level-in-agents", "agents").verdict == "does not hold"


def test_section_5_1_as_the_paper_has_it() -> None:
    findings = [f for f in judge(synthetic(AS_IN_THE_PAPER)) if f.section == "5.1"]
    assert len(findings) == 26
    verdicts = {f.id: f.verdict for f in findings if f.verdict != "holds"}
    for t_n in (40, 100):
        for name in ("mean", "final"):
            assert verdicts.pop(f"far-peers-slow-{name}-{t_n}") == "seen"
            assert verdicts.pop(f"far-peers-help-{name}-{t_n}") == "does not hold"
    # δ of the final regret is .0005: .0025 more matters, and the noise of .002 decides nothing
    assert all("-final-" in id for id in verdicts)
    assert {f.n for f in findings} == {12}  # functions, not runs


def test_section_5_1_otherwise() -> None:
    levels = AS_IN_THE_PAPER | {
        "a10": 0.4, "a25": 0.4, "a100": 0.32, "b25": 0.31, "b100": 0.35, "c0.5": 0.2, "c2.0": 0.4,
        "d0.5": 0.2, "d2.0": 0.4,
    }  # fmt: skip
    verdicts = {f.id: f.verdict for f in judge(synthetic(levels)) if f.section == "5.1"}
    for t_n in (40, 100):
        for name in ("mean", "final"):  # ahead is no worse
            assert verdicts.pop(f"far-peers-comparable-{name}-{t_n}") == "holds"
            assert verdicts.pop(f"far-peers-help-{name}-{t_n}") == "holds"
            assert verdicts.pop(f"far-peers-slow-{name}-{t_n}") == "not seen"
    assert {*verdicts.values()} == {"does not hold"}


def test_messages_once_or_always_are_compared_at_the_same_t_n() -> None:
    alike = judge(synthetic(AS_IN_THE_PAPER))
    apart = judge(synthetic(AS_IN_THE_PAPER | {"bnew": 0.05}))
    for t_n, verdict in ((40, "holds"), (100, "does not hold")):
        id = f"messages-once-or-always-{t_n}"
        assert found(alike, id, "synthetic").verdict == "holds"
        assert found(apart, id, "synthetic").verdict == verdict


def test_no_regret_is_a_regret_per_query_that_falls() -> None:
    runs = synthetic(AS_IN_THE_PAPER)
    regret, t = runs["simple_regret"], runs["iteration"]
    for cumulative, verdict in (
        (np.minimum(t, 25) * regret, "holds"),
        (t**2 / 50 * regret, "does not hold"),
    ):
        columns = {name: runs[name] for name in runs.columns} | {"cumulative_regret": cumulative}
        finding = found(judge(Table(columns)), "no-regret-far", "synthetic")
        assert finding.verdict == verdict


def test_fastest_is_judged_at_equal_time() -> None:
    def rising(method: str, seconds: float) -> list[tuple[Cell, ...]]:
        rows = arm(method, 0.0, seconds=seconds - 0.01, targets=2, repeats=6, iterations=4)
        best, slow, t = map(COLUMNS.index, ("best", "repeat", "iteration"))
        # an evaluation takes .01 s; repeats differ a little, so that the interval has a width
        return [
            (*r[:best], 0.1 * r[t] * (1 + 0.01 * r[slow]), *r[best + 1 :])  # type: ignore[operator]
            for r in rows
        ]

    runs = table(rising("FTS", 1), rising("TS", 2), rising("RGPE", 4), rising("TAF", 8))
    finding = found(judge(runs), "faster-convergence-than-ts")
    # 4 s: FTS has 0, 0.1, 0.2, 0.3 for a second each; TS 0 and 0.1 for two each; the others 0
    assert finding.value == pytest.approx((0.15 - 0.05) * 1.025, rel=0.01)
    assert finding.measure.endswith("evaluations counted")
    assert finding.verdict == "holds"
    assert finding.n == 6  # the first target's repeats


@pytest.mark.parametrize(
    ("leads", "verdict"),
    [
        ((0, 0, 0.1, 0, 0, 0), "holds"),
        ((0.1, 0, 0, 0, 0, 0), "does not hold"),  # the first target is not one of the others
        ((0, 0.1, -0.1, 0, 0, 0), "does not hold"),
        ((0, 0.1, -0.005, 0, 0, 0), "holds"),
        ((0, 0.1, nan, 0, 0, 0), "not decided"),  # one is undecided, so not known to be no worse
    ],
)
def test_some_targets_may_gain_and_none_may_lose(leads: Sequence[float], verdict: str) -> None:
    fts = noisy(0.5, spread=0.001, seed=1)

    def lead(target: int, repeat: int) -> float:
        return 0.05 * (repeat - 2) if math.isnan(leads[target]) else leads[target]

    runs = table(
        arm("TS", noisy(0.5, spread=0.001)),
        arm("FTS", lambda target, repeat: fts(target, repeat) + lead(target, repeat)),
    )
    finding = found(judge(runs), "some-targets-better-50")
    assert finding.verdict == verdict
    if verdict != "not decided" and leads[0] == 0:  # the lead of the target that decides
        decides = 2 if leads[2] == -0.1 else int(np.argmax(leads))
        assert f"for target {decides}" in finding.measure
        assert finding.value == pytest.approx(leads[decides], abs=0.002)
    assert finding.n == 5


def test_what_was_not_run_is_not_judged() -> None:
    assert judge(table()) == []
    assert judge(table(arm("TS", 0.5), arm("TS", 0.5, experiment="har"))) == []
    ids = {f.id for f in judge(table(arm("TS", 0.5), arm("FTS", 0.5)))}
    names = ("beats-ts", "some-targets-better", "beats-ts-sent-once")
    scores = {f"{name}-{after}" for name in names for after in (10, 20, 50)}
    assert ids == scores | {"faster-convergence-than-ts"}
    short = judge(table(arm("TS", 0.5, iterations=10), arm("FTS", 0.5, iterations=10)))
    assert not any(f.id.endswith(("-20", "-50")) for f in short)
    initial = table(arm("TS", 0.5), arm("FTS", 0.5)).where(iteration=0)
    assert judge(initial) == []


def test_only_complete_pairs_count() -> None:
    rows = [*arm("TS", noisy(0.5, seed=1)), *arm("FTS", noisy(0.6, seed=2))]
    whole = found(judge(table(rows)), "beats-ts-10")
    cut = [*rows[:-2], *arm("RGPE", 0.5, repeats=1)]  # FTS's last run stops before the end
    assert found(judge(table(cut)), "beats-ts-10").n == whole.n - 1
    assert found(judge(table(cut)), "beats-rgpe-10").n == 6


def test_two_runs_of_the_same_kind_are_refused() -> None:
    runs = table(arm("TS", 0.5), arm("FTS", 0.5, power=0.5), arm("FTS", 0.5, power=2.0))
    with pytest.raises(ValueError, match=r"landmine, preset paper: FTS.* has two runs"):
        judge(runs)


def test_every_claim_is_judged_on_every_experiment_it_is_about() -> None:
    parts = [real(e, 0.03) for e in ("landmine", "glass", "har")]
    linear = agents(lambda method, N: 0.01 * N)
    findings = judge(Table.join([*parts, synthetic(AS_IN_THE_PAPER), linear]))
    expected = {(claim.id, e) for claim in CLAIMS for e in claim.experiments}
    assert {(f.id, f.experiment) for f in findings} == expected
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert [f.section for f in findings] == sorted(f.section for f in findings)
    assert {f.section for f in findings} == {"3.1", "3.2", "4", "5", "5.1", "5.2", "D"}
    assert all(f.low <= f.value <= f.high for f in findings)
