"""Pooled Thompson sampling: the messages of all peers become the prior of the target's belief.

======  =======================================================================  ========
symbol  meaning                                                                  shape
======  =======================================================================  ========
p_t     probability that query t is the agent's own Thompson sampling            scalar
w_n     P_N, learned: how well peer n agrees with the target's own scores        (K,)
Q       trust in the peers: how probable it is that listening to them is right   scalar
======  =======================================================================  ========

FTS follows one peer at a time, at random, and to where this peer's function is largest, be it next
to a point that was tried. PTS takes the messages together for what they are: draws of functions of
which the target's own may be one more. With probability 1 − p_t it queries where the improvement
that `Pool` expects is largest, otherwise where an own draw is.

The guard: p_t → 1, so that in the end only own draws count, as in the paper. And the pool is no
more than its evidence: from the first scores on Q, and with it all that peers can do to a query, is
how well they foretold what came. Where Q is near 0 the pool is the agent's own belief, and while it
is below 0.3 the initial points that were left out come first.
A message counts for its shape, not for its size.
"""

from __future__ import annotations

from msgspec.structs import force_setattr

from fedbo.policy.base import Beta, Policy, Query, Target, beta_at, beta_from
from fedbo.policy.pool import Pool
from fedbo.policy.schedule import Gradual, Schedule, schedule_from

_LAST = 200  # scores: with more of them the target knows better, and a pool would be slow
_TRUSTED = 0.3  # Q from which the agent needs no more initial points
_DRAWS = 2  # own draws at most, to find a point where no trial is open


class PTS(Policy, frozen=True, tag="pts"):
    """Pooled Thompson sampling.

    ``schedule`` is p_t, the share of own draws. With messages at hand the agent starts with one
    initial point. Without them, and beyond 200 scores, it is Thompson sampling. It weighs peers by
    itself: `weight` is not used.

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
        x_initial = target.design() if len(target.X) > 1 else None
        if own and x_initial is None:
            return self._own(target)
        pool = Pool(target)
        weights = target.named(pool.rows, pool.trust * pool.shares)
        if x_initial is not None and pool.trust < _TRUSTED:
            return Query(x_initial, source="initial", weights=weights)
        if own:
            return self._own(target)
        best = target.argmax(pool, target.taken)
        x = target.elsewhere(best)
        praise = pool.praise(x)
        if x is not best or pool.peer_share(x) < 0.5 or not praise.any():
            return Query(x, weights=weights)
        credit = target.named(pool.rows, praise / praise.sum())
        return Query(x, source="pool", credit=credit, weights=weights)

    def _own(self, target: Target) -> Query:
        open_points = target.open_points()
        for _ in range(_DRAWS):  # another one if a trial is open there: draws like corners
            x = target.argmax(target.own_draw(beta_at(self.beta, target.t)))
            if not (open_points == x).all(axis=1).any():
                break
        return Query(x)
