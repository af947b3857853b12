"""The agent that asks, as its policy sees it, the query it gets, and how a function becomes one.

======  =======================================================  ========
symbol  meaning                                                  shape
======  =======================================================  ========
t       number of this query of the policy, from 1               scalar
x_t     the next query, a point of the unit cube                 (D,)
f_t     a draw from the target's own GP                          function
β_t     factor on f_t's deviation from the mean                  scalar
======  =======================================================  ========
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, cast, get_args

import msgspec
import numpy as np
from msgspec.structs import force_setattr

from fedbo.federation.federation import Federation
from fedbo.federation.shared import Shared
from fedbo.message.inbox import BeliefInbox, Inbox
from fedbo.model.argmax import Domain, SampledFunction, Taken, argmax
from fedbo.model.features import Basis, Features
from fedbo.model.gp import rows_of
from fedbo.model.kernel import Array, Mask, Rows, squared_distances
from fedbo.model.surrogate import Surrogate

Source = Literal["initial", "tip", "own", "peer", "pool", "told"]
Maximiser = Callable[[SampledFunction, Domain, Array | None, Taken | None], Array]  # as `argmax`

SAME = 0.001  # length scales: points that are closer than this are the same
APART = 0.05  # length scales: how far an acquisition function's query stays from open trials
_NAMED = 8  # largest number of peers that an origin names
_BEST = 5  # told points that a search also starts from
_SLACK = 1e-6  # rounding in sums of shares


class Origin(msgspec.Struct, frozen=True):
    """Where a query came from: who proposed it, and how much the policy trusted each peer.

    Args:
        source: ``"initial"`` for an initial point, ``"tip"`` for a point that peers recommend,
            ``"own"`` for the agent's own model, ``"peer"`` for one peer's function, ``"pool"`` for
            several peers' functions together, ``"told"`` for a trial that was never asked for.
        credit: The share of each peer in the query, by name; at most 1 in total. Only the sources
            ``"peer"`` (that one peer), ``"tip"`` and ``"pool"`` (the most important peers) have it.
        trust: How much the policy relied on each peer when it chose, by name. The rest up to 1 is
            the share of the agent's own model.

    >>> Origin("peer", credit={"site-a": 1.0}).peer
    'site-a'
    """

    source: Source = "own"
    credit: dict[str, float] = {}
    trust: dict[str, float] = {}

    def __post_init__(self) -> None:
        if self.source not in get_args(Source):
            raise ValueError(f"source is {self.source!r}, expected one of {get_args(Source)}")
        for name in ("credit", "trust"):
            force_setattr(self, name, _checked_shares(name, getattr(self, name)))
        if self.source == "peer" and len(self.credit) != 1:
            raise ValueError(f"credit is {self.credit!r}, expected the one peer of source 'peer'")
        if self.source not in ("tip", "peer", "pool") and self.credit:
            raise ValueError(
                f"credit is {self.credit!r} with source {self.source!r}, expected {{}}: only "
                "queries of a tip, a peer or the pool are credited to peers"
            )

    @property
    def peer(self) -> str | None:
        """The name of the peer that was followed, if it was a single one."""
        return next(iter(self.credit)) if self.source == "peer" else None


def _checked_shares(name: str, shares: object) -> dict[str, float]:
    """Return a copy in Python's own types."""
    try:
        checked = {str(peer): float(share) for peer, share in dict(shares).items()}  # type: ignore[call-overload]
    except (TypeError, ValueError):
        checked = {"": math.nan}
    if not all(share >= 0.0 for share in checked.values()) or sum(checked.values()) > 1.0 + _SLACK:
        raise ValueError(f"{name} is {shares!r}, expected shares of at most 1 in total, by peer")
    return checked


class Query(msgspec.Struct, frozen=True):
    """The next query, as a policy returns it.

    Args:
        x: A point (D,) of the unit cube.
        origin: Where the query came from; the agent's own model by default.
    """

    x: Array
    origin: Origin = Origin()


