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
        level = noisy(levels[name], spread=0.002, seed=len(name))
        return arm(method, level, experiment="synthetic", targets=functions, **settings)  # type: ignore[arg-type]

    near = [
        one(f"a{M}" if t_n == 40 else f"b{M}", M=M, t_n=t_n, d_n=0.02, power=0.5)
        for t_n, M in ((40, 10), (40, 25), (40, 100), (100, 25), (100, 100))
    ]
    far = [one(f"c{power}", t_n=100, d_n=1.2, power=power) for power in (0.5, 2.0)]
    return table(one("TS", "TS"), *near, *far)


AS_IN_THE_PAPER = {
    "TS": 0.30, "a10": 0.20, "a25": 0.20, "a100": 0.20, "b25": 0.20, "b100": 0.10,
    "c0.5": 0.3025, "c2.0": 0.30,
}  # fmt: skip


@pytest.mark.parametrize("experiment", ["landmine", "glass", "har"])
def test_a_planted_advantage_is_found_in_either_direction(experiment: str) -> None:
    findings = judge(real(experiment, lead=0.03))
    for id in ("beats-rgpe", "beats-taf", "beats-ts"):
        finding = found(findings, id, experiment)
        assert finding.verdict == "holds"
        assert finding.value == pytest.approx(0.03, abs=0.002)
        assert finding.n == 30
    behind = judge(real(experiment, lead=-0.03))
    for id in ("beats-rgpe", "beats-taf", "beats-ts"):
        finding = found(behind, id, experiment)
        assert finding.verdict == "does not hold"
        assert finding.value == pytest.approx(-0.03, abs=0.002)


def test_messages_are_counted() -> None:
    fine = judge(real("landmine", 0.0))
    finding = found(fine, "message-length")
    assert (finding.verdict, finding.value, finding.n) == ("holds", 1.0, 180)
    fewer = found(fine, "fewer-parameters-than-rgpe")
    assert fewer.verdict == "holds"
    assert fewer.value == pytest.approx(math.sqrt(51 * 101), rel=1e-6)
    longer = arm("FTS", 0.5, parameters=101), arm("RGPE", 0.5), arm("TAF", 0.5)
    assert found(judge(table(*longer)), "message-length").verdict == "does not hold"


def test_run_times_are_compared_as_ratios() -> None:
    finding = found(judge(real("landmine", 0.0)), "shorter-time-than-rgpe")
    assert finding.verdict == "holds"
    assert finding.value == pytest.approx(5.0)


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
    assert found(root, "rgpe-linear-in-agents", "agents").value == pytest.approx(0.5)
    assert found(root, "fts-level-in-agents", "agents").verdict == "does not hold"


def test_section_5_1_as_the_paper_has_it() -> None:
    findings = [f for f in judge(synthetic(AS_IN_THE_PAPER)) if f.section == "5.1"]
    assert len(findings) == 14
    assert {f.id: f.verdict for f in findings if f.verdict != "holds"} == {}
    assert {f.n for f in findings} == {12}  # functions, not runs


def test_section_5_1_otherwise() -> None:
    levels = AS_IN_THE_PAPER | {
        "a10": 0.4, "a25": 0.4, "a100": 0.32, "b25": 0.31, "b100": 0.35, "c0.5": 0.2, "c2.0": 0.4
    }  # fmt: skip
    findings = judge(synthetic(levels))
    verdicts = {f.id: f.verdict for f in findings}
    for name in ("mean", "final"):  # ahead is no worse
        assert verdicts.pop(f"far-peers-comparable-{name}") == "holds"
    assert {*verdicts.values()} == {"does not hold"}


def test_fastest_is_judged_at_equal_time() -> None:
    def rising(method: str, seconds: float) -> list[tuple[Cell, ...]]:
        rows = arm(method, 0.0, seconds=seconds, targets=2, repeats=6)
        best = COLUMNS.index("best")
        return [(*r[:best], 0.1 * r[best - 1], *r[best + 1 :]) for r in rows]  # type: ignore[operator]

    runs = table(rising("FTS", 1), rising("TS", 2), rising("RGPE", 4), rising("TAF", 8))
    finding = found(judge(runs), "faster-convergence-than-ts")
    # 4 s: FTS has 0, 0.1, 0.2, 0.3 for a second each; TS 0 and 0.1 for two each; the others 0
    assert finding.value == pytest.approx(0.15 - 0.05)
    assert finding.verdict == "holds"
    assert finding.n == 6  # the first target's repeats


@pytest.mark.parametrize(
    ("leads", "verdict"),
    [
        ((0, 0, 0.1, 0, 0, 0), "holds"),
        ((0.1, 0, 0, 0, 0, 0), "does not hold"),  # the first target is not one of the others
        ((0, 0.1, -0.1, 0, 0, 0), "does not hold"),
        ((0, 0.1, -0.005, 0, 0, 0), "holds"),
    ],
)
def test_some_targets_may_gain_and_none_may_lose(leads: Sequence[float], verdict: str) -> None:
    fts = noisy(0.5, spread=0.001, seed=1)
    runs = table(
        arm("TS", noisy(0.5, spread=0.001)),
        arm("FTS", lambda target, repeat: fts(target, repeat) + leads[target]),
    )
    finding = found(judge(runs), "some-targets-better")
    assert finding.verdict == verdict
    assert finding.n == 5


def test_what_was_not_run_is_not_judged() -> None:
    assert judge(table()) == []
    assert judge(table(arm("TS", 0.5), arm("TS", 0.5, experiment="har"))) == []
    ids = {f.id for f in judge(table(arm("TS", 0.5), arm("FTS", 0.5)))}
    sent_once = {"beats-ts-sent-once", "faster-convergence-than-ts"}
    assert ids == {"beats-ts", "some-targets-better"} | sent_once
    initial = table(arm("TS", 0.5), arm("FTS", 0.5)).where(iteration=0)
    assert judge(initial) == []


def test_only_complete_pairs_count() -> None:
    rows = [*arm("TS", noisy(0.5, seed=1)), *arm("FTS", noisy(0.6, seed=2))]
    whole = found(judge(table(rows)), "beats-ts")
    cut = [*rows[:-2], *arm("RGPE", 0.5, repeats=1)]  # FTS's last run stops before the end
    assert found(judge(table(cut)), "beats-ts").n == whole.n - 1
    assert found(judge(table(cut)), "beats-rgpe").n == 6


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
    assert {f.section for f in findings} == {"3.2", "5", "5.1", "5.2", "D"}
    assert all(f.low <= f.value <= f.high for f in findings)
