"""The paper's settings: every constant, what messages are made of, and their own parts."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.stats import chi2, kstest

import fedbo_paper.preset
from fedbo.agent import Agent
from fedbo.federation import Federation
from fedbo.federation.shared import Shared
from fedbo.model.argmax import SampledFunction, argmax
from fedbo.model.features import Features
from fedbo.model.fit import Fit
from fedbo.model.gp import Hyper
from fedbo.model.surrogate import SurrogateSettings, SurrogateState
from fedbo.policy import FTS, RGPE, TAF, TS, Policy, Query, Target
from fedbo.policy.base import Power
from fedbo.space import Float, Space
from fedbo_paper.experiments.spec import POWERS, Arm, Experiment, experiments
from fedbo_paper.preset import (
    PAPER,
    FeatureDraws,
    PaperSettings,
    argmax_direct,
    paper_agent,
    paper_federation,
)
from fedbo_paper.problems.synthetic import AGENTS, Synthetic

SQUARE = Space({"x": Float(0, 1), "z": Float(0, 1)})


def message(length_scale: float, seed: int) -> SampledFunction:
    omega = np.random.default_rng(seed).standard_normal(100)
    return Features(2, 100, length_scales=length_scale, seed=seed).function(omega)


def value(f: SampledFunction, x: np.ndarray) -> float:
    return float(f(x[None])[0])


def test_direct_finds_smooth_maxima() -> None:
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 101)] * 2), axis=-1).reshape(-1, 2)
    functions = [message(0.5, seed) for seed in range(20)]
    gaps = [f(grid).max() - value(f, argmax_direct(f, SQUARE)) for f in functions]
    assert sum(gap > 0.05 for gap in gaps) <= 1


def test_direct_misses_the_maximum_at_the_length_scale_of_the_paper() -> None:
    """At length scale 0.01 a thousand evaluations are few: that is why it is not the default."""
    functions = [message(0.01, seed) for seed in range(10)]
    gains = [value(f, argmax(f, SQUARE)) - value(f, argmax_direct(f, SQUARE)) for f in functions]
    assert np.mean(gains) > 0.1 and min(gains) > -0.01


def test_a_repeated_point_is_replaced_by_a_random_one() -> None:
    tried = SQUARE.sample(np.random.default_rng(1), 5)
    tried = np.array([SQUARE.encode(SQUARE.decode(x)) for x in tried])
    other = SQUARE.sample(np.random.default_rng(3), 1)[0]
    for settings, instead in ((PAPER, other), (PaperSettings(), tried[2])):
        near, rng = tried[2] + 1e-6, np.random.default_rng(3)
        np.testing.assert_array_equal(settings.revise(tried[2], tried, SQUARE, rng), instead)
        np.testing.assert_array_equal(settings.revise(near, tried, SQUARE, rng), near)


def test_random_repeats_without_repeats_are_refused() -> None:
    with pytest.raises(
        ValueError, match="repeats is 'avoid' with random_repeats, expected 'allow'"
    ):
        PaperSettings(random_repeats=True)


def test_draws_from_fresh_features_have_the_moments_of_the_posterior() -> None:
    """Beyond the observations their variance is the prior's; at them it is almost none."""
    state = SurrogateState(hyper=Hyper(length_scales=(0.2,), noise_variance=1e-4), fitted=10**6)
    belief = FeatureDraws(SurrogateSettings(), 1, state, features=200, first=3)
    X, y, rng = np.array([[0.1], [0.2]]), np.array([-1.0, 1.0]), np.random.default_rng(0)
    belief.update(X, y, rng)
    draws = np.array([belief.sample(rng)(np.array([[0.1], [0.2], [0.9]])) for _ in range(400)])
    np.testing.assert_allclose(draws.mean(axis=0)[:2], y, atol=0.05)
    np.testing.assert_allclose(draws.std(axis=0), [0.0, 0.0, 1.0], atol=0.12)


# The constants: REFERENCE says where each is from (appendix D, or the authors' code)


def test_every_constant_of_the_agents() -> None:
    fit = PAPER.surrogate.fit
    assert (fit.kernel, fit.ard, fit.priors) == ("se", False, None)
    assert (fit.noise_floor, fit.starts) == (1e-10, 10)
    assert (PAPER.n_initial, PAPER.design, PAPER.surrogate.refit_every) == (3, "random", 5)
    assert (PAPER.repeats, PAPER.random_repeats) == ("allow", True)
    assert (PAPER.raw_scores, PAPER.initial_in_messages) == (True, False)
    assert (PAPER.draw_features, PAPER.exact_draws) == (200, False)
    assert (PAPER.direct, fedbo_paper.preset._EVALUATIONS) == (True, 1000)
    federation = paper_federation(SQUARE, features=7)
    assert (federation.features, federation.noise_variance) == (7, 1e-6)


