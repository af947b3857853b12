"""Who is like whom, against functions evaluated at random points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedbo.federation import Federation
from fedbo.federation.likeness import Likeness
from fedbo.hub.page.alike import layout, weights
from fedbo.identity import KeyPair
from fedbo.message import Kind, Message
from fedbo.space import Categorical, Float, Int

SPACES: dict[str, dict[str, Any]] = {
    "line": {"x": Float(0, 1)},
    "plane": {"x": Float(0, 1), "y": Float(1e-3, 1, log=True)},
    "mixed": {"x": Float(0, 1), "n": Int(1, 9), "kind": Categorical(["a", "b", "c"])},
    "six": {f"x{i}": Float(0, 1) for i in range(6)},
}


KINDS: tuple[Kind, Kind] = ("weights", "compact")


def correlations(federation: Federation, omegas: Any, points: int = 40_000) -> Any:
    """Return the correlation of the first function with each, over random points of the space."""
    X = federation.space.sample(np.random.default_rng(0), points)
    return np.corrcoef(federation.phi(X) @ np.asarray(omegas).T, rowvar=False)[0]


def population(federation: Federation, N: int, seed: int = 0) -> Any:
    """Return weights of agents, some of which are like the first."""
    rng = np.random.default_rng(seed)
    omegas = rng.standard_normal((N, federation.features))
    share = rng.uniform(-1, 1, (N, 1))
    omegas = share * omegas[0] + (1 - np.abs(share)) * omegas
    return omegas * rng.lognormal(0, 2, (N, 1))


@pytest.mark.parametrize("space", SPACES)
def test_the_cosine_is_that_of_the_functions(space: str) -> None:
    federation = Federation(SPACES[space], features=60, seed=5, kind="weights")
    omegas = population(federation, 200)
    U = Likeness(federation).directions(omegas)
    assert U.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(U, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(U @ U[0], correlations(federation, omegas), atol=0.12)


@pytest.mark.parametrize("space", SPACES)
def test_compact_messages_are_compared_as_the_weights_that_they_stand_for(space: str) -> None:
    """Nearly: what lies outside of the leading directions changes hardly any value."""
    drawn, short = (Federation(SPACES[space], features=60, kind=kind) for kind in KINDS)
    omegas = population(drawn, 200)
    U, V = (Likeness(federation) for federation in (drawn, short))
    np.testing.assert_allclose(
        V.directions(omegas @ short.basis.vectors), U.directions(omegas), atol=1e-4
    )


def test_neither_size_nor_sign_nor_zero_is_a_problem() -> None:
    federation = Federation(SPACES["plane"], features=20, kind="weights")
    likeness, omega = Likeness(federation), np.random.default_rng(3).standard_normal(20)
    U = likeness.directions([omega, 1e30 * omega, 1e-30 * omega, -omega, 0 * omega])
    np.testing.assert_allclose(U @ U[0], [1, 1, 1, -1, 0], atol=1e-5)
    assert likeness.directions(np.zeros((0, 20))).shape == (0, likeness.d)


@pytest.mark.parametrize("features", [1, 2, 3000])
def test_any_number_of_features(features: int) -> None:
    federation = Federation({"x": Float(0, 1)}, features=features, kind="weights")
    U = Likeness(federation).directions(np.ones((2, features)))
    assert np.isfinite(U).all() and U.shape[1] <= 32


def test_weights_are_read_from_every_kind_of_message() -> None:
    header: Any = dict(fingerprint=bytes(16), epoch=0, sender="a", sequence=1, t_n=3)
    omega = np.arange(5, dtype=np.float32)
    for plain in (
        Message.of_weights(omega, **header),
        Message.of_belief(omega, np.eye(5), 1.5, **header),
    ):
        for message in (plain, KeyPair.generate().sign(plain)):
            assert weights(message.encode()).tolist() == omega.tolist()
    compact = Message.of_compact([3, 0, -7], 0.5, [3, 0], **header)
    for message in (compact, KeyPair.generate().sign(compact)):
        assert weights(message.encode()).tolist() == [1.5, 0, -3.5]


def test_a_map_shows_groups_apart() -> None:
    rng = np.random.default_rng(4)
    centres = np.eye(6)[[0] * 20 + [1] * 20 + [2] * 20]
    U = centres + 0.1 * rng.standard_normal((60, 6))
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    places = layout(U.astype(np.float32))
    assert places.shape == (60, 2) and np.abs(places).max() == 1
    groups = places.reshape(3, 20, 2)
    spread = np.linalg.norm(groups - groups.mean(axis=1, keepdims=True), axis=2).max()
    middles = groups.mean(axis=1)
    assert min(np.linalg.norm(middles[i] - middles[i - 1]) for i in range(3)) > 2 * spread
    assert np.array_equal(places, layout(U.astype(np.float32)))


@pytest.mark.parametrize("N", [0, 1, 2, 3])
def test_a_map_of_few(N: int) -> None:
    places = layout(np.eye(3, dtype=np.float32)[:N])
    assert places.shape == (N, 2) and np.isfinite(places).all()
    assert layout(np.ones((N, 3), dtype=np.float32)).tolist() == [[0, 0]] * N