class Beside:
    """The points of a domain that begin with given coordinates, for `argmax`."""

    points = None

    def __init__(self, domain: Domain, first: Array) -> None:
        self._domain, self._first = domain, first
        self.dimensions, self.free = domain.dimensions, domain.free.copy()
        self.free[: len(first)] = False
        low, high = domain.box
        rest = slice(len(first), None)
        self.box = np.append(first, low[rest]), np.append(first, high[rest])

    def snap(self, X: Array) -> Array:
        snapped = self._domain.snap(X).copy()
        snapped[:, : len(self._first)] = self._first
        return snapped

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        return self.snap(self._domain.sample(rng, n))


@dataclass(kw_only=True, eq=False, repr=False)
class Target:
    """The agent that asks, as its policy sees it: no transport, no units, no parameter names.

    Args:
        t: Number of this query, from 1.
        space: Where queries may lie. Its first coordinates are those of the federation's space;
            the others are of parameters that only this agent has.
        X: Points (n, D) of the agent's scores.
        y: Scores (n,) in standard units, to be maximised.
        is_feasible: Which rows of X satisfy the agent's constraints, (n,); None without any.
        restrict: Turns a function into one that is large where constraints are likely satisfied.
        open_points: Points (m, D) that were asked for and have no score: pending or failed.
        surrogate: The agent's own model, which `belief` fits to the scores.
        inbox: The messages that the agent holds.
        federation: What the agent and its peers agree on.
        rng: The source of all randomness of this query.
        initial: The next initial point (D,), or None if there were enough.
        starting: Whether the agent has fewer trials than it wants initial points.
        sources: Where the queries of X came from, (n,).
        open_sources: Where the queries of the open points came from, (m,).
        maximiser: How functions are maximised.
        repeats: Whether a point may be queried again.
    """

    t: int
    space: Domain
    X: Array
    y: Array
    open_points: Array
    surrogate: Surrogate
    inbox: Inbox
    federation: Federation
    rng: np.random.Generator
    is_feasible: Mask | None = None
    restrict: Callable[[SampledFunction], SampledFunction] | None = None
    initial: Array | None = None
    starting: bool = False
    sources: Sequence[Source] = ()
    open_sources: Sequence[Source] = ()
    maximiser: Maximiser = argmax
    repeats: bool = False

    @cached_property
    def merit(self) -> Array:
        """Scores (n,), −∞ where a constraint is broken; all as they are if no point is feasible."""
        if self.is_feasible is None or not self.is_feasible.any():
            return self.y
        return np.where(self.is_feasible, self.y, -np.inf)

    @property
    def contenders(self) -> Mask:
        """Which rows of X may hold the best point: the feasible ones, or all if none is."""
        return self.merit > -np.inf

    # What the agent and its peers believe

    @property
    def own_dimensions(self) -> int:
        """How many coordinates, the last ones, belong to the agent's own parameters."""
        return self.space.dimensions - self.federation.space.dimensions

    def shared(self, X: Array) -> Array:
        """Return the coordinates of points (n, ·) that the federation knows, (n, D)."""
        return X[:, : self.federation.space.dimensions]

    @cached_property
    def phi(self) -> Features:
        """The shared features; they ignore the agent's own parameters."""
        return Shared.of(self.federation).phi.beside(self.own_dimensions)

    @cached_property
    def basis(self) -> Basis:
        """The basis of the shared features."""
        return Shared.of(self.federation).basis.beside(self.own_dimensions)

    @property
    def beliefs(self) -> BeliefInbox:
        """The inbox of a policy whose ``kinds`` are beliefs."""
        return cast("BeliefInbox", self.inbox)

    @cached_property
    def belief(self) -> Surrogate:
        """The agent's own model, fitted to all its scores on first use."""
        self.surrogate.update(self.X, self.y, self.rng)
        return self.surrogate

    def own_draw(self, beta: float = 1.0) -> SampledFunction:
        """Draw f_t ~ GP(μ, β_t² σ²), as `GP.sample` does (Algorithm 1, line 4)."""
        return self.belief.sample(self.rng, beta, self.space.points)

    def peer_draw(self, row: int) -> SampledFunction:
        """Return φ(x)ᵀω_n of the message in this row of the inbox (Algorithm 1, line 6)."""
        omega = self.inbox.omega[row]
        if self.federation.is_compact:
            omega = self.basis.vectors @ omega
        return self.phi.function(omega)

    def named(self, rows: Rows, shares: Array) -> dict[str, float]:
        """Return the shares (k,) of the peers in these inbox rows (k,) by name.

        At most 8 of them, all above 0, largest first. The draws of a private release are one peer,
        with the name of who made it.
        """
        if self.federation.privacy is not None:
            total = float(shares.sum())
            return {self.federation.privacy.by: total} if total > 0.0 else {}
        most = np.argsort(-shares)[:_NAMED]
        return {self.inbox.sender(int(rows[k])): float(shares[k]) for k in most if shares[k] > 0.0}

    # From a function to a query: the one place that keeps points from being queried twice

    def query_draw(self, draw: SampledFunction, origin: Origin | None = None) -> Query:
        """Query where a draw is largest; use a new own draw if a trial is pending or failed there.

        A point with a score may be queried again: the next draw differs, and scores are noisy.
        """
        x = self.argmax(draw)
        taken = self._is_near(x[None], self.open_points, draw.length_scales, SAME)
        return self._query_unless(taken, x, origin)

    def query_acquisition(
        self,
        acquisition: SampledFunction,
        origin: Origin | None = None,
        *,
        or_next_best: bool = False,
    ) -> Query:
        """Query where an acquisition function is largest; use an own draw if that point is taken.

        A point is taken if it lies close to any trial: complete, pending or failed. An acquisition
        function hardly changes until the next score, so it would send all parallel workers to one
        point, or insist on a point that fails. With ``or_next_best``, the search's next best points
        come before an own draw.
        """
        scales = np.asarray(self.belief.hyper.length_scales)

        def taken(X: Array) -> Mask:
            is_scored = self._is_near(X, self.X, scales, SAME)
            return is_scored | self._is_near(X, self.open_points, scales, APART)

        x = self.argmax(acquisition, taken if or_next_best else None)
        return self._query_unless(taken(x[None]), x, origin)

    def argmax(self, function: SampledFunction, taken: Taken | None = None) -> Array:
        """Return the point (D,) of the space where the function is largest.

        Points (n, D) that are taken are passed over if the search found others. Listed points are
        not repeated until all were tried, whatever is taken.
        """
        best = self.X[np.argsort(-self.merit)[:_BEST]]
        ignores_own = bool(np.isinf(function.length_scales).any())
        if self.space.points is not None:
            taken = None if self.repeats else self._was_tried
        x = self.maximiser(self._restricted(function), self.space, best, taken)
        return self.complete(x[: -self.own_dimensions]) if ignores_own else x

    def complete(self, shared: Array) -> Array:
        """Return a point of the space with these shared coordinates, which peers may have named.

        An own draw says how the agent's own parameters are best set beside them. Before a score,
        they are random, and in the middle of their ranges at first.
        """
        if not self.own_dimensions:
            return shared
        if not len(self.y):
            own = np.full(self.own_dimensions, 0.5)
            if len(self.open_points):
                own = self.rng.random(self.own_dimensions)
            return np.asarray(self.space.snap(np.append(shared, own)[None])[0])
        beside = Beside(self.space, shared)
        return self.maximiser(self._restricted(self.own_draw()), beside, None, None)

    def _restricted(self, function: SampledFunction) -> SampledFunction:
        return function if self.restrict is None else self.restrict(function)

    def _query_unless(self, taken: Mask, x: Array, origin: Origin | None) -> Query:
        origin = Origin() if origin is None else origin
        if taken.any():
            return Query(self.argmax(self.own_draw()), Origin(trust=origin.trust))
        return Query(x, origin)

    def _is_near(self, X: Array, tried: Array, length_scales: Array, gap: float) -> Mask:
        """Say which rows of X lie within ``gap`` length scales of a trial."""
        if self.repeats or self.space.points is not None:  # `argmax` takes care of listed points
            return np.zeros(len(X), dtype=bool)
        scales = np.minimum(length_scales, 1.0)  # at most the side of the cube
        return np.asarray((squared_distances(X, tried, scales) < gap**2).any(axis=1))

    def _was_tried(self, points: Array) -> Mask:
        """Say which of all listed points were tried; none once all of them were."""
        tried = np.zeros(len(points), dtype=bool)
        tried[rows_of(np.concatenate([self.X, self.open_points]), points)] = True
        return tried & ~tried.all()
