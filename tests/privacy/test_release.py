"""A release: what one member can change, its noise and its cost, and what a target makes of it."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pytest
from contracts.releases import contribution
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from privacy.test_contribution import SPACES

from fedbo import FTS, Agent, Policy, TipsThenPool
from fedbo.federation import Federation
from fedbo.federation.calibration import STEP, gaussian_sigma
from fedbo.federation.shared import Shared
from fedbo.message import Message, MessageRefused
from fedbo.model.features import POINTS
from fedbo.privacy import Plan, Release, Simulated, epsilon, mechanisms, release
from fedbo.privacy.contribution import shape, to_shape, unit
from fedbo.privacy.release import DRAWS, STEPS, draws, mean_and_spread, voted_points
from fedbo.space import Float
from fedbo.testing.keys import keys_of

SQUARE = Federation({"x": Float(0, 1), "y": Float(0, 1)})
SHARED = Shared.of(SQUARE)
D, CELLS = len(to_shape(SHARED)), len(SHARED.cells)
MANY = 300  # members from which second moments of all coordinates are summed


def silent(parameter: Fraction, size: int, *, source: Any) -> np.ndarray:
    """Take the place of a sampler, and draw nothing but 0."""
    assert parameter > 0
    return np.zeros(size, dtype=np.int64)


@pytest.fixture(scope="class")
def no_noise() -> Any:
    module = import_module("fedbo.privacy.release")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "discrete_laplace", silent)
        patch.setattr(module, "discrete_gaussian", silent)
        yield


class Vote(NamedTuple):
    """What a member contributes, in any federation."""

    cell: int
    y: np.ndarray


@cache
def planned(federation: Federation, target: float, delta: float) -> Federation:
    """The federation with a privacy plan."""
    plan = Plan(epsilon=target, delta=delta)
    return Federation(federation.space, kind=federation.kind, privacy=plan)


def sent(agreed: Federation, votes: list[Vote | None]) -> list[Message | None]:
    return [
        None if one is None else contribution(agreed, f"site-{i}", cell=one.cell, y=one.y)
        for i, one in enumerate(votes)
    ]


def made(
    votes: list[Vote | None],
    target: float = 2.0,
    delta: float = 1e-3,
    *,
    federation: Federation = SQUARE,
    seed: int = 0,
) -> Release:
    agreed, trials = planned(federation, target, delta), 10 * len(votes)
    return release(agreed, sent(agreed, votes), trials=trials, source=Simulated(seed))


def crowd(n: int, seed: int = 0, federation: Federation = SQUARE) -> list[Vote | None]:
    """Members whose functions resemble each other."""
    rng = np.random.default_rng(seed)
    M = federation.features
    nu = rng.standard_normal(M) + 0.5 * rng.standard_normal((n, M))
    best, shared = federation.space.sample(rng, n), Shared.of(federation)
    return [Vote(shared.cell(x), shape(shared, mean)) for mean, x in zip(nu, best, strict=True)]


# What one member can change

#: On its way, a shape has 32 bits for each number; these are all that they can be.
SINGLE = st.floats(width=32)
TINY = st.floats(0, 2.0**-120, width=32)  # many of them are lost or rounded when they are squared
COORDINATE = st.one_of(
    st.floats(-1, 1, width=32),
    st.floats(-100, 100, width=32),
    TINY,
    st.sampled_from([0.0, -0.0, 2.0**-149, 2.0**-126, 1.0, 2.0**-20]),
)
HOSTILE = st.one_of(
    arrays(np.float32, D, elements=COORDINATE),
    arrays(np.float32, D, elements=TINY),
    arrays(np.float32, D, elements=SINGLE),
    arrays(np.float16, D, elements=st.floats(-1, 1, width=16)),
    arrays(np.int64, D, elements=st.integers(-100, 100)),
    arrays(np.uint8, D, elements=st.integers(0, 255)),
)


def changes(without: Release, present: Release) -> tuple[int, int]:
    """Return the L1 change of the votes, and the squared L2 change of the sums; both are exact."""
    votes = sum(abs(a - b) for a, b in zip(without.votes, present.votes, strict=True))
    sums = sum((a - b) ** 2 for a, b in zip(without.sums, present.sums, strict=True))
    return votes, sums


def most(c: float) -> Fraction:
    return (1 + Fraction(c) ** 2) / Fraction(STEP) ** 2


@pytest.mark.usefixtures("no_noise")
class TestSensitivity:
    OTHERS = crowd(4)

    @staticmethod
    def is_absurd(y: np.ndarray) -> bool:
        """Whether nobody would send this: shapes have length 1."""
        given = y.astype(np.float64)
        return not np.isfinite(given).all() or bool(np.linalg.norm(given) > 100)

    @pytest.mark.parametrize(("others", "weight"), [(OTHERS, 0.5), ([None] * (MANY - 1), 1.0)])
    @settings(max_examples=200)
    @given(y=HOSTILE, cell=st.integers(0, CELLS - 1))
    def test_one_contribution_changes_little_whatever_it_is(
        self, others: list[Vote | None], weight: float, y: np.ndarray, cell: int
    ) -> None:
        without = made([*others, None])
        try:
            present = made([*others, Vote(cell, y)])
        except MessageRefused as refusal:
            assert self.is_absurd(y), refusal
            return
        assert present.weight == weight and (present.squared == D) == (weight == 1.0)
        votes, sums = changes(without, present)
        assert votes == STEPS
        assert sums <= most(weight)

    @pytest.mark.parametrize("n", [1, MANY])
    def test_the_bound_is_nearly_reached(self, n: int) -> None:
        """So the noise is not larger than it must be: y in the coordinates with second moments."""
        present = made([Vote(0, np.eye(D)[0]), *[None] * (n - 1)])
        _, sums = changes(made([None] * n), present)
        assert 1 - 1e-5 < sums / most(present.weight) <= 1


@pytest.mark.parametrize(
    ("vote", "sentence"),
    [
        (Vote(0, np.ones((1, D))), rf"y has shape \(1, {D}\), expected"),
        (Vote(0, np.full(D, np.nan)), "norm nan"),
        (Vote(0, np.full(D, -np.inf)), "norm inf"),
        (Vote(0, np.full(D, 3e38)), "norm .*, expected at most"),
        (Vote(0, np.full(D, None)), "norm nan"),
        (
            # what a mask hides is summed all the same
            Vote(0, np.ma.masked_invalid(np.where(np.arange(D) == 1, np.nan, 1.0))),
            "norm nan",
        ),
    ],
)
def test_a_contribution_that_has_no_bound_is_refused(vote: Vote, sentence: str) -> None:
    with pytest.raises(MessageRefused, match=sentence):
        made([None, vote])


@pytest.mark.parametrize("claim", [30, 2**31 - 1])
def test_a_member_that_claims_many_trials_counts_for_ten_at_most(claim: int) -> None:
    agreed = planned(SQUARE, 2.0, 1e-3)
    given = [contribution(agreed, f"site-{i}", t_n=10) for i in range(9)]
    given.append(contribution(agreed, "evil", t_n=claim))
    assert release(agreed, given, source=Simulated(0)).trials == 90 + min(claim, 100)


# Noise and cost


@pytest.mark.parametrize(("target", "delta"), [(2.0, 1e-3), (0.5, 1e-5)])
def test_noise_has_the_variance_that_is_claimed(target: float, delta: float) -> None:
    """Within 4.5 standard errors, from 60 releases; and its mean is 0."""
    empty = [made([None] * 5, target, delta, seed=seed) for seed in range(60)]
    sums = np.array([one.sums for one in empty]) * STEP
    sigma = math.sqrt(1.25) * gaussian_sigma(target / 2, delta)
    assert empty[0].sums_deviation == pytest.approx(sigma, rel=1e-9)
    n = sums.size
    assert sums.var() == pytest.approx(sigma**2, rel=4.5 * math.sqrt(2 / n))
    assert abs(sums.mean()) < 4.5 * sigma / math.sqrt(n)
    votes = np.array([one.votes for one in empty]) / STEPS
    scale, n = 2 / target, votes.size
    assert empty[0].votes_scale == scale
    # the variance of the square of a Laplace number is 24 − 2² = 20 scale⁴
    assert votes.var() == pytest.approx(2 * scale**2, rel=4.5 * math.sqrt(20 / n) / 2)
    assert abs(votes.mean()) < 4.5 * math.sqrt(2 / n) * scale


def test_without_a_source_the_noise_is_secret() -> None:
    agreed = planned(SQUARE, 2.0, 1e-3)
    one, other = (release(agreed, [None]).sums for _ in range(2))
    assert one != other


@pytest.mark.parametrize("n", [1, 49, MANY])
@pytest.mark.parametrize(
    ("target", "delta"), [(0.1, 1e-6), (0.5, 1e-5), (1.0, 1e-3), (2.0, 0.1), (8.0, 1e-9), (50, 0.5)]
)
def test_accounted_cost_is_never_above_the_nominal(n: int, target: float, delta: float) -> None:
    found = made([None] * n, target, delta)
    assert (found.epsilon, found.delta, found.members) == (target, delta, n)
    assert epsilon(mechanisms(found), delta) <= target


# What a target makes of it


class TestMeanAndSpread:
    @pytest.mark.parametrize("n", [60, MANY])
    def test_almost_without_noise_they_are_those_of_the_members(self, n: int) -> None:
        members = crowd(n, 3)
        Y = np.array([member.y for member in members if member])
        found = made(members, 1e7)
        m, variance, V = mean_and_spread(found)
        e = found.squared
        np.testing.assert_allclose(m, Y.mean(axis=0), atol=2e-4)
        assert variance < 1e-6
        right = np.cov(Y[:, :e].T, bias=True)
        rest = 1 - m @ m - np.trace(right)
        np.testing.assert_allclose(V[:e, :e] - rest / D * np.eye(e), right, atol=3e-3)
        assert (n < MANY) == (e == 6)
        assert np.trace(V) + m @ m == pytest.approx(1.0, abs=1e-3)

    def test_the_error_of_the_mean_is_less_than_that_of_what_was_published(self) -> None:
        members = crowd(49, 5)
        right = np.mean([member.y for member in members if member], axis=0)
        errors = []
        for seed in range(40):
            found = made(members, 1.0, seed=seed)
            raw = np.array(found.sums[:D]) * STEP / 49
            shrunk = mean_and_spread(found)[0]
            errors.append([((raw - right) ** 2).sum(), ((shrunk - right) ** 2).sum()])
        published, used = np.mean(errors, axis=0)
        assert used < 0.9 * published


@pytest.fixture(scope="module", params=SPACES)
def federation(request: pytest.FixtureRequest) -> Federation:
    return Federation(SPACES[request.param])


class TestDraws:
    def test_variance_over_the_space_is_one(self, federation: Federation) -> None:
        found = made(crowd(20, federation=federation), federation=federation)
        Z = draws(Shared.of(federation), found, np.random.default_rng(0))
        assert Z.shape == (DRAWS, len(Shared.of(federation).basis))
        points = federation.space.cover(POINTS)
        values = Shared.of(federation).basis.coordinates(points) @ Z.T
        np.testing.assert_allclose(values.mean(axis=0), 0.0, atol=1e-6)
        np.testing.assert_allclose(values.var(axis=0), 1.0, rtol=1e-6)

    def test_almost_without_noise_they_are_distributed_like_the_members(self) -> None:
        """The mean of the draws within 4.5 standard errors; half of them do not vary."""
        members = crowd(MANY, 4)
        right = np.mean([member.y for member in members if member], axis=0)
        Z = draws(SHARED, made(members, 1e7), np.random.default_rng(0))
        Y = np.array([unit(z[:D] * to_shape(SHARED)) for z in Z])
        half = DRAWS // 2
        np.testing.assert_allclose(Y[:half], np.tile(unit(right), (half, 1)), atol=5e-3)
        spread = Y[half:] @ unit(right)
        theirs = np.array([member.y @ unit(right) for member in members if member])
        assert spread.mean() == pytest.approx(
            theirs.mean(), abs=4.5 * theirs.std() / math.sqrt(half) + 0.05
        )
        assert Y[half:].std(axis=0).max() > 0.05


def test_first_cells_are_those_with_most_votes() -> None:
    members = [Vote(cell, np.eye(D)[0]) for cell in [5] * 30 + [9] * 20 + [1] * 10 + [3]]
    published = made(members, 20.0)
    found = voted_points(SHARED, published)
    assert [SHARED.cell(x) for x in found] == [5, 9, 1]
    m, _, _ = mean_and_spread(published)
    for x in found:  # the best point of its cell by the noisy mean
        points = SQUARE.space.cover(1024)
        points = points[SHARED.nearest_cells(points) == SHARED.cell(x)]
        psi = SHARED.basis.coordinates(np.array([x, *points]))[:, : len(m)]
        values = psi @ (m / to_shape(SHARED))
        assert values[0] == pytest.approx(values.max())


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize(
    ("kind", "policy"),
    [("compact", TipsThenPool()), ("weights", TipsThenPool()), ("weights", FTS())],
)
def test_messages_are_accepted_and_used(name: str, kind: Any, policy: Policy) -> None:
    """The next query differs from the one of an agent that has received nothing."""
    federation = planned(Federation(SPACES[name], kind=kind), 20.0, 1e-3)
    found = made(crowd(30, federation=federation), 20.0, federation=federation)
    agents = [Agent(federation, policy=policy, seed=1) for _ in range(2)]
    assert agents[1].receive(keys_of("hub").sign(found).encode()) == 1
    assert len(agents[1].inbox) == DRAWS
    asked = []
    for agent in agents:
        rng = np.random.default_rng(2)
        for x in federation.space.sample(rng, 4):
            agent.tell(federation.space.decode(x), float(rng.standard_normal()))
        asked.append([agent.ask() for _ in range(3)])
    if name in ("line", "square"):  # the others have so few points that both may ask for the same
        assert asked[0] != asked[1]
