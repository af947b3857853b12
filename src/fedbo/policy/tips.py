"""How the first trials are chosen: tips of peers, and initial points.

======  =======================================================================  ===========
symbol  meaning                                                                  shape
======  =======================================================================  ===========
r_n(x)  regret of peer n at x, from 0 to 1, and 0 at its own tip; see `Peers`    (n, K)
w_n     share of peer n: how well its function orders the target's scores        (K,)
c_n     regret of peer n at the target's best trial or at an open one, if that   (K,)
        is lower; 1 if there are none
======  =======================================================================  ===========

**Tips.** The points that peers recommend are tried before anything that an agent finds by itself,
from trial 1 on. An untried tip of a peer that seems to know is worth a trial. The next one is the
tip with the largest gain, Σ w_n max(c_n − r_n(x), 0). So the first tip suits all peers as well as
one point can. The second suits those that the first does not suit, and as scores come in, peers
that predicted them count more. Tips that arrive later are followed by the same rule.

Only peers that have made more trials than the target are asked for tips. At most three are followed
in a row, those that failed included: after that, the agent's own queries must find a new best point
first. So peers that know nothing, or that send ever new tips, cannot take over. A tip says nothing
about an agent's own parameters: they are in the middle at first, then where an own draw is largest.

**Initial points.** If there are fewer tips than initial points, these fill up. Otherwise trial 8 is
the first initial point, because points where peers point may leave the own model ignorant
elsewhere. If it beats all trials before, the peers are of no use so far, and the other initial
points follow. The points themselves are a design (`Settings.design_point`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedbo.model.kernel import Array
from fedbo.policy.peers import Peers, is_same
from fedbo.policy.target import Origin, Query, Source, Target

IN_A_ROW = 3  # tips, before the agent's own queries must find a better point
_LEAST = 0.02  # gain, below which a tip is not worth a trial
_BEFORE = 7  # trials before the initial point of an agent that follows tips


def first_trial(target: Target, peers: Peers | None) -> Query | None:
    """Return a tip or an initial point to try next, or None if it is time to query.

    Peers are None if they are not asked.
    """
    initial = None if target.initial is None else Query(target.initial, Origin("initial"))
    sources = [*target.sources, *target.open_sources]
    if initial is not None and "tip" in sources and _initial_point_is_best(target, sources):
        return initial
    tip = None if peers is None else next_tip(target, peers)
    if tip is not None:
        return tip
    is_due = "tip" in sources and "initial" not in sources and len(sources) >= _BEFORE
    return initial if target.starting or is_due else None


def _initial_point_is_best(target: Target, sources: Sequence[Source]) -> bool:
    """Whether the last trial was an initial point, and one of them is best so far."""
    best = target.sources[int(target.merit.argmax())] if len(target.y) else None
    return sources[-1] == best == "initial"


def next_tip(target: Target, peers: Peers) -> Query | None:
    """Return the tip to try next, or None if no tip is worth a trial."""
    is_mature = target.inbox.t_n[peers.rows] > len(target.X)
    if not is_mature.any() or _followed_in_a_row(target) >= IN_A_ROW:
        return None
    tips = _untried(target, peers.tips)
    if not len(tips):
        return None
    w = peers.w * is_mature
    best = target.X[np.argmax(target.merit)][None] if len(target.y) else target.X
    before = target.shared(np.concatenate([best, target.open_points]))
    covered = peers.regret(before).min(axis=0, initial=1.0)
    gains = w * np.maximum(covered - peers.regret(tips), 0.0)  # (tips, K)
    first = int(gains.sum(axis=1).argmax())
    gain = float(gains[first].sum())
    if gain < _LEAST:
        return None
    credit = target.named(peers.rows, gains[first] / gain)
    x = target.complete(tips[first])
    return Query(x, Origin("tip", credit=credit, trust=target.named(peers.rows, w)))


def _followed_in_a_row(target: Target) -> int:
    """Count the tips since an own query found a new best point."""
    count, best = 0, -np.inf
    for source, score in zip(target.sources, target.merit, strict=True):
        if source == "tip":
            count += 1
        elif source in ("own", "pool", "peer") and score > best:
            count = 0
        best = max(best, score)
    return count + target.open_sources.count("tip")


def _untried(target: Target, tips: Array) -> Array:
    """Return the tips that differ, lie where queries may, and are no trial yet."""
    tips = np.unique(tips, axis=0)
    anywhere = np.pad(tips, ((0, 0), (0, target.own_dimensions)), constant_values=0.5)
    tips = tips[np.isclose(target.shared(target.space.snap(anywhere)), tips).all(axis=1)]
    tried = target.shared(np.concatenate([target.X, target.open_points]))
    return tips[~is_same(tips, tried).any(axis=1)]
