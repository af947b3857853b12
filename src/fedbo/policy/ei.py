"""Expected improvement of the agent's own GP: the strongest policy of an agent that works alone.

Early on, expected improvement (EI) finds good points faster than Thompson sampling. On its own it
can stay where a wrong fit of the hyper-parameters leads it, so a slowly growing share of the
queries are draws, which look everywhere in the end. ``docs/transfer.md`` has the measurements.
"""

from __future__ import annotations

from msgspec.structs import force_setattr

from fedbo.model.argmax import Search
from fedbo.policy.base import Policy
from fedbo.policy.improvement import ExpectedImprovement
from fedbo.policy.query import Query
from fedbo.policy.schedule import Gradual, Schedule, schedule_from
from fedbo.policy.target import Target


class OwnImprovement(ExpectedImprovement):
    """log EI of the agent's own belief, with a quick search for its maximum.

    Once good points are known, the maximum is often a narrow peak, a tenth to a third of a length
    scale from the best of them. So a cloud around each of the best trials is screened, with a few
    points elsewhere. In 600 problems this found as much as eight times as many points without
    clouds, in half the time.
    """

    screened = 512
    search = Search(around=64, starts=10, gain=1e-3, hope=2.0)


class EI(Policy, frozen=True, tag="ei"):
    """Expected improvement of the agent's own GP, for an agent that works alone.

    It ignores all messages.

    Args:
        schedule: p_t, the probability that a query is Thompson sampling. Default:
            1 − (1 + t/32)^−½.

    >>> EI(schedule=0.1).schedule
    Steps(values=(0.1,))
    """

    schedule: Schedule = Gradual(32)

    def __post_init__(self) -> None:
        force_setattr(self, "schedule", schedule_from(self.schedule))

    def query(self, target: Target) -> Query:
        return query_alone(target, target.rng.random() < self.schedule(target.t))


def query_alone(target: Target, is_draw: bool) -> Query:
    """Choose the next query without peers: where a draw is largest, or else EI.

    Args:
        target: The agent that asks.
        is_draw: Whether to use a draw; without a score, a draw is used in any case.
    """
    if is_draw or not len(target.X):
        return target.query_draw(target.own_draw())
    belief = target.belief.marginal()
    best = float(belief.predict(target.X)[0].max())
    return target.query_acquisition(OwnImprovement(belief, best), or_next_best=True)
