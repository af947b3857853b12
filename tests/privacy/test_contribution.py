"""What members contribute: lengths that hold whatever is given, and pairs that undo each other."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedbo.federation import Federation
from fedbo.federation.shared import Shared
from fedbo.model.features import POINTS
from fedbo.privacy.contribution import lifted, second_moments, shape, to_shape, unit
from fedbo.space import Categorical, Float, Int, Space

SPACES: dict[str, Any] = {
    "line": {"x": Float(0, 1)},
    "square": {"x": Float(0, 1), "y": Float(1e-3, 10, log=True)},
    "mixed": {"x": Float(0, 1), "kind": Categorical(["a", "b", "c"]), "n": Int(1, 5)},
    "choice": {"kind": Categorical(["a", "b"])},
    "listed": Space(
        {"x": Float(0, 1), "y": Float(0, 1)},
        points=[{"x": i / 9, "y": (i * 7 % 10) / 9} for i in range(10)],
    ),
}

#: All that a 64-bit number can be, but neither NaN nor infinite.
FINITE = st.floats(allow_nan=False, allow_infinity=False)
#: Numbers whose squares are lost, or are the smallest that exist.
TINY = st.floats(1e-163, 3e-162)


@pytest.fixture(scope="module", params=SPACES)
def federation(request: pytest.FixtureRequest) -> Federation:
    return Federation(SPACES[request.param])


def exact_length2(y: np.ndarray) -> Fraction:
    """Return the square of the length, without rounding."""
    return sum((Fraction(float(number)) ** 2 for number in y), Fraction(0))


class TestShape:
    def test_y_is_the_function_in_an_orthonormal_basis(self, federation: Federation) -> None:
        """Oracle: averages over the space of the function times each eigenfunction."""
        nu = np.random.default_rng(1).standard_normal(federation.features)
        points = federation.space.cover(POINTS)
        shared = Shared.of(federation)
        basis, lam = shared.basis, shared.basis.lam[: shared.shape_coordinates]
        f = (shared.phi(points) - basis.mean) @ nu
        psi = basis.coordinates(points)[:, : len(lam)]
        norms = (psi**2).mean(axis=0)
        right = (psi * f[:, None]).mean(axis=0) / np.sqrt(norms) * (norms / norms[0]) ** -0.25
        found = shape(shared, nu)
        np.testing.assert_allclose(found, right / np.linalg.norm(right), atol=1e-6)

    def test_a_single_point_is_refused(self) -> None:
        alone = Federation(Space({"x": Float(0, 1)}, points=[{"x": 0.5}]))
        with pytest.raises(ValueError, match="has a single point; a contribution needs two"):
            to_shape(Shared.of(alone))


class TestUnit:
    @given(
        arrays(np.float64, st.integers(1, 16), elements=FINITE)
        | arrays(np.float64, st.integers(1, 16), elements=TINY)
    )
    def test_length_is_one_whatever_is_given(self, y: np.ndarray) -> None:
        """In exact arithmetic; 2^-48 is far below what a release takes off, 2^-40."""
        length2 = exact_length2(unit(y))
        if y.any():
            assert abs(length2 - 1) < Fraction(1, 2**48)
        else:
            assert length2 == 0


#: Shapes and how many of their coordinates have second moments.
SHAPES = st.integers(1, 16).flatmap(
    lambda d: st.tuples(
        arrays(np.float64, d, elements=st.floats(-1, 1, allow_subnormal=False)), st.integers(1, d)
    )
)


class TestLifted:
    @given(SHAPES, st.sampled_from([0.5, 1.0]))
    def test_length_is_that_of_a_norm(self, one: tuple[np.ndarray, int], c: float) -> None:
        """‖v‖² = ‖y‖² + c² ‖y_e‖⁴, at most 1 + c² for a shape of length 1."""
        y, e = unit(one[0]), one[1]
        v = lifted(y, c, e)
        right = (y @ y) + c**2 * (y[:e] @ y[:e]) ** 2
        assert v @ v == pytest.approx(right, abs=1e-12)
        assert exact_length2(v) <= (1 + Fraction(c) ** 2) * (1 + Fraction(1, 2**46))

    @given(SHAPES, st.sampled_from([0.5, 1.0]))
    def test_second_moments_are_the_way_back(self, one: tuple[np.ndarray, int], c: float) -> None:
        y, e = one
        v = lifted(y, c, e)
        assert (v[: len(y)] == y).all()
        found = second_moments(v[len(y) :] / c, e)
        np.testing.assert_allclose(found, np.outer(y[:e], y[:e]), rtol=1e-15, atol=1e-300)
        assert (found == found.T).all()
