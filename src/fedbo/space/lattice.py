"""The public lattice of a space: the points that a tip may name.

A continuous parameter has 16 evenly spaced places on the lattice, both ends included. Choices are
on it as they are, and so are levels, unless there are more than 256 of them: then the lattice has
the 16 nearest to those places. If the space lists its points, these are the lattice. A point of the
lattice has a number, which takes half a byte for each continuous parameter.
"""

from __future__ import annotations

import math

import numpy as np

from fedbo.space.axis import Array
from fedbo.space.space import Space, nearest


class Lattice:
    """The points of a space that a tip may name.

    Args:
        space: The space.

    >>> from fedbo.space import Categorical, Float
    >>> lattice = Lattice(Space({"kind": Categorical(["a", "b", "c"]), "x": Float(0, 1)}))
    >>> data = lattice.pack(np.array([0.0, 1.0, 0.0, 0.72]))
    >>> data.hex(), lattice.unpack(data).round(3).tolist()
    ('1b', [0.0, 1.0, 0.0, 0.733])
    >>> lattice.unpack(bytes([255])) is None
    True
    """

    def __init__(self, space: Space) -> None:
        if space.points is not None:
            self._places = [(slice(0, space.dimensions), space.points)]
        else:
            self._places = [(at, axis.lattice()) for axis, at in space.axes.values()]
        self._dimensions = space.dimensions
        self.size = math.prod(len(places) for _, places in self._places)
        #: Bytes of the number of a point.
        self.nbytes = max(1, -(-(self.size - 1).bit_length() // 8))

    def pack(self, x: Array) -> bytes:
        """Return the number of the point nearest to x (D,), as bytes."""
        number = 0
        for at, places in self._places:
            number = number * len(places) + int(nearest(x[None, at], places)[0])
        return number.to_bytes(self.nbytes)

    def unpack(self, data: bytes) -> Array | None:
        """Return the point (D,) with this number, or None if there is none.

        Args:
            data: What `pack` returned, or bytes from outside.
        """
        if len(data) != self.nbytes or (number := int.from_bytes(data)) >= self.size:
            return None
        x = np.empty(self._dimensions)
        for at, places in reversed(self._places):
            number, k = divmod(number, len(places))
            x[at] = places[k]
        return x
