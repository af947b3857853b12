"""What members that lie send, to mislead a target.

Liars collude. They know the target's table, so they know which of its points are bad, and they all
praise the same one, the *bait*. Each liar is one member with one agent, and sends a message that
`fedbo.Agent.receive` accepts.

lie          what a liar sends
-----------  -------------------------------------------------------------------------------------
bait         the message of a function that is a bump at the bait, the target's worst point
flipped      the message of its own history, with negated scores
scaled       that of the bait, with the largest mean that is accepted, and trials in every cell
drifting     the message of its own history at first; that of the bait after 8 trials
adaptive     before each query, an answer to the message that the target has just published: it
             agrees with the target where the target has been, and praises a bad point elsewhere
false votes  to a private release: a vote for the cell of the bait, and the shape of its function

======  =======================================================================  ============
symbol  meaning                                                                  shape
======  =======================================================================  ============
ψ       coordinates of a point in the basis of the federation                    (k,)
m, R    mean of the coordinates, and the factor of their covariance I − RᵀR, as  (k,), (r, k)
        a receiver of the target's message has them
======  =======================================================================  ============
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np

import fedbo
from fedbo.model.kernel import Array
from fedbo.model.summary import quantise
from fedbo_paper.contests import contest, hostile, private
from fedbo_paper.contests.contest import History
from fedbo_paper.contests.grounds import Listed

DELTA = 1e-3  # of private releases
DRIFT = 8  # trials of the target after which a drifting liar begins to lie
BAD = 0.5  # share of the target's points that an adaptive liar takes for bad
PRAISE = 1.0  # how far it praises one of them above all others, in standard deviations
STEP = 1.1  # how finely the largest mean is searched for
SATURATED = 3  # trials in a cell: more of them are sent as so many


class Scene:
    """What the members of one target have, and what they can send.

    Args:
        ground: The tasks.
        known: The history of each task's agent.
        target: The task that is tuned.
        seed: Seed of what members send.
    """

    def __init__(self, ground: Listed, known: Sequence[History], target: int, seed: int) -> None:
        self.ground, self.known, self.target, self.seed = ground, known, target, seed
        self.agreed = contest.federation(ground, fedbo.TipsThenPool())
        self.points = self.agreed.basis.coordinates(ground.X)  # ψ of all points, (n, k)
        order = np.argsort(ground.Y[target], kind="stable")
        self.bad = order[: int(BAD * len(order))]  # rows, the worst first

    @cached_property
    def honest(self) -> list[fedbo.Message]:
        """The message of each task's agent."""
        return self._messages(self.known)

    @cached_property
    def flipped(self) -> list[fedbo.Message]:
        """The messages of the same histories with negated scores."""
        return self._messages([[(at, -score) for at, score in each] for each in self.known])

    @cached_property
    def praising(self) -> list[History]:
        """For each task a history that praises the bait."""
        return hostile.worst_praised(self.ground, self.target, self.seed)

    @cached_property
    def baits(self) -> list[fedbo.Message]:
        """The messages of these histories."""
        return self._messages(self.praising)

    @cached_property
    def loud(self) -> list[fedbo.Message]:
        """The same messages, as large as a federation accepts them, and as certain as possible."""
        return [loudest(self.agreed, message) for message in self.baits]

    @cached_property
    def contributions(self) -> list[fedbo.Message]:
        """What each member contributes to a private release."""
        return self.contributions_of(self.known)

    @cached_property
    def false_votes(self) -> list[fedbo.Message]:
        """What each member contributes if it lies."""
        return self.contributions_of(self.praising)

    def _messages(
        self, histories: Sequence[History], agreed: fedbo.Federation | None = None
    ) -> list[fedbo.Message]:
        return [
            contest.message(agreed or self.agreed, n, history, self.seed)
            for n, history in enumerate(histories)
        ]

    def contributions_of(self, histories: Sequence[History]) -> list[fedbo.Message]:
        """Create what members with these histories contribute, whatever ε the release has.

        Args:
            histories: The history of each member.
        """
        return self._messages(histories, private.planned(self.ground, 1.0, DELTA))


class Turn(NamedTuple):
    """The moment before a query of the target, in which liars may send something.

    ``liars`` are their tasks, ``t`` is how many trials the target has made, and ``target`` is its
    agent, which publishes a message after each of them.
    """

    scene: Scene
    liars: Sequence[int]
    t: int
    target: fedbo.Agent | None = None


