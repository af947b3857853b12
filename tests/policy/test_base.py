"""What a target does with points, and what is checked of a policy's answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo.message.inbox import Inbox
from fedbo.model.gp import Hyper
from fedbo.model.surrogate import Surrogate, SurrogateSettings, SurrogateState
from fedbo.policy import Origin, Query, Target
from fedbo.policy.target import APART, SAME
from fedbo.space import Float, Space

LINE = Space({"x": Float(0, 1)})
LISTED = Space({"x": Float(0, 1)}, points=[{"x": x} for x in np.linspace(0, 1, 11)])


def target(
    scored: list[float], open_points: list[float], scale: float = 0.2, **options: Any
) -> Target:
    """A target with this length scale, which is not fitted."""
    state = SurrogateState(hyper=Hyper(length_scales=(scale,), noise_variance=0.01), fitted=10**6)
    return Target(
        t=1,
        space=options.pop("space", LINE),
        X=np.array(scored).reshape(-1, 1),
        y=np.arange(float(len(scored))),
        open_points=np.array(open_points).reshape(-1, 1),
        surrogate=Surrogate(SurrogateSettings(), 1, state),
        inbox=Inbox(10),
        federation=fedbo.Federation({"x": Float(0, 1)}, features=10, kind="weights"),
        rng=np.random.default_rng(0),
        **options,
    )


class Slope:
    """The further right the better."""

    length_scales = np.array([0.2])

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return X[:, 0]

    def value_and_gradient(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return X[:, 0], np.ones_like(X)


class Hills:
    """Two hills, the higher one at 0.8, the other at 0.2."""

    length_scales = np.array([0.1])

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return self.value_and_gradient(X)[0]

    def value_and_gradient(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gaps, heights = X - np.array([0.8, 0.2]), np.array([1.0, 0.7])
        hills = heights * np.exp(-0.5 * (gaps / 0.1) ** 2)
        return hills.sum(axis=1), (-hills * gaps / 0.01).sum(axis=1, keepdims=True)


class Taken:
    """Remembers what an acquisition function would pass over."""

    length_scales = np.array([0.2])
    taken: Any

    def __call__(self, function: Any, domain: Any, near: Any, taken: Any) -> np.ndarray:
        self.taken = taken
        return np.array([0.0])


@pytest.mark.parametrize("scale, unit", [(0.2, 0.2), (0.01, 0.01), (40.0, 1.0)])
def test_taken_is_what_is_close_in_length_scales(scale: float, unit: float) -> None:
    """A length scale that is longer than the side of the cube counts as its side."""
    seen = Taken()
    target([0.3], [0.6], scale, maximiser=seen).query_acquisition(Hills(), or_next_best=True)
    steps = unit * np.array([-1.02, -0.98, 0.0, 0.98, 1.02])
    for tried, gap in ((0.3, SAME), (0.6, APART)):
        near = seen.taken(tried + gap * steps[:, None])
        assert near.tolist() == [False, True, True, True, False]


@pytest.mark.parametrize("scored, pending", [([0.8], []), ([], [0.8])])
def test_an_acquisition_function_leaves_a_hill_that_was_tried(
    scored: list[float], pending: list[float]
) -> None:
    """To an own draw, or to the next best hill if that is wanted."""
    assert target([], []).query_acquisition(Hills()).x[0] == pytest.approx(0.8, abs=1e-3)
    origin, shown = Origin("peer", credit={"a": 1.0}), target(scored, pending)
    query = shown.query_acquisition(Hills(), origin, or_next_best=True)
    assert (query.x[0], query.origin.peer) == (pytest.approx(0.2, abs=1e-3), "a")
    shown.own_draw = lambda beta=1.0: Slope()  # type: ignore[method-assign]
    query = shown.query_acquisition(Hills(), origin)
    assert (query.x[0], query.origin.source) == (pytest.approx(1.0), "own")


def test_a_draw_may_be_followed_to_a_point_that_has_a_score() -> None:
    assert target([0.8], []).query_draw(Hills()).x[0] == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize("kind", ["draw", "acquisition"])
def test_an_own_draw_decides_where_every_place_that_was_found_is_taken(kind: str) -> None:
    shown = target([], [1.0], maximiser=lambda f, *_: np.array([f.place]))
    own, other = Hills(), Hills()
    own.place, other.place = 0.8, 1.0  # type: ignore[attr-defined]
    shown.own_draw = lambda beta=1.0: own  # type: ignore[method-assign]
    ask = shown.query_draw if kind == "draw" else shown.query_acquisition
    query = ask(other, Origin("peer", credit={"a": 1.0}, trust={"a": 0.4}))
    assert query.x[0] == 0.8
    assert query.origin == Origin("own", trust={"a": 0.4})


# What a policy of someone else's returns


class Answers(fedbo.Policy, frozen=True):
    """Returns whatever it was given."""

    answer: Any

    def query(self, target: Target) -> Query:
        return self.answer


FEDERATION = fedbo.Federation({"x": Float(0, 1), "z": Float(0, 1)})
CENTRE = np.array([0.5, 0.5])


def trial_of(answer: Any, **options: Any) -> fedbo.Trial:
    settings = fedbo.Settings(n_initial=0)
    return fedbo.Agent(FEDERATION, Answers(answer), settings=settings, **options).ask()


@pytest.mark.parametrize(
    "answer, kind, text",
    [
        (CENTRE, TypeError, "expected a fedbo.Query"),
        (Query(np.array([0.5])), ValueError, "expected 2 finite numbers"),
        (Query(np.array([0.5, np.nan])), ValueError, "expected 2 finite numbers"),
        (Query("here"), ValueError, "expected 2 finite numbers"),  # type: ignore[arg-type]
        (Query(np.array([0.5, 1.2])), ValueError, "not a point of the space"),
        (Query(CENTRE, "own"), TypeError, "with an Origin"),  # type: ignore[arg-type]
    ],
)
def test_what_a_policy_returns_is_checked(answer: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text) as error:
        trial_of(answer)
    assert "policy Answers" in str(error.value)


def test_a_query_outside_the_ranges_of_the_agent_is_refused() -> None:
    with pytest.raises(ValueError, match=r"policy Answers .*not a point of the space"):
        trial_of(Query(CENTRE), within={"x": Float(0.0, 0.2)})


@pytest.mark.parametrize(
    "options, text",
    [
        ({"source": "magic"}, "source is 'magic'"),
        ({"source": "peer"}, "the one peer"),
        ({"source": "peer", "credit": {"a": 0.5, "b": 0.5}}, "the one peer"),
        ({"source": "own", "credit": {"a": 1.0}}, "only queries of a tip, a peer or the pool"),
        ({"source": "pool", "credit": {"a": 0.7, "b": 0.7}}, "at most 1"),
        ({"source": "pool", "credit": {"a": -0.1}}, "at most 1"),
        ({"source": "own", "trust": {"a": np.nan}}, "at most 1"),
        ({"source": "own", "trust": [0.5]}, "at most 1"),
    ],
)
def test_an_origin_that_contradicts_itself_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Origin(**options)
