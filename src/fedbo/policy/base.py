"""What a policy is, what it sees, and what it returns.

======  =======================================================  ========
symbol  meaning                                                  shape
======  =======================================================  ========
t       number of this query of the policy, from 1               scalar
x_t     the next query, a point of the unit cube                 (D,)
f_t     a draw from the target's own GP                          function
β_t     factor on f_t's deviation from the mean                  scalar
P_N     distribution over the peers whose message is not used    (N,)
======  =======================================================  ========
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import ClassVar, Protocol, get_args

import msgspec
import numpy as np

from fedbo.message import Kind
from fedbo.message.beliefs import BeliefInbox
from fedbo.message.inbox import Inbox
from fedbo.model.argmax import Domain, Taken, argmax
from fedbo.model.ascend import Mask
from fedbo.model.features import Features
from fedbo.model.function import SampledFunction
from fedbo.model.gp import rows_of
from fedbo.model.kernel import Array, squared_distances
from fedbo.model.leave_one_out import Rows
from fedbo.model.surrogate import Surrogate
from fedbo.policy.origin import Origin, OriginError

Beta = float | tuple[float, ...]

_NAMED = 8  # peers that an origin names at most
SAME = 0.001  # length scales: points that are closer than this are the same
APART = 0.05  # length scales: how far an acquisition function's query stays from open trials
_BEST = 5  # told points that a search also starts from
_SLACK = 1e-9  # rounding at the faces of the cube


class Query(msgspec.Struct, frozen=True):
    """The next query, as a policy returns it.

    Args:
        x: A point (D,) of the unit cube.
        origin: Where the query came from; the agent's own model by default.
    """

    x: Array
    origin: Origin = Origin()


class Policy(msgspec.Struct, frozen=True):
    """The rule by which an agent picks its next query.

    The contract: `query` is called once for each query after the initial points, with all scores
    told so far. It takes all randomness from ``target.rng``, keeps no state of its own, and
    changes nothing but the inbox, where it marks messages that it used. An agent may ask several
    times before it is told a score. `chance` is called once for each message that arrives.
    ``kinds`` are the kinds of message that the policy can use.

    >>> class Centre(Policy, frozen=True):
    ...     def query(self, target):
    ...         return Query(np.full(target.space.dimensions, 0.5))
    >>> Centre().chance("site-a")
    1.0
    """

    kinds: ClassVar[tuple[Kind, ...]] = get_args(Kind)

    def query(self, target: Target) -> Query:
        """Choose the next query.

        Args:
            target: The agent that asks, as its policy sees it.
        """
        raise TypeError(f"{type(self).__name__} does not say how to query: define query(target)")

    def starts(self, n_initial: int, messages: int) -> int:
        """Return how many initial points come before the first query.

        Args:
            n_initial: The number that the agent's settings ask for; the default.
            messages: How many messages the agent holds.
        """
        return n_initial

    def chance(self, sender: str) -> float:
        """Return this peer's P_N before normalisation; 0 means that it is never drawn."""
        return 1.0


class Maximiser(Protocol):
    """What finds where a function is largest: see `fedbo.model.argmax.argmax`."""

    def __call__(
        self,
        function: SampledFunction,
        domain: Domain,
        near: Array | None = None,
        taken: Taken | None = None,
    ) -> Array: ...


