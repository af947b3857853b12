"""A solo agent of a replay: what it maximises, and which points it avoids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedbo import EI, FTS, RGPE, TAF, TS, Float, Policy, Settings, Space, TipsThenPool
from fedbo.insight.replay import Solo, replay, without_peers
from fedbo.model.gp import Draw
from fedbo.model.kernel import Array
from fedbo.policy.improvement import ExpectedImprovement

SPACE = Space({"a": Float(0, 1), "b": Float(0, 1)})
LISTED = Space({"a": Float(0, 1)}, points=[{"a": i / 10} for i in range(11)])


def solo_after(X: Array, y: Array, space: Space = SPACE, **options: Any) -> Solo:
    solo = Solo(Settings(**options), space, np.random.default_rng(0))
    for x, score in zip(X, y, strict=True):
        solo.tell(x, score)
    return solo


def replayed(
    monkeypatch: pytest.MonkeyPatch, policy: EI | TS, space: Space, y: Array
) -> list[Solo]:
    """Replay an agent whose scores were y, and return the solo agents."""
    solos: list[Solo] = []
    begin = Solo.__init__

    def listen(self: Solo, *args: Any) -> None:
        begin(self, *args)
        solos.append(self)

    monkeypatch.setattr(Solo, "__init__", listen)
    rng = np.random.default_rng(0)
    points = space.sample(rng, 200) if space.points is None else space.points
    X = points[: len(y)]
    replay(
        X,
        y,
        np.arange(len(y)) < 3,
        initial=[[]] * 3,
        space=space,
        settings=Settings(),
        policy=policy,
        rng=rng,
    )
    return solos


@pytest.mark.parametrize(
    ("policy", "alone"),
    [
        (TipsThenPool(schedule=0.5), EI(schedule=0.5)),
        (FTS(beta=[3.0, 2.0]), TS(beta=(3.0, 2.0))),
        (RGPE(), EI()),
        (TAF(), EI()),
    ],
)
def test_only_the_papers_policies_sample_without_peers(policy: Policy, alone: Policy) -> None:
    assert without_peers(policy) == alone


def test_it_improves_on_the_best_prediction_and_draws_with_probability_p_t() -> None:
    X = np.random.default_rng(1).random((6, 2))
    solo = solo_after(X, X.sum(axis=1))
    functions = [solo.function(EI(0.3), 1)[0] for _ in range(200)]
    improvements = [f for f in functions if isinstance(f, ExpectedImprovement)]
    assert 0.6 < len(improvements) / 200 < 0.8
    assert improvements[0].best == solo.belief().predict(X)[0].max()
    assert isinstance(solo_after(X[:0], X[:0, 0]).function(EI(), 1)[0], Draw)


def test_an_acquisition_function_avoids_what_was_tried_and_a_draw_does_not() -> None:
    X = np.random.default_rng(1).random((6, 2))
    solo, points = solo_after(X, X.sum(axis=1)), np.concatenate([X[:1], X[:1] + 1e-7, [[0.5, 0.5]]])
    assert solo.is_taken_for_acquisition(points).tolist() == [True, True, False]
    assert not solo.is_taken_for_draw(points).any()
    allowed = solo_after(X, X.sum(axis=1), repeats="allow")
    assert not allowed.is_taken_for_acquisition(points).any()


@pytest.mark.parametrize("policy", [EI(1e-9), TS()])
def test_no_listed_point_is_repeated(monkeypatch: pytest.MonkeyPatch, policy: EI | TS) -> None:
    for solo in replayed(monkeypatch, policy, LISTED, np.sin(np.arange(11.0))):
        assert len(np.unique(solo.X, axis=0)) == 11
