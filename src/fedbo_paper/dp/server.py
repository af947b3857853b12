"""What the trusted server makes of the messages of one round: an aggregate ω for each region.

========  ==================================================================  ========
symbol    meaning                                                             shape
========  ==================================================================  ========
N, P, M   agents, regions, features                                           scalars
ω_n       the message of agent n                                              (M,)
W         weights of the agents in each region, in this round                 (P, N)
q         probability that a message is included, independently of others     scalar
S         bound on the norm of all that one agent contributes                 scalar
z         noise multiplier                                                    scalar
B_n       1 if the message of agent n is included, 0 otherwise                (N,)
========  ==================================================================  ========

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
from typing import Protocol

import msgspec
import numpy as np

from fedbo.model.kernel import Array


class Aggregate(Protocol):
    """How a server turns the messages of a round into one aggregate for each region."""

    def __call__(self, omega: Array, W: Array, rng: np.random.Generator) -> Array:
        """Return the aggregates, (P, M).

        Args:
            omega: The messages, (N, M).
            W: The weights of the agents in each region, (P, N).
            rng: The source of all randomness.
        """


class Mean(msgspec.Struct, frozen=True, tag="mean"):
    """The weighted mean of all messages: no clipping, no subsampling, no noise, no privacy.

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

    def __post_init__(self) -> None:
        if not 0.0 < self.q <= 1.0:
            raise ValueError(f"q is {self.q!r}, expected a probability above 0")
        for name in ("S", "z"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected a number above 0")

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

    Args:
        omega: The messages, (N, M).
        most: The largest length of a row, above 0.

    >>> clip(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0)
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """
    norms = np.linalg.norm(omega, axis=1, keepdims=True)
    clipped: Array = omega / np.maximum(1.0, norms / most)
    return clipped
