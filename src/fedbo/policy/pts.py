"""Pooled Thompson sampling: the messages of all peers become a prior of the target's belief.

======  =======================================================================  ========
symbol  meaning                                                                  shape
======  =======================================================================  ========
p_t     probability that query t is the agent's own Thompson sampling            scalar
w_n     P_N, learned: how well peer n agrees with the target's own scores        (K,)
Q       trust in the peers: the probability that listening to them is right      scalar
======  =======================================================================  ========

FTS follows one peer at a time, chosen at random, to where this peer's function is largest, even
next to a point that was tried. PTS uses all messages together: what the peers know becomes a prior
of the target's own function. Where no peer has been, the prior claims nothing. PTS queries where
the expected improvement of `Pool` is largest.

Three things guard against useless and hostile peers. First, p_t → 1: in the end only own draws
count, as in the paper. Second, Q measures how well the peers predicted the scores, and while it is
below 0.3, the agent queries as if it were alone. Third, few or young peers must not be all that an
agent looks at: after two queries of the pool come the initial points of an agent alone.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import force_setattr

from fedbo.policy.base import Policy
from fedbo.policy.ei import query_alone
from fedbo.policy.pool import Pool
from fedbo.policy.query import Origin, Query
from fedbo.policy.schedule import Gradual, Schedule, schedule_from
from fedbo.policy.target import Target

_LAST = 200  # scores: with more, the target needs no peers, and a pool would be slow
_TRUSTED = 0.3  # Q from which the pool is followed
_FIRST = 2  # queries of the pool before the other initial points
_MANY = 300  # trials behind the messages from which these initial points are not needed


class PTS(Policy, frozen=True, tag="pts"):
    """Pooled Thompson sampling, the default policy.

    An agent that holds messages starts with one initial point and two queries of the pool. If the
    peers have made fewer than 300 trials together, the other initial points come next. After that,
    the pool queries. Without messages, and beyond 200 scores, PTS is `EI`. It weighs peers by
    itself and does not use `chance`.

    Args:
        schedule: p_t, the probability of an own draw. Default: 1 − (1 + t/32)^−½.

    >>> PTS(schedule=0.9).schedule
    Constant(p=0.9)
    >>> PTS().starts(3, messages=0), PTS().starts(3, messages=20)
    (3, 1)
    """

    schedule: Schedule = Gradual(32)

    def __post_init__(self) -> None:
        force_setattr(self, "schedule", schedule_from(self.schedule))

    def starts(self, n_initial: int, messages: int) -> int:
        return min(n_initial, 1) if messages else n_initial

    def query(self, target: Target) -> Query:
        is_draw = target.rng.random() < self.schedule(target.t)
        if not target.inbox.informed or len(target.X) > _LAST:
            return query_alone(target, is_draw)
        behind = int(target.inbox.t_n.sum(dtype=np.int64))  # trials behind the messages
        if target.initial is not None and target.t > _FIRST and behind < _MANY:
            return Query(target.initial, Origin("initial"))
        if is_draw:
            return query_alone(target, is_draw)
        pool = Pool(target)
        trust = target.named(pool.rows, pool.trust * pool.shares)
        if pool.trust < _TRUSTED:
            if target.initial is not None:
                return Query(target.initial, Origin("initial", trust=trust))
            return Query(query_alone(target, is_draw).x, Origin(trust=trust))
        query = target.query_acquisition(pool, Origin("pool", trust=trust), or_next_best=True)
        praise = pool.praise(query.x)
        if query.origin.source == "own" or not praise.any():
            return Query(query.x, Origin(trust=trust))
        credit = target.named(pool.rows, praise / praise.sum())
        return Query(query.x, Origin("pool", credit=credit, trust=trust))
