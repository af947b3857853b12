"""Initial points, before there is anything to model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedbo.model.kernel import Array
from fedbo.space import Space

Design = Callable[[Space, int, np.random.Generator], Array]


def sobol(space: Space, i: int, rng: np.random.Generator) -> Array:
    """The i-th point (D,) of a scrambled Sobol sequence, moved to the nearest allowed point.

    Of listed points, which may leave most of the cube empty, the sequence picks from the list.

    >>> from fedbo.space import Float
    >>> space = Space({"x": Float(0, 1)})
    >>> points = [sobol(space, i, np.random.default_rng(0)) for i in (0, 1)]
    >>> (points[0] < 0.5).tolist(), (points[1] < 0.5).tolist()
    ([True], [False])
    """
    from scipy.stats.qmc import Sobol  # slow to import, so only where it is used

    dimensions = space.dimensions if space.points is None else 1
    sequence = Sobol(dimensions, rng=rng).random_base2(max(2, i.bit_length()))
    if space.points is not None:
        point: Array = space.points[int(sequence[i, 0] * len(space.points))]
        return point
    point = space.snap(sequence[[i]])[0]
    return point


def random(space: Space, i: int, rng: np.random.Generator) -> Array:
    """The i-th of independent random points (D,)."""
    point: Array = space.sample(rng, i + 1)[i]
    return point


DESIGNS: dict[str, Design] = {"sobol": sobol, "random": random}
