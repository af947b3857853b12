"""What was released and what it cost, in words that a data protection officer can sign."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from fedbo.federation.calibration import mean_noise, votes_scale
from fedbo.federation.federation import Federation
from fedbo.federation.plan import ENOUGH
from fedbo.message import Release
from fedbo.privacy.accounting import epsilon, epsilon_basic
from fedbo.privacy.release import mechanisms

_LARGE = 20.0  # an ε from which e^ε has too many digits to read


class Signal(msgspec.Struct, frozen=True):
    """How much of a release its noise leaves; ``str()`` says it in words.

    Args:
        members: How many members the release sums up.
        needed: How many it takes, so that it is not mostly noise.
        share: The part of the published mean that is not noise if all members agree; less if not.
        votes: How many votes of members a part of the space needs to stand out, in half of
            releases.
    """

    members: int
    needed: int
    share: float
    votes: float

    def __str__(self) -> str:
        warning = (
            f" This is mostly noise: it takes {self.needed:,} members to be more."
            if self.members < self.needed
            else ""
        )
        return (
            f"At most {self.share:.0%} of the mean is signal, and the rest noise; a part of the "
            f"space stands out with about {math.ceil(self.votes):,} votes or more.{warning}"
        )


def signal(federation: Federation, members: int) -> Signal:
    """Say how much signal a release of so many members would have beside its noise.

    >>> from fedbo.privacy import Plan
    >>> from fedbo.space import Float
    >>> federation = Federation({"x": Float(0, 1)}, privacy=Plan(epsilon=2.0, delta=1e-3))
    >>> print(signal(federation, 5))
    At most 30% of the mean is signal, and the rest noise; ... mostly noise: ...
    """
    from fedbo.federation.shared import Shared  # a hub needs it for releases only

    plan, shared = federation.require_plan(), Shared.of(federation)
    d = shared.shape_coordinates
    noise = d * mean_noise(plan, members) ** 2  # in the squared length of the mean, at most 1
    return Signal(
        members=members,
        needed=math.ceil(ENOUGH * plan.releases / plan.epsilon),
        share=1.0 / (1.0 + noise),
        votes=float(votes_scale(plan)) * math.log(max(len(shared.cells) / math.log(4.0), 1.0)),
    )


def spent(releases: Sequence[Release]) -> float:
    """Return ε of these releases of one federation together, at the δ of their plan.

    It is infinite if one of them claims next to no noise.
    """
    if not releases:
        return 0.0
    try:
        made = [mechanism for release in releases for mechanism in mechanisms(release)]
    except ValueError:
        return math.inf
    try:
        return epsilon(made, releases[0].delta)
    except ModuleNotFoundError:  # without dp-accounting, a larger bound
        return epsilon_basic(made, releases[0].delta)


def factor(cost: float) -> str:
    """Return e^ε as text, by which probabilities may differ.

    >>> factor(2.0), factor(1000.0)
    ('7.4', 'e^1000')
    """
    return f"{math.exp(cost):.1f}" if cost < _LARGE else f"e^{cost:g}"


def statement(releases: Sequence[Release]) -> str:
    """Say what the releases of a federation cost each member, and what that means.

    Args:
        releases: One release or more of one federation, each once.
    """
    first, cost = releases[0], spent(releases)
    known = "1 release is" if len(releases) == 1 else f"{len(releases)} releases are"
    last = max(releases, key=lambda release: release.sequence)
    return (
        f"{known} recorded here, made by {first.sender!r}; the last one is number {last.sequence} "
        f"of {first.releases} planned, and sums up {last.members:,} members. This costs each "
        f"member at most ε = {cost:.3f} at δ = {first.delta:g}; all planned releases together cost "
        f"at most ε = {first.epsilon:g}.\n"
        "What is promised: whatever anyone concludes from these releases would be at most "
        f"{factor(cost)} times more or less likely if one member's contribution had been "
        f"empty, apart from a probability of {first.delta:g}. A contribution stands for all trials "
        "of a member.\n"
        "What is not protected: who is a member, how many there are, and how many trials they have "
        "made.\n"
        f"What the promise needs: that {first.sender!r}, who sees all contributions, is trusted; "
        "that nobody else could read them (in a folder, whoever can read it can); and that members "
        "heard nothing of one another but releases."
    )


def broken_promise(releases: Sequence[Release]) -> str | None:
    """Say why these releases cannot all be from one plan; None if they can be.

    Args:
        releases: All known releases of one federation, each once.
    """
    numbers = [release.sequence for release in releases]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    if not twice:
        return None
    return (
        f"{releases[0].sender!r} has made {numbers.count(twice[0])} different releases with the "
        f"number {twice[0]}, so more was released than was planned, at a cost of ε = "
        f"{spent(releases):.3f} so far. Perhaps its record of releases was lost, or restored from "
        "an old copy"
    )
