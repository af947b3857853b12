"""Initial points, before there is anything to model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedbo.model.kernel import Array
from fedbo.space import Part, Space

Design = Callable[[Space | Part, int, np.random.Generator], Array]


def sobol(space: Space | Part, i: int, rng: np.random.Generator) -> Array:
    """Return the i-th point (D,) of a design that fills the space."""
    return space.design_point(i, rng)


def random(space: Space | Part, i: int, rng: np.random.Generator) -> Array:
    """Return the i-th of independent random points, (D,)."""
    point: Array = space.sample(rng, i + 1)[i]
    return point


DESIGNS: dict[str, Design] = {"sobol": sobol, "random": random}
