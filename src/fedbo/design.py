"""Initial points, before there is anything to model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedbo.model.kernel import Array
from fedbo.space import Space

Design = Callable[[Space, int, np.random.Generator], Array]


def sobol(space: Space, i: int, rng: np.random.Generator) -> Array:
    """The i-th point (D,) of a scrambled Sobol sequence, moved to the nearest allowed point.

    >>> from fedbo.space import Float
    >>> space = Space({"x": Float(0, 1)})
    >>> points = [sobol(space, i, np.random.default_rng(0)) for i in (0, 1)]
    >>> (points[0] < 0.5).tolist(), (points[1] < 0.5).tolist()
    ([True], [False])
    """
    from scipy.stats.qmc import Sobol  # slow to import, so only where it is used

    sequence = Sobol(space.dimensions, rng=rng).random_base2(max(2, i.bit_length()))
    point: Array = space.snap(sequence[[i]])[0]
    return point


def random(space: Space, i: int, rng: np.random.Generator) -> Array:
    """The i-th of independent random points (D,)."""
    point: Array = space.sample(rng, i + 1)[i]
    return point


DESIGNS: dict[str, Design] = {"sobol": sobol, "random": random}
