"""What a policy is, what it sees, and what it answers.

======  =======================================================  ========
symbol  meaning                                                  shape
======  =======================================================  ========
t       number of this query of the policy, from 1               scalar
x_t     where to query next, a point of the unit cube            (D,)
f_t     a draw from the target's own GP                          function
β_t     factor on f_t's deviation from the mean                  scalar
P_N     distribution over the peers whose message is not used    (N,)
======  =======================================================  ========
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import ClassVar, Literal, get_args

import msgspec
import numpy as np

from fedbo.message import Kind
from fedbo.message.beliefs import BeliefInbox
from fedbo.message.inbox import Inbox
from fedbo.model.argmax import Maximiser, Taken
from fedbo.model.ascend import Mask
from fedbo.model.features import Features
from fedbo.model.function import SampledFunction
from fedbo.model.kernel import Array, squared_distances
from fedbo.model.leave_one_out import Rows
from fedbo.model.surrogate import Surrogate
from fedbo.space import Part, Space

Beta = float | tuple[float, ...]
Source = Literal["initial", "own", "peer", "pool", "told"]

_NAMED = 8  # peers that a trial names
_SAME = 0.05  # length scales: an open trial that is closer than this is the same
_AGAIN = 0.001  # length scales: a told one that is closer than this is the same


class Query(msgspec.Struct, frozen=True):
    """Where to query next, and who said so: see `fedbo.Trial` for the other fields."""

    x: Array
    source: Source = "own"
    peer: str | None = None
    credit: dict[str, float] = {}
    weights: dict[str, float] = {}


class Policy(msgspec.Struct, frozen=True):
    """How an agent picks its next query.

    The contract: `query` is called once for each query after the initial points, with all scores
    told so far; it takes all randomness from ``target.rng``, keeps no state of its own, and
    changes nothing but the inbox, where it marks messages that it used. An agent may ask several
    times before it is told a score. `chance` is called once for each message that arrives, and
    `starts` before each query. ``kinds`` are the kinds of message that it can use.
    """

    kinds: ClassVar[tuple[Kind, ...]] = get_args(Kind)

    def query(self, target: Target) -> Query:
        """The next query."""
        raise TypeError(f"{type(self).__name__} does not say how to query: define query(target)")

    def chance(self, sender: str) -> float:
        """Return P_N of this peer before normalisation; a peer with 0 is never drawn."""
        return 1.0

    def starts(self, n_initial: int, messages: int) -> int:
        """How many initial points come first, where there are so many messages."""
        return n_initial


class Target:
    """The agent that asks, as its policy sees it: no transport, no units, no names of parameters.

    Of the ``space``, `argmax` looks in the ``part`` only, if there is one.
    ``X`` (n, D) and ``y`` (n,) are its own observations, y in standard units and to be maximised;
    ``open_points()`` (m, D) were asked for and have no score: they are being tried, or failed.
    ``design()`` is the next initial point, or None when there were enough of them.
    ``belief`` is what it believes of its objective, ``beliefs`` what its peers do of theirs.
    ``barred`` are the rows of a discrete domain that `argmax` passes over. ``seconds`` is the CPU
    time spent so far, by part.
    """

    def __init__(
        self,
        *,
        t: int,
        space: Space,
        X: Array,
        y: Array,
        open_points: Callable[[], Array],
        part: Part | None = None,
        design: Callable[[], Array | None] = lambda: None,
        barred: Rows | None = None,
        surrogate: Surrogate,
        inbox: Inbox,
        phi: Features,
        maximiser: Maximiser,
        rng: np.random.Generator,
    ) -> None:
        self.t = t
        self.space = space
        self.X = X
        self.y = y
        self.open_points = open_points
        self.design = design
        self._part = part
        self._barred = barred
        self.inbox = inbox
        self.phi = phi
        self.rng = rng
        self._surrogate = surrogate
        self._maximiser = maximiser
        self.seconds = {"fit": 0.0, "maximise": 0.0}

    @property
    def beliefs(self) -> BeliefInbox:
        """The inbox, if it holds what peers believe and not one draw of it."""
        if not isinstance(self.inbox, BeliefInbox):
            raise TypeError(
                "the policy needs peers' beliefs, and the inbox holds weights; "
                'make the federation with kind="belief"'
            )
        return self.inbox

    @cached_property
    def belief(self) -> Surrogate:
        """The agent's own belief, brought up to date with its scores when first looked at."""
        with self._timed("fit"):
            self._surrogate.update(self.X, self.y, self.rng)
        return self._surrogate

    def own_draw(self, beta: float = 1.0) -> SampledFunction:
        """f_t ~ GP(μ, β² σ²), exact and joint on a discrete domain (Algorithm 1, line 4)."""
        return self.belief.sample(self.rng, beta, self.space.points)

    def peer_draw(self, row: int) -> SampledFunction:
        """φ(x)ᵀω_n of the message in this row of the inbox (Algorithm 1, line 6)."""
        return self.phi.function(self.inbox.omega[row])

    def named(self, rows: Rows, shares: Array) -> dict[str, float]:
        """The largest of the shares that these rows of the inbox have, by the peers' names."""
        most = np.argsort(-shares)[:_NAMED]
        return {self.inbox.sender(int(rows[k])): float(shares[k]) for k in most if shares[k] > 0.0}

    def argmax(self, function: SampledFunction, taken: Taken | None = None) -> Array:
        """The point of the space where the function is largest, if possible of those not taken."""
        best = self.X[np.argsort(-self.y)[:5]]
        with self._timed("maximise"):
            if self._barred is not None and self.space.points is not None:
                return self._allowed(np.asarray(function(self.space.points)), taken)
            return self._maximiser(function, self._part or self.space, best, taken)

    def _allowed(self, values: Array, taken: Taken | None) -> Array:
        """The listed point with the largest value that is not barred, if possible not taken."""
        points = self.space.points
        assert points is not None
        out = np.zeros(len(points), dtype=bool)
        out[self._barred] = True
        if taken is not None and not (either := out | taken(points)).all():
            out = either
        x: Array = points[int(np.argmax(np.where(out, -np.inf, values)))]
        return x

    def taken(self, X: Array) -> Mask:
        """(n,) whether a row of X is where a trial is open, or as good as exactly was."""
        scales = np.minimum(self.belief.hyper.length_scales, 1.0)
        near = np.zeros(len(X), dtype=bool)
        for points, gap in ((self.open_points(), _SAME), (self.X, _AGAIN)):
            near |= (squared_distances(X, points, scales) < gap**2).any(axis=1)
        return near

    def elsewhere(self, x: Array) -> Array:
        """x, or the maximiser of an own draw if x is taken.

        For policies that would answer the same until something changes: they would send all
        parallel workers to one point, and never leave one that fails or that others praise.
        """
        return self.argmax(self.own_draw()) if self.taken(x[None])[0] else x

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        start = time.thread_time()
        yield
        self.seconds[part] += time.thread_time() - start


def beta_from(value: float | Sequence[float] | Array) -> Beta:
    """β_t as given: one number, or β_1, β_2, … of which the last stays.

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
    """β_t.

    >>> beta_at(1.0, 7), beta_at((2.0, 3.0), 1), beta_at((2.0, 3.0), 7)
    (1.0, 2.0, 3.0)
    """
    return beta if isinstance(beta, float) else beta[min(t, len(beta)) - 1]
