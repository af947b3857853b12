"""Tips, then the pool: peers are asked first what to try, and then what to expect.

The first trials are tips of peers (`fedbo.policy.tips`), from trial 1 on. If there are fewer tips
than initial points, these fill up. Otherwise trial 8 is the first initial point, because points
where peers point may leave the own model ignorant elsewhere. If it beats all trials before, the
peers are of no use so far, and the other initial points follow.

After the tips, the messages of all peers together are a prior of the target's own function, and the
next query is where the expected improvement of this `Pool` is largest. Two things guard against
useless peers. First, p_t → 1, the chance that query t is the agent's own Thompson sampling. Second,
while Q, how well the peers predicted the scores, is below 0.3, it queries as if it were alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import force_setattr

from fedbo.policy.base import Policy
from fedbo.policy.ei import query_alone
from fedbo.policy.peers import Peers
from fedbo.policy.pool import Pool
from fedbo.policy.query import Origin, Query, Source
from fedbo.policy.schedule import Gradual, Schedule, schedule_from
from fedbo.policy.target import Target
from fedbo.policy.tips import next_tip

_LAST = 200  # scores: with more, the target needs no peers, and a pool would be slow
_TRUSTED = 0.3  # Q from which the pool is followed
_BEFORE = 7  # trials before the initial point of an agent that follows tips


class TipsThenPool(Policy, frozen=True, tag="tips-then-pool"):
    """Tries the tips of peers, then follows the expected improvement of their pool. The default.

    Without messages, and beyond 200 scores, it is `EI`. It weighs peers by itself and does not use
    `chance`.

    Args:
        schedule: p_t, the probability of an own draw. Default: 1 − (1 + t/32)^−½.

    >>> TipsThenPool(schedule=0.9).schedule
    Steps(values=(0.9,))
    """

    schedule: Schedule = Gradual(32)

    begins: ClassVar[bool] = True

    def __post_init__(self) -> None:
        force_setattr(self, "schedule", schedule_from(self.schedule))

    def query(self, target: Target) -> Query:
        listens = bool(target.inbox.informed) and len(target.X) <= _LAST
        peers = Peers(target) if listens else None
        initial = None if target.initial is None else Query(target.initial, Origin("initial"))
        sources = [*target.sources, *target.open_sources]
        if initial is not None and "tip" in sources and _initial_point_is_best(target, sources):
            return initial
        tip = None if peers is None else next_tip(target, peers)
        if tip is not None:
            return tip
        is_due = "tip" in sources and "initial" not in sources and len(sources) >= _BEFORE
        if initial is not None and (target.starting or is_due):
            return initial
        is_draw = target.rng.random() < self.schedule(target.t)
        if peers is None or is_draw:
            return query_alone(target, is_draw)
        return _query_pool(target, peers)


def _initial_point_is_best(target: Target, sources: Sequence[Source]) -> bool:
    """Whether the last trial was an initial point, and one of them is best so far."""
    best = target.sources[int(target.y.argmax())] if len(target.y) else None
    return sources[-1] == best == "initial"


def _query_pool(target: Target, peers: Peers) -> Query:
    pool = Pool(target, peers)
    trust = target.named(peers.rows, pool.trust * pool.shares)
    if pool.trust < _TRUSTED:
        return Query(query_alone(target, is_draw=False).x, Origin(trust=trust))
    query = target.query_acquisition(pool, Origin("pool", trust=trust), or_next_best=True)
    praise = pool.praise(query.x)
    if query.origin.source == "own" or not praise.any():
        return Query(query.x, Origin(trust=trust))
    credit = target.named(peers.rows, praise / praise.sum())
    return Query(query.x, Origin("pool", credit=credit, trust=trust))
