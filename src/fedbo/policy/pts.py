"""Pooled Thompson sampling: all peers at once, as long as they foresee the target's scores.

======  =======================================================================  ========
symbol  meaning                                                                  shape
======  =======================================================================  ========
g_n     φ(x)ᵀω_n, the function of peer n's message                               function
w_n     P_N, learned: how well peer n agrees with the target's own scores        (K,)
γ       trust in the peers, from how well they foresaw these scores              scalar
b_n     largest g_n where the target has been, or is                             (K,)
U       U(x) = Σ_n w_n max(0, g_n(x) − b_n), the pooled improvement              function
s_t     share of the peers in query t                                            scalar
======  =======================================================================  ========

FTS follows one peer at a time, at random, and to where this peer's function is largest, be it next
to a point that was tried. PTS takes the messages together for what they are: draws of what the
target's own function may be like. U is its expected improvement over them, each in its own units,
so that nobody's scale matters. Its first maximiser is good for most peers, the next one for those
that the first was not good for. Where all of them have been followed U vanishes, and the target's
own Thompson sampling has the field.

The guard: own sampling has a share of p_t at least where peers have earned nothing, and
s_t = γ q + (1 − q) e (γ − γ₀)⁺ / (1 − γ₀), q = 1 − p_t, γ₀ the trust before any score: evidence
against the peers shrinks it at once, evidence for them adds up to the part e of what the schedule
keeps for the agent. The very first query after an initial point is the peers'. While γ < 1/2, own
queries first complete the initial design. A message counts for its shape, not for its size: each
function is scaled to a standard deviation of 1 over the cube, so that nobody can shout.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import force_setattr

from fedbo.model.features import Features
from fedbo.model.kernel import Array, single
from fedbo.policy.agreement import START, Agreement
from fedbo.policy.base import Beta, Policy, Query, Target, beta_at, beta_from
from fedbo.schedule import Power, Schedule, schedule_from

_MOST = 1024  # peers that are compared; of more, an even spread
_EARNED = 0.5  # e
_TRUSTED = 0.5  # γ from which own queries need no initial points any more
_LEAST = 0.01  # standard deviations: an improvement that is not worth a query
_FLAT = 1e-6  # standard deviation over the cube: a function that says nothing
_FAINT = 1e-4  # of the largest weight: peers below it do not count
_DRAWS = 2  # own draws at most, to find a point where no trial is open


class PTS(Policy, frozen=True, tag="pts"):
    """Pooled Thompson sampling.

    ``schedule`` is p_t, the share of the own draw if peers have neither earned trust nor lost it.
    With messages at hand the agent starts with one initial point, without them as others do.

    >>> PTS(schedule=0.9).schedule
    Constant(p=0.9)
    >>> PTS().starts(3, messages=0), PTS().starts(3, messages=20)
    (3, 1)
    """

    schedule: Schedule = Power(0.5)
    beta: Beta = 1.0

    def __post_init__(self) -> None:
        force_setattr(self, "schedule", schedule_from(self.schedule))
        force_setattr(self, "beta", beta_from(self.beta))

    def starts(self, n_initial: int, messages: int) -> int:
        return min(n_initial, 1) if messages else n_initial

    def query(self, target: Target) -> Query:
        r = target.rng.random()
        if not len(target.inbox):
            return self._own(target)
        pool = Pool(target)
        weights = target.named(pool.rows, pool.trust * pool.weights)
        if r < self.share(target.t, pool):
            x = target.argmax(pool)
            gains = pool.gains(x)
            if gains.sum() > _LEAST:
                credit = target.named(pool.rows, gains / gains.sum())
                return Query(x, source="pool", credit=credit, weights=weights)
        if pool.trust < _TRUSTED:
            x_initial = target.design()
            if x_initial is not None:
                return Query(x_initial, source="initial", weights=weights)
        return msgspec.structs.replace(self._own(target), weights=weights)

    def share(self, t: int, pool: Pool) -> float:
        """s_t, the probability that query t is the peers'."""
        if pool.visited < 2:
            return 1.0
        q = 1.0 - self.schedule(t)
        earned = max(0.0, (pool.trust - START) / (1.0 - START))
        return pool.trust * q + (1.0 - q) * _EARNED * earned

    def _own(self, target: Target) -> Query:
        open_points = target.open_points()
        for _ in range(_DRAWS):  # another one if a trial is open there: draws like corners
            x = target.argmax(target.own_draw(beta_at(self.beta, target.t)))
            if not (open_points == x).all(axis=1).any():
                break
        return Query(x)


class Pool:
    """U, a function on the cube, and what it is made of.

    ``rows`` (K,) are the peers' rows of the inbox, ``weights`` theirs, ``trust`` is γ, ``visited``
    how many points the target has tried, or is trying.
    """

    screened = 2048

    def __init__(self, target: Target) -> None:
        self.features: Features = target.features
        self.length_scales = self.features.length_scales
        N = len(target.inbox)
        self.rows = np.arange(N) if N <= _MOST else np.linspace(0, N - 1, _MOST).astype(np.intp)
        omegas = target.inbox.omegas(self.rows).astype(np.float64)
        omegas /= np.maximum(self.features.deviation(omegas), _FLAT)[:, None]
        F = self.features(target.X) @ omegas.T
        agreement = Agreement(target.y, F)
        self.trust = agreement.trust
        self.weights = agreement.weights
        counted = self.weights > _FAINT * self.weights.max()
        self.rows, self.weights = self.rows[counted], self.weights[counted]
        visited = np.concatenate([target.X, target.open_points()])
        self.visited = len(visited)
        b = np.zeros(len(self.rows))
        if self.visited:
            b = (self.features(visited) @ omegas[counted].T).max(axis=0)
        self._double = omegas[counted], b, self.weights
        self._single = tuple(map(single, self._double))

    def gains(self, x: Array) -> Array:
        """w_n max(0, g_n(x) − b_n) of each peer (K,): U(x) is their sum."""
        omegas, b, w = self._double
        gains: Array = w * np.maximum(omegas @ self.features(x[None])[0] - b, 0.0)
        return gains

    def __call__(self, X: Array) -> Array:
        omegas, b, w = self._parts(X)
        values: Array = np.maximum(self.features(X) @ omegas.T - b, 0.0) @ w
        return values

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        omegas, b, w = self._parts(X)
        tangent = self.features.tangent(X)
        gains = tangent.Phi @ omegas.T - b
        active = (gains > 0.0) * w  # (n, K)
        value: Array = np.einsum("nk,nk->n", gains, active)
        return value, tangent.gradient(active @ omegas)

    def _parts(self, X: Array) -> tuple[Array, Array, Array]:
        omegas, b, w = self._single if X.dtype == np.float32 else self._double
        return omegas, b, w
