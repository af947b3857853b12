"""Queries that follow an agent's own draw, or what the agent received in this round.

======  ===================================================================================
symbol  meaning
======  ===================================================================================
p_t     1 − 1/t, the probability of an own draw in query t = 1, 2, …
ω_p     the server's aggregate for region p
φ       the shared features
======  ===================================================================================

p_1 = 0, as in the authors' code: everybody's first query follows the others. A schedule of the
library cannot say that, because there p_t is above 0. So these policies have no schedule to choose.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from fedbo.model.argmax import Domain, Search
from fedbo.model.features import FeatureFunction, Features
from fedbo.model.kernel import Array, Mask
from fedbo.policy import Policy, Query, Target
from fedbo.policy.target import Origin
from fedbo_paper.dp.server import Regions

_SCREENED = 2**15  # points of the whole cube, the most that `argmax` screens


def own_share(t: int) -> float:
    """Return p_t.

    >>> [own_share(t) for t in (1, 2, 4)]
    [0.0, 0.5, 0.75]
    """
    return 1.0 - 1.0 / t


class _Mixed(Policy, frozen=True):
    """An own draw with probability p_t, and otherwise what `follow` says."""

    def query(self, target: Target) -> Query:
        is_own = target.rng.random() < own_share(target.t) or not len(target.inbox)
        return target.query_draw(target.own_draw()) if is_own else self.follow(target)

    @abstractmethod
    def follow(self, target: Target) -> Query:
        """Choose a query from what the agent has received."""


class FollowPeer(_Mixed, frozen=True, tag="follow-peer"):
    """FTS: the query is where the function of one peer, drawn at random, is largest.

    All peers send a new message in every round, so none is ever used up.
    """

    def follow(self, target: Target) -> Query:
        n = int(target.rng.integers(len(target.inbox)))
        origin = Origin("peer", credit={target.inbox.sender(n): 1.0})
        return target.query_draw(target.peer_draw(n), origin)


class FollowServer(_Mixed, frozen=True, tag="follow-server"):
    """FTS-DE: the query is where φ(x)ᵀω_p, p the region that x lies in, is largest.

    This function jumps at the borders of regions, so it is maximised in each region by itself.

    Args:
        parts: Number of parts of each dimension. The rows of the inbox are the regions' aggregates.
    """

    parts: int

    def follow(self, target: Target) -> Query:
        regions = Regions(target.space.dimensions, self.parts)
        return Query(argmax_by_region(target, regions, target.inbox.omega), Origin("pool"))


def argmax_by_region(target: Target, regions: Regions, omega: NDArray[np.floating]) -> Array:
    """Return the point (D,) where φ(x)ᵀω of the region that x lies in is largest; ω is (P, M)."""
    screened = max(_SCREENED // regions.count, 512)
    tops, values = [], []
    for p in range(regions.count):
        function = _InRegion(target.phi, omega[p].astype(np.float64), screened)
        x = target.maximiser(function, _Region(target.space, regions.box(p)), None, None)
        tops.append(x)
        values.append(float(function(x[None])[0]))
    return tops[int(np.argmax(values))]


class _InRegion(FeatureFunction):
    """The function of one region, which `argmax` screens at as many points as its size asks for."""

    def __init__(self, features: Features, omega: Array, screened: int) -> None:
        super().__init__(features, omega)
        self.search = Search(screened=screened)


class _Region:
    """The part of a continuous space inside a box, for `argmax`."""

    points = None

    def __init__(self, space: Domain, box: tuple[Array, Array]) -> None:
        self.space, self.box = space, box
        self.dimensions: int = space.dimensions
        self.free: Mask = space.free

    def snap(self, X: Array) -> Array:
        low, high = (corner.astype(X.dtype) for corner in self.box)
        return np.clip(X, low, high)

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        low, high = self.box
        points: Array = low + (high - low) * rng.random((n, self.dimensions))
        return points