class Target:
    """The agent that asks, as its policy sees it: no transport, no units, no parameter names.

    A target is made for one query. Its attributes are data; its methods compute with them.

    Args:
        t: Number of this query, from 1.
        space: Where queries may lie.
        X: Points (n, D) of the agent's scores.
        y: Scores (n,) in standard units, to be maximised.
        open_points: Points (m, D) that were asked for and have no score: pending or failed.
        surrogate: The agent's own model.
        inbox: The messages that the agent holds.
        phi: The shared features.
        rng: The source of all randomness of this query.
        initial: The next initial point (D,), or None if there were enough.
        maximiser: How functions are maximised.
        repeats: Whether a point may be queried again.
    """

    def __init__(
        self,
        *,
        t: int,
        space: Domain,
        X: Array,
        y: Array,
        open_points: Array,
        surrogate: Surrogate,
        inbox: Inbox,
        phi: Features,
        rng: np.random.Generator,
        initial: Array | None = None,
        maximiser: Maximiser = argmax,
        repeats: bool = False,
    ) -> None:
        self.t = t
        self.space = space
        self.X = X
        self.y = y
        self.open_points = open_points
        self.initial = initial
        self.inbox = inbox
        self.phi = phi
        self.rng = rng
        self.seconds = {"fit": 0.0, "maximise": 0.0}  # CPU time, by part
        self._repeats = repeats
        self._surrogate = surrogate
        self._maximiser = maximiser

    # What the agent and its peers believe

    @property
    def beliefs(self) -> BeliefInbox:
        """The inbox, if it holds beliefs and not weights."""
        if not isinstance(self.inbox, BeliefInbox):
            raise TypeError(
                "the policy needs peers' beliefs, and the inbox holds weights; "
                'make the federation with kind="belief"'
            )
        return self.inbox

    @cached_property
    def belief(self) -> Surrogate:
        """The agent's own model, fitted to all its scores on first use."""
        with self._timed("fit"):
            self._surrogate.update(self.X, self.y, self.rng)
        return self._surrogate

    def own_draw(self, beta: float = 1.0) -> SampledFunction:
        """Draw f_t ~ GP(μ, β² σ²), exact and joint on listed points (Algorithm 1, line 4)."""
        return self.belief.sample(self.rng, beta, self.space.points)

    def peer_draw(self, row: int) -> SampledFunction:
        """Return φ(x)ᵀω_n of the message in this row of the inbox (Algorithm 1, line 6)."""
        return self.phi.function(self.inbox.omega[row])

    def named(self, rows: Rows, shares: Array) -> dict[str, float]:
        """Return the largest of these shares by the names of the peers in these inbox rows."""
        most = np.argsort(-shares)[:_NAMED]
        return {self.inbox.sender(int(rows[k])): float(shares[k]) for k in most if shares[k] > 0.0}

    # From a function to a query: the one place that keeps points from being queried twice

    def query_draw(self, draw: SampledFunction, origin: Origin | None = None) -> Query:
        """Query where a draw is largest.

        If a trial is pending or failed there, an own draw is maximised instead. A point that has a
        score may be queried again: the next draw differs, and the score may be noisy.

        Args:
            draw: A draw of the agent's own model, or the function of one message.
            origin: Where the draw came from; the agent's own model by default.
        """
        x = self.argmax(draw)
        near_open = self._is_near(x[None], self.open_points, draw.length_scales, SAME)[0]
        return self._query_unless(bool(near_open), x, origin)

    def query_acquisition(
        self,
        acquisition: SampledFunction,
        origin: Origin | None = None,
        *,
        or_next_best: bool = False,
    ) -> Query:
        """Query where an acquisition function is largest, if that point is not taken.

        A point is taken if it lies close to a trial (in length scales of the agent's own model),
        whether that has a score, is pending or failed. Then an own draw is maximised instead. An
        acquisition function hardly changes until a score is told, so it would send all parallel
        workers to one point, or insist on a point that fails.

        Args:
            acquisition: The function to maximise.
            origin: Where the function came from; the agent's own model by default.
            or_next_best: Whether to try the next best places that the search found first.
        """
        scales = np.asarray(self.belief.hyper.length_scales)

        def taken(X: Array) -> Mask:
            told = self._is_near(X, self.X, scales, SAME)
            return told | self._is_near(X, self.open_points, scales, APART)

        x = self.argmax(acquisition, taken if or_next_best else None)
        return self._query_unless(bool(taken(x[None])[0]), x, origin)

    def argmax(self, function: SampledFunction, taken: Taken | None = None) -> Array:
        """Return the point (D,) of the space where the function is largest.

        Of listed points, those that were tried are passed over until all of them were.

        Args:
            function: The function to maximise.
            taken: Tells which points (n, D) to pass over if the search found others.
        """
        best = self.X[np.argsort(-self.y)[:_BEST]]
        if self.space.points is not None:
            taken = None if self._repeats else self._was_tried
        with self._timed("maximise"):
            return self._maximiser(function, self.space, best, taken)

    def _query_unless(self, taken: bool, x: Array, origin: Origin | None) -> Query:
        origin = Origin() if origin is None else origin
        if taken:
            return Query(self.argmax(self.own_draw()), Origin(trust=origin.trust))
        return Query(x, origin)

    def _is_near(self, X: Array, tried: Array, length_scales: Array, gap: float) -> Mask:
        """Which rows of X lie closer than ``gap`` length scales to a trial; none if allowed."""
        if self._repeats or self.space.points is not None:
            return np.zeros(len(X), dtype=bool)
        scales = np.minimum(length_scales, 1.0)  # at most the side of the cube
        close = squared_distances(X, tried, scales) < gap**2
        return np.asarray(close.any(axis=1))

    def _was_tried(self, points: Array) -> Mask:
        """Which of all listed points were tried; none once all of them were."""
        tried = np.zeros(len(points), dtype=bool)
        tried[rows_of(np.concatenate([self.X, self.open_points]), points)] = True
        return tried & ~tried.all()

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        start = time.thread_time()
        yield
        self.seconds[part] += time.thread_time() - start


