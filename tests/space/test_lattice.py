"""The lattice of a space: every point has a number, and a point is rounded to a near one."""

from __future__ import annotations

import numpy as np
import pytest

from fedbo.space import Categorical, Float, Int, Lattice, Space

MIXED = Space(
    {
        "rate": Float(1e-4, 1, log=True),
        "momentum": Float(0, 0.9, step=0.1),
        "layers": Int(1, 5),
        "units": Int(1, 100_000),
        "bias": Categorical([True, False]),
        "kind": Categorical(["a", "b", "c"]),
    }
)


def test_every_number_is_a_point_and_back() -> None:
    lattice = Lattice(MIXED)
    seen = set()
    for number in range(0, lattice.size, 7):
        data = number.to_bytes(lattice.nbytes)
        x = lattice.unpack(data)
        assert x is not None
        assert lattice.pack(x) == data
        assert MIXED.snap(x[None])[0] == pytest.approx(x, abs=0)
        seen.add(tuple(x))
    assert len(seen) == len(range(0, lattice.size, 7))


def test_numbers_beyond_the_last_and_other_lengths_are_no_points() -> None:
    lattice = Lattice(MIXED)
    assert lattice.unpack((lattice.size - 1).to_bytes(lattice.nbytes)) is not None
    assert lattice.unpack(lattice.size.to_bytes(lattice.nbytes)) is None
    for data in (b"", bytes(lattice.nbytes - 1), bytes(lattice.nbytes + 1)):
        assert lattice.unpack(data) is None


def test_a_point_is_rounded_by_half_a_step_at_most() -> None:
    lattice = Lattice(MIXED)
    for x in MIXED.sample(np.random.default_rng(0), 200):
        near = lattice.unpack(lattice.pack(x))
        assert near is not None
        continuous = [0, 3]  # the rate, and units, of which there are too many
        exact = [d for d in range(len(x)) if d not in continuous]
        assert np.abs(near - x)[continuous].max() <= 0.5 / 15 + 1e-5
        assert (near[exact] == x[exact]).all()


def test_many_dimensions_take_half_a_byte_each() -> None:
    assert Lattice(Space({f"x{d}": Float(0, 1) for d in range(20)})).nbytes == 10
