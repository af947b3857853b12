"""Pooled Thompson sampling: the messages of all peers become a prior of the target's belief.

======  =======================================================================  ========
symbol  meaning                                                                  shape
======  =======================================================================  ========
p_t     probability that query t is the agent's own Thompson sampling            scalar
w_n     P_N, learned: how well peer n agrees with the target's own scores        (K,)
Q       trust in the peers: the probability that listening to them is right      scalar
======  =======================================================================  ========

FTS follows one peer at a time, chosen at random, to where this peer's function is largest, even
next to a point that was tried. PTS uses all messages together: each is a draw of a function, and
the target's own function may be one more draw of the same kind. With probability 1 − p_t it
queries where the expected improvement of `Pool` is largest, otherwise where an own draw is largest.

Two things guard against useless and hostile peers. First, p_t → 1: in the end only own draws
count, as in the paper. Second, Q measures how well the peers predicted the scores. If Q is near 0,
the pool is the agent's own belief. While Q is below 0.3, the agent first takes the initial points
that it had skipped.
"""

from __future__ import annotations

from msgspec.structs import force_setattr

from fedbo.policy.base import Beta, Policy, beta_at, beta_from
from fedbo.policy.pool import Pool
from fedbo.policy.query import Origin, Query
from fedbo.policy.schedule import Gradual, Schedule, schedule_from
from fedbo.policy.target import Target

_LAST = 200  # scores: with more, the target needs no peers, and a pool would be slow
_TRUSTED = 0.3  # Q from which the agent needs no more initial points


class PTS(Policy, frozen=True, tag="pts"):
    """Pooled Thompson sampling, the default policy.

    An agent that holds messages starts with one initial point. Without messages, and beyond 200
    scores, PTS is Thompson sampling. It weighs peers by itself and does not use `chance`.

    Args:
        schedule: p_t, the probability of an own draw. Default: 1 − (1 + t/32)^−½.
        beta: β_t of own draws, a constant or a sequence.

    >>> PTS(schedule=0.9).schedule
    Constant(p=0.9)
    >>> PTS().starts(3, messages=0), PTS().starts(3, messages=20)
    (3, 1)
    """

    schedule: Schedule = Gradual(32)
    beta: Beta = 1.0

    def __post_init__(self) -> None:
        force_setattr(self, "schedule", schedule_from(self.schedule))
        force_setattr(self, "beta", beta_from(self.beta))

    def starts(self, n_initial: int, messages: int) -> int:
        return min(n_initial, 1) if messages else n_initial

    def query(self, target: Target) -> Query:
        own = target.rng.random() < self.schedule(target.t)
        if not len(target.inbox) or len(target.X) > _LAST:
            return self._own(target)
        skipped = target.initial if len(target.X) > 1 else None
        if own and skipped is None:
            return self._own(target)
        pool = Pool(target)
        trust = target.named(pool.rows, pool.trust * pool.shares)
        if skipped is not None and pool.trust < _TRUSTED:
            return Query(skipped, Origin("initial", trust=trust))
        if own:
            return self._own(target)
        origin = Origin("pool", trust=trust)
        query = target.query_acquisition(pool, origin, or_next_best=True)
        if query.origin.source == "own":
            return query
        praise = pool.praise(query.x)
        if pool.peer_share(query.x) < 0.5 or not praise.any():
            return Query(query.x, Origin(trust=trust))
        credit = target.named(pool.rows, praise / praise.sum())
        return Query(query.x, Origin("pool", credit=credit, trust=trust))

    def _own(self, target: Target) -> Query:
        return target.query_draw(target.own_draw(beta_at(self.beta, target.t)))