def test_p_t_of_both_sections_and_of_the_default_agent() -> None:
    """Section 5.1 has 1 − 1/√t, section 5.2 has 1 − 1/t², both p_1 = p_2; β_t = 1."""
    assert POWERS == {"paper": 2.0, "default": 0.5}
    for power in (0.5, 2.0):
        schedule = Power(power)
        assert schedule(1) == schedule(2)
        assert [schedule(t) for t in (2, 3, 50)] == pytest.approx(
            [1 - t**-power for t in (2, 3, 50)]
        )
    policy = paper_agent(paper_federation(SQUARE)).policy
    assert isinstance(policy, FTS) and policy.schedule == Power(2)
    assert policy.beta == TS().beta == 1.0 and policy.P_N is None
    assert (RGPE().samples, RGPE().dilution) == (100, 95.0)
    assert (TAF().rho, TAF().own_share) == (0.5, 0.75)


def test_every_constant_of_the_synthetic_functions() -> None:
    problem = Synthetic()
    assert (problem.size, problem.length_scale, problem.noise_variance) == (1000, 0.03, 0.01)
    assert AGENTS == 50
    tasks = problem.tasks()
    assert (tasks.function(0).min(), tasks.function(0).max()) == (0.0, 1.0)
    settings, federation = tasks.settings("paper"), tasks.federation("paper", 100, 0)
    assert (settings.n_initial, settings.design) == (1, "random")
    assert settings.raw_scores and settings.exact_draws
    assert (settings.repeats, settings.random_repeats) == ("allow", True)
    belief = settings.model(1)
    rng = np.random.default_rng(0)
    belief.update(rng.random((60, 1)), rng.standard_normal(60), rng)  # is never fitted
    hyper = Hyper(length_scales=(0.03,), signal_variance=1.0, noise_variance=0.01, kernel="se")
    np.testing.assert_allclose(belief.hyper.length_scales, hyper.length_scales)
    assert belief.hyper.kernel == "se"
    assert belief.hyper.signal_variance == pytest.approx(1.0)
    assert belief.hyper.noise_variance == pytest.approx(0.01)
    assert federation.noise_variance == 0.01
    wide = Shared.of(tasks.federation("paper", 4000, 0)).phi.s
    assert wide.std() == pytest.approx(1 / 0.03, rel=0.05)


def arms_of(spec: Experiment, figure: str) -> set[Arm]:
    return set(spec.arms_of((figure,), others=28, power=2.0))  # type: ignore[arg-type]


def test_every_constant_of_the_experiments() -> None:
    """Section 5 and appendix D: iterations, targets, initialisations, M, t_n, d_n and p_t."""
    specs = experiments()
    assert {name: (s.iterations, s.initial, s.repeats) for name, s in specs.items()} == {
        "synthetic": (50, 1, 5),
        **dict.fromkeys(("landmine", "glass", "har", "agents", "published"), (50, 3, 5)),
    }
    assert specs["synthetic"].targets == {"fig1": 60}
    for name in ("landmine", "glass", "har"):
        spec = specs[name]
        assert [spec.targets_of(figure) for figure in ("fig2", "fig3", "fig4", "appendix")] == [
            *((0, 1, 2, 3, 4, 5), (0,), (0, 1, 2, 3, 4, 5), (1, 2, 3, 4, 5))
        ]
        lengths = {(arm.method, arm.M) for arm in arms_of(spec, "fig2")}
        rivals = {(m, M) for m in ("FTS", "RGPE", "TAF") for M in (50, 100, 150, 200)}
        assert lengths == {("TS", 0)} | rivals
        assert {arm.t_n for arm in arms_of(spec, "fig2") if arm.method != "TS"} == {50}
        assert {(arm.M, arm.every) for arm in arms_of(spec, "fig4")} == {(0, 0), (100, 0), (100, 1)}
    published = specs["published"]
    assert (published.maximiser, published.problem.scoring) == ("direct", "probability")  # type: ignore[union-attr]
    assert len(arms_of(published, "published")) == 13
    near = {a for a in arms_of(specs["synthetic"], "fig1") if a.d_n == 0.02 and not a.every}
    assert {(arm.t_n, arm.M) for arm in near} == {
        *((40, 10), (40, 25), (40, 50), (40, 100), (100, 25), (100, 50), (100, 100))
    }
    far = {a for a in arms_of(specs["synthetic"], "fig1") if a.d_n == 1.2}
    assert {(arm.t_n, arm.M, arm.power) for arm in far} == {
        (t_n, 100, power) for t_n in (40, 100) for power in (0.5, 2.0)
    }


# What follows from them


