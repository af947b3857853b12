"""Thompson sampling, alone and federated: Algorithm 1 of the paper, line by line.

======  ====================================================================
symbol  meaning
======  ====================================================================
p_t     ``schedule``: probability of the own draw in query t
r       uniform on [0, 1]; the own draw is used if r ≤ p_t
P_N     ``P_N``: distribution over the peers whose message was not used yet, renormalised
β_t     ``beta``
ω_n     a peer's message; its function is φ(x)ᵀω_n
======  ====================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import force_setattr

from fedbo.message import Kind
from fedbo.message.inbox import CHANCE_LIMIT
from fedbo.policy.base import Beta, Policy, Power, Schedule, beta_at, beta_from, schedule_from
from fedbo.policy.target import Origin, Query, Target


class TS(Policy, frozen=True, tag="ts"):
    """Thompson sampling on the agent's own GP: an agent that works alone.

    >>> TS()
    TS(beta=1.0)
    """

    beta: Beta = 1.0

    def __post_init__(self) -> None:
        force_setattr(self, "beta", beta_from(self.beta))

    def query(self, target: Target) -> Query:
        f_t = target.own_draw(beta_at(self.beta, target.t))
        return target.query_draw(f_t)


class FTS(Policy, frozen=True, tag="fts"):
    """Federated Thompson sampling, the paper's algorithm.

    Each query follows one peer's message with probability 1 − p_t, and the agent's own posterior
    otherwise. A message is used once; when none is left, every query is the agent's own.

    Args:
        schedule: p_t, the probability of an own draw: a schedule such as `fedbo.Power`, a number
            or a sequence. Default: 1 − 1/√t.
        P_N: Probabilities of the peers by name; a peer that is not named is never drawn. None
            (the default) draws all peers alike.
        beta: β_t, a constant or a sequence.

    >>> FTS(schedule=0.5).schedule
    Steps(values=(0.5,))
    >>> FTS(P_N={"site-a": 0.7, "site-b": 0.3}).chance("site-c")
    0.0
    """

    schedule: Schedule = Power(0.5)
    P_N: dict[str, float] | None = None
    beta: Beta = 1.0

    kinds: ClassVar[tuple[Kind, ...]] = ("weights", "compact", "belief")

    def __post_init__(self) -> None:
        force_setattr(self, "schedule", schedule_from(self.schedule))
        force_setattr(self, "beta", beta_from(self.beta))
        if self.P_N is not None:
            force_setattr(self, "P_N", _distribution(self.P_N))

    def query(self, target: Target) -> Query:
        p_t = self.schedule(target.t)
        r = target.rng.random()  # line 2
        n = None if r <= p_t else target.inbox.draw(target.rng)  # lines 3 and 6
        if n is None:
            f_t = target.own_draw(beta_at(self.beta, target.t))  # line 4
            return target.query_draw(f_t)
        target.inbox.use(n)  # its element of P_N becomes 0 (section 3.1)
        origin = Origin("peer", credit={target.inbox.sender(n): 1.0})
        return target.query_draw(target.peer_draw(n), origin)

    def chance(self, sender: str) -> float:
        return 1.0 if self.P_N is None else self.P_N.get(sender, 0.0)


def _distribution(chances: Mapping[str, float]) -> dict[str, float]:
    P_N = {name: float(p) for name, p in chances.items()}
    for name, p in P_N.items():
        if not 0.0 <= p <= CHANCE_LIMIT:
            raise ValueError(f"P_N[{name!r}] is {p!r}, expected 0 to {CHANCE_LIMIT}")
    if not sum(P_N.values()) > 0.0:
        raise ValueError(f"P_N is {chances!r}, expected at least one peer with more than 0")
    return P_N
