"""Sub-regions of the unit cube, and how much each agent weighs in each of them.

=======  ====================================================================  ======
symbol   meaning                                                               shape
=======  ====================================================================  ======
D        dimensions of the cube                                                scalar
P        number of regions: each dimension is cut into equal parts             scalar
N        number of agents; agent n is assigned to region n mod P               scalar
a_t, b   exponents of agents assigned to a region, and of all others           scalars
W_t      weights of the agents in each region, in round t; rows sum to 1       (P, N)
=======  ====================================================================  ======

W_t[p, n] ∝ exp(a_t) if n is assigned to p, and ∝ exp(b) otherwise. a_t is constant at first, and
then falls linearly to b, when all agents weigh the same.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedbo.model.kernel import Array

Indices = NDArray[np.intp]


class Regions(msgspec.Struct, frozen=True):
    """Boxes of the same size that cover the unit cube; a border belongs to the upper one.

    Args:
        dimensions: D.
        parts: Number of equal parts of each dimension; 1 is a single region.

    >>> regions = Regions(2, parts=2)
    >>> regions.count, regions.index(np.array([[0.1, 0.1], [0.1, 0.9], [1.0, 1.0]])).tolist()
    (4, [0, 1, 3])
    >>> low, high = regions.box(2)
    >>> low.tolist(), high.tolist()
    ([0.5, 0.0], [1.0, 0.5])
    """

    dimensions: int
    parts: int

    def __post_init__(self) -> None:
        for name in ("dimensions", "parts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected 1 or more")

    @property
    def count(self) -> int:
        """P, the number of regions."""
        return math.prod(self._shape)

    @property
    def _shape(self) -> tuple[int, ...]:
        return (self.parts,) * self.dimensions

    def box(self, region: int) -> tuple[Array, Array]:
        """Return the lower and the upper corner (D,) of a region.

        Args:
            region: Number of the region, from 0.
        """
        corner = np.array(np.unravel_index(region, self._shape), dtype=np.float64)
        return corner / self.parts, (corner + 1.0) / self.parts

    def index(self, X: Array) -> Indices:
        """Return the number of the region that each row of X (n, D) lies in, (n,)."""
        cells = np.clip((X * self.parts).astype(np.intp), 0, self.parts - 1)
        return np.asarray(np.ravel_multi_index(tuple(cells.T), self._shape))

    def assigned(self, agents: int) -> Indices:
        """Return the region that each of N agents is assigned to, (N,)."""
        return np.arange(agents) % self.count

    def place(self, U: Array, region: int) -> Array:
        """Return points U (n, D) of the unit cube, moved and scaled into a region."""
        low, high = self.box(region)
        placed: Array = low + (high - low) * U
        return placed


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """W_t: agents weigh more in the region that they are assigned to, at first.

    The publication says that a_t stays for some rounds and then falls linearly. As in its authors'
    code, the first of the ``decay`` rounds still has the value a, and the last one has b.

    Args:
        a: a_t in the first rounds.
        b: The exponent of agents that are assigned to other regions.
        constant: Number of rounds in which a_t stays a.
        decay: Number of rounds after these in which a_t falls to b; at least 2.

    >>> weights, assigned = Weights(), np.array([0, 1])
    >>> weights(1, assigned, 2).round(4).tolist(), weights(40, assigned, 2).tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]])
    """

    a: float = 16.0
    b: float = 1.0
    constant: int = 10
    decay: int = 30

    def exponent(self, t: int) -> float:
        """Return a_t of round t = 1, 2, …"""
        passed = (t - self.constant - 1) / (self.decay - 1)
        return self.a + (self.b - self.a) * min(max(passed, 0.0), 1.0)

    def __call__(self, t: int, assigned: Indices, P: int) -> Array:
        """Return W_t, (P, N).

        Args:
            t: Number of the round, from 1.
            assigned: The region of each agent, (N,).
            P: Number of regions.
        """
        own = assigned[None, :] == np.arange(P)[:, None]
        W = np.exp(np.where(own, self.exponent(t), self.b) - max(self.a, self.b))
        weights: Array = W / W.sum(axis=1, keepdims=True)
        return weights