def test_a_message_is_a_draw_for_the_raw_scores_of_the_queries() -> None:
    """Whitened by N(ν, σ²Σ⁻¹) of the paper's formulas, its length is that of M normal numbers.

    ν and Σ are computed here from s and b alone: for the 50 queries, without the initial points,
    and with scores as they are.
    """
    M, sigma2, lengths = 20, 1e-6, []
    rng = np.random.default_rng(7)
    X = rng.random((53, 2))
    y = 0.8 + 0.1 * np.sin(7 * X[:, 0]) * X[:, 1]
    for seed in range(100):
        federation = paper_federation(SQUARE, features=M, seed=seed)
        first = [dict(zip("xz", x, strict=True)) for x in X[:3].tolist()]
        agent = paper_agent(federation, seed=seed, initial=first)
        for score in y[:3]:
            agent.tell(agent.ask(), score)
        for x, score in zip(X[3:].tolist(), y[3:], strict=True):
            agent.tell(dict(zip("xz", x, strict=True)), score)
        phi = Shared.of(federation).phi
        waves = np.sqrt(2 / M) * np.cos(X[3:] @ phi.s.T + phi.b)
        Phi = waves / np.linalg.norm(waves, axis=1, keepdims=True)
        Sigma = Phi.T @ Phi + sigma2 * np.eye(M)
        nu = np.linalg.solve(Sigma, Phi.T @ y[3:])
        off = np.linalg.cholesky(Sigma).T @ (agent.message().body.omega - nu) / np.sqrt(sigma2)
        lengths.append(off @ off)
        assert agent.message().t_n == 50
    assert kstest(lengths, chi2(M).cdf).pvalue > 1e-3


def test_features_have_the_length_scale_of_the_messages() -> None:
    s = Shared.of(paper_federation(SQUARE, features=4000, seed=3)).phi.s
    np.testing.assert_allclose(s.std(axis=0), 1 / 0.01, rtol=0.05)


def test_gps_are_fitted_after_the_initial_points_and_every_5_queries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each time by a whole search that forgets the fit before, whenever the agent asks."""
    fitted: list[tuple[int, int, bool]] = []
    search = Fit.__call__

    def recorded(self: Fit, X: np.ndarray, y: np.ndarray, rng: Any, warm: Any = None) -> Hyper:
        fitted.append((t, len(X), warm is None))
        return search(self, X, y, rng, warm)

    monkeypatch.setattr(Fit, "__call__", recorded)
    monkeypatch.setattr(Fit, "again", None)
    rng = np.random.default_rng(0)
    X, y = rng.random((14, 2)), rng.random(14)
    for asked, fits in (
        (range(3, 15), [(3, 3), (8, 8), (13, 13)]),
        ((4, 6, 9, 14), [(4, 3), (9, 8), (14, 13)]),  # peers' messages were followed meanwhile
    ):
        fitted.clear()
        belief = PAPER.model(2)
        for t in asked:
            belief.update(X[:t], y[:t], rng)
            assert len(belief.predict(X)[0]) == 14
        assert fitted == [(t, n, True) for t, n in fits]


@pytest.mark.parametrize("policy", [RGPE(), TAF()])
def test_no_query_of_rgpe_or_taf_is_an_own_draw(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their maxima come close to earlier queries again and again, and are queried again."""

    def refused(target: Target, beta: float = 1.0) -> SampledFunction:
        raise AssertionError("an own draw")

    federation = paper_federation(SQUARE, features=30, kind="belief")
    settings = msgspec.structs.replace(PAPER, direct=False)
    first = [{"x": 0.2, "z": 0.2}, {"x": 0.8, "z": 0.3}, {"x": 0.5, "z": 0.9}]
    peers = [Agent(federation, TS(), seed=n, name=f"peer-{n}", settings=settings) for n in range(4)]
    for n, peer in enumerate(peers):
        for x in np.random.default_rng(n).random((12, 2)).tolist():
            peer.tell(dict(zip("xz", x, strict=True)), bump(*x) + 0.02 * n)
    target = Agent(federation, policy, seed=0, name="target", settings=settings, initial=first)
    target.receive(Agent.messages(peers))
    monkeypatch.setattr(Target, "own_draw", refused)
    for _ in range(33):
        trial = target.ask()
        target.tell(trial, bump(*trial.params.values()))
    X = np.array([[*trial.params.values()] for trial in target.trials])
    gaps = [np.abs(X[:t] - X[t]).max(axis=1).min() for t in range(3, len(X))]
    assert 0.0 not in gaps  # an exact repeat is a random point
    assert sum(gap < 1e-3 for gap in gaps) >= 3  # the library would have drawn here


class Constant(Policy, frozen=True):
    """A draw that is always the same, so it is always largest at the same point."""

    def query(self, target: Target) -> Query:
        return target.query_draw(target.phi.function(np.ones(target.phi.M)))


def test_a_listed_point_is_queried_again() -> None:
    """The library would try all other points first."""
    points = [{"x": x} for x in np.linspace(0, 1, 30).tolist()]
    federation = Federation(Space({"x": Float(0, 1)}, points=points), features=20, kind="weights")
    settings = Synthetic().tasks().settings("paper")
    for replaced in (False, True):
        own = msgspec.structs.replace(settings, random_repeats=replaced)
        agent = Agent(federation, Constant(), seed=1, settings=own)
        for _ in range(13):
            agent.tell(agent.ask(), 0.0)
        queries = [trial.params["x"] for trial in agent.trials if trial.source != "initial"]
        assert (len({*queries}) == 1) != replaced


def bump(x: float, z: float) -> float:
    return float(np.exp(-8 * ((x - 0.4) ** 2 + (z - 0.6) ** 2)))