def checked_query(policy: Policy, target: Target) -> Query:
    """Return the policy's next query, or raise an error that names the policy.

    Policies are written by others too: a point outside the space, or something else than a
    `Query`, would otherwise go unnoticed or fail much later.
    """
    name = type(policy).__name__
    try:
        query = policy.query(target)
    except OriginError as error:
        raise ValueError(f"policy {name} made an invalid origin: {error}") from error
    if not isinstance(query, Query):
        raise TypeError(
            f"policy {name} returned {query!r}, expected a fedbo.Query: return "
            "target.query_draw(draw), or fedbo.Query(x)"
        )
    if not isinstance(query.origin, Origin):
        raise TypeError(f"policy {name} returned the origin {query.origin!r}, expected an Origin")
    try:
        x = np.asarray(query.x, dtype=np.float64)
    except (TypeError, ValueError):
        x = np.empty(0)
    if x.shape != (target.space.dimensions,) or not np.isfinite(x).all():
        raise ValueError(
            f"policy {name} returned x = {query.x!r}, expected {target.space.dimensions} finite "
            "numbers, one for each dimension of the unit cube"
        )
    low, high = target.space.box
    if ((x < low - _SLACK) | (x > high + _SLACK)).any():
        raise ValueError(
            f"policy {name} returned x = {x.tolist()}, which is outside the space: expected "
            f"{low.tolist()} to {high.tolist()}"
        )
    return Query(x, query.origin)


def beta_from(value: float | Sequence[float] | Array) -> Beta:
    """Return β_t as given: one number, or β_1, β_2, … of which the last stays.

    >>> beta_from(1), beta_from([2, 3])
    (1.0, (2.0, 3.0))
    """
    value = value.tolist() if isinstance(value, np.ndarray) else value
    values = tuple(map(float, value)) if isinstance(value, Sequence) else (float(value),)
    if not values or not all(0.0 <= b < math.inf for b in values):
        raise ValueError(
            f"beta is {value!r}, expected a number of 0 or more, or a sequence of them"
        )
    return values if isinstance(value, Sequence) else values[0]


def beta_at(beta: Beta, t: int) -> float:
    """Return β_t.

    >>> beta_at(1.0, 7), beta_at((2.0, 3.0), 1), beta_at((2.0, 3.0), 7)
    (1.0, 2.0, 3.0)
    """
    return beta if isinstance(beta, float) else beta[min(t, len(beta)) - 1]