def silent(turn: Turn) -> list[fedbo.Message]:
    """Send nothing: what the target would hear if there were no liars."""
    return []


def bait(turn: Turn) -> list[fedbo.Message]:
    """Praise the bait, once."""
    return _once(turn, turn.scene.baits)


def flipped(turn: Turn) -> list[fedbo.Message]:
    """Send the own history with negated scores, once."""
    return _once(turn, turn.scene.flipped)


def scaled(turn: Turn) -> list[fedbo.Message]:
    """Praise the bait once, as loudly and as surely as possible."""
    return _once(turn, turn.scene.loud)


def drifting(turn: Turn) -> list[fedbo.Message]:
    """Be honest until the target has made `DRIFT` trials, then praise the bait."""
    if turn.t != DRIFT:
        return _once(turn, turn.scene.honest)
    later = contest.HISTORY + 1  # a larger sequence number than that of the honest message
    return [_sent(turn.scene.baits[n], n, later) for n in turn.liars]


def adaptive(turn: Turn) -> list[fedbo.Message]:
    """Agree with the target where it has been, and praise a bad point elsewhere."""
    if turn.target is None:
        return [_sent(turn.scene.baits[n], n, 1) for n in turn.liars]
    answer = agreeing(turn.scene, turn.target.message())
    return [_sent(answer, n, turn.t + 1) for n in turn.liars]


def _once(turn: Turn, messages: Sequence[fedbo.Message]) -> list[fedbo.Message]:
    return [] if turn.t else [messages[n] for n in turn.liars]


Lie = Callable[[Turn], list[fedbo.Message]]

LIES: dict[str, Lie] = {
    "bait": bait,
    "flipped": flipped,
    "scaled": scaled,
    "drifting": drifting,
    "adaptive": adaptive,
}


def agreeing(scene: Scene, heard: fedbo.Message) -> fedbo.Message:
    """Answer the target's message: agree with it, except for a bad point that is praised.

    The answer is what the target would believe if it heard of one excellent trial at the bad point
    that it knows least about. So hardly anything changes where it has made trials.

    Args:
        scene: What the liars know.
        heard: The target's message.
    """
    said = scene.agreed.belief(heard)
    assert said is not None  # it is a compact message
    m, R = (numbers.astype(float) for numbers in said)
    Psi = scene.points[scene.bad]
    shared = Psi - Psi @ R.T @ R  # covariances of the points with all coordinates, (bad, k)
    variance = np.einsum("ij,ij->i", shared, Psi)
    n = int(variance.argmax())
    wanted = float((scene.points @ m).max()) + PRAISE
    m += shared[n] * (wanted - Psi[n] @ m) / max(variance[n], 1e-9)
    return _certain(scene.agreed, heard, m)


def loudest(agreed: fedbo.Federation, message: fedbo.Message) -> fedbo.Message:
    """Scale the mean of a message as far as a federation accepts it, with trials in every cell.

    Args:
        agreed: The federation.
        message: The message.
    """
    m = message.nu.astype(float)
    size, found = 1.0, _certain(agreed, message, m)
    while _is_accepted(agreed, larger := _certain(agreed, message, size * STEP * m)):
        size, found = size * STEP, larger
    return found


def _is_accepted(agreed: fedbo.Federation, message: fedbo.Message) -> bool:
    try:
        agreed.check(message)
    except fedbo.MessageRefused:
        return False
    return True


def _certain(agreed: fedbo.Federation, message: fedbo.Message, m: Array) -> fedbo.Message:
    """Return a message of the same sender with another mean, and as many trials as can be sent."""
    levels, scales = quantise(m[None], np.random.default_rng(0))
    counts = np.full(len(agreed.cells), SATURATED)
    return fedbo.Message.of_compact(
        levels[0],
        float(scales[0]),
        counts,
        fingerprint=agreed.fingerprint,
        epoch=agreed.epoch,
        sender=message.sender,
        sequence=message.sequence,
        t_n=int(counts.sum()),
    )


def _sent(message: fedbo.Message, n: int, sequence: int) -> fedbo.Message:
    """Return a message as that of task n's agent, with a sequence number."""
    return msgspec.structs.replace(message, sender=f"task-{n}", sequence=sequence)
