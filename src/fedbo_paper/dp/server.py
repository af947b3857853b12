"""Sub-regions of the unit cube, and what the trusted server hands out for each of them.

=======  ====================================================================  ======
symbol   meaning                                                               shape
=======  ====================================================================  ======
D        dimensions of the cube                                                scalar
P        regions: each dimension is cut into equal parts                       scalar
N, M     agents, features; agent n is assigned to region n mod P               scalars
a_t, b   exponents of agents assigned to a region, and of all others           scalars
W_t      weights of the agents in each region, in round t; rows sum to 1       (P, N)
ω_n      the message of agent n                                                (M,)
q        probability that a message is included, independently of others       scalar
S        bound on the norm of all that one agent contributes                   scalar
z        noise multiplier                                                      scalar
B_n      1 if the message of agent n is included, 0 otherwise                  (N,)
=======  ====================================================================  ======

W_t[p, n] ∝ exp(a_t) if n is assigned to p, and ∝ exp(b) otherwise. a_t is constant at first, and
then falls linearly to b, when all agents weigh the same.

`PrivateMean` hands out, for each region p,

    Σ_n W[p, n] B_n clip(ω_n, S/√P) / q  +  noise of standard deviation  max_n W[p, n] z S / q

where clip(ω, c) = ω / max(1, ‖ω‖/c). Divided by the standard deviation of its noise, the part of
one agent in region p has a norm of at most 1/(z√P); over all P regions together it is at most 1/z.
So a round is one Gaussian mechanism of noise multiplier z with Poisson subsampling of rate q, for
neighbours that differ in one agent's taking part.

The authors' code hands out random numbers in the rare rounds without any included message. Here
such a round hands out its noise, which is all that the mechanism says.
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

    @property
    def count(self) -> int:
        """P, the number of regions."""
        return math.prod(self._shape)

    @property
    def _shape(self) -> tuple[int, ...]:
        return (self.parts,) * self.dimensions

    def box(self, region: int) -> tuple[Array, Array]:
        """Return the lower and the upper corner (D,) of a region, counted from 0."""
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
        """Return W_t, (P, N), for the region that each agent is assigned to, (N,)."""
        own = assigned[None, :] == np.arange(P)[:, None]
        W = np.exp(np.where(own, self.exponent(t), self.b) - max(self.a, self.b))
        weights: Array = W / W.sum(axis=1, keepdims=True)
        return weights


class Mean(msgspec.Struct, frozen=True, tag="mean"):
    """The weighted mean of all messages: no clipping, no subsampling, no noise, no privacy.

    It turns messages (N, M) and the weights W (P, N) into aggregates (P, M).

    >>> Mean()(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.5, 0.5]]), np.random.default_rng())
    array([[2., 3.]])
    """

    def __call__(self, omega: Array, W: Array, rng: np.random.Generator) -> Array:
        mean: Array = W @ omega
        return mean


class PrivateMean(msgspec.Struct, frozen=True, kw_only=True, tag="private"):
    """The weighted mean of some messages, clipped, with Gaussian noise.

    Args:
        q: Probability that a message is included, above 0 and at most 1.
        S: Bound on the norm of all that one agent contributes in a round.
        z: Noise multiplier, above 0.

    >>> aggregate = PrivateMean(q=1.0, S=2.0, z=1e-9)
    >>> omega, W = np.array([[30.0, 40.0]]), np.ones((1, 1))
    >>> aggregate(omega, W, np.random.default_rng(0)).round(6)
    array([[1.2, 1.6]])
    """

    q: float = 0.35
    S: float = 22.0
    z: float = 1.0

    def deviations(self, W: Array) -> Array:
        """Return the standard deviation of the noise in each region, (P,)."""
        deviations: Array = W.max(axis=1) * (self.z * self.S / self.q)
        return deviations

    def __call__(self, omega: Array, W: Array, rng: np.random.Generator) -> Array:
        P, M = len(W), omega.shape[1]
        included = rng.random(len(omega)) < self.q
        total = (W * included) @ clip(omega, self.S / math.sqrt(P)) / self.q
        noisy: Array = total + self.deviations(W)[:, None] * rng.standard_normal((P, M))
        return noisy


def clip(omega: Array, most: float) -> Array:
    """Return the rows of ω (N, M), those that are longer than ``most`` shortened to it.

    >>> clip(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0)
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """
    norms = np.linalg.norm(omega, axis=1, keepdims=True)
    clipped: Array = omega / np.maximum(1.0, norms / most)
    return clipped
