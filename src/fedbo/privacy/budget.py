"""The budget of a federation: when its next private release is due, and how it is made.

Every party that makes releases (a hub, whoever runs ``fedbo release``, the server of a fleet) does
it here. Nothing here reads or writes a file. The caller must hold a lock from the moment at which
it reads the releases made so far until the next one is recorded, and must show a release to nobody
before it is on the disk: a transaction of the hub's database does that, and
`fedbo.exchange.Ledger.add_release`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fedbo.errors import BudgetSpent, KeyRefused
from fedbo.federation.federation import Federation
from fedbo.message import Message, Release
from fedbo.message.signed import key_text, member
from fedbo.privacy.noise import SECRET, Source
from fedbo.privacy.release import composed, noisy
from fedbo.privacy.statement import statement
from fedbo.trust.keys import KeyPair

_DAY = 86400.0


def one_each(federation: Federation, messages: Iterable[Message]) -> list[Message]:
    """Choose the contribution of each member from most trials, sorted by member.

    A member may run several agents, but what is protected is the member: whoever signs with one
    key, under whatever names, or without a key who has one name. Contributions from fewer trials
    than the plan asks for are left out, and so are those that do not fit the federation. How many
    trials there are is public, so this choice says nothing about scores.

    Args:
        federation: The federation, with its privacy plan.
        messages: Contributions of agents, in any order.
    """
    from fedbo.federation.shared import Shared  # loads the models, for releases only

    shared, least = Shared.of(federation), federation.require_plan().least_trials
    chosen: list[Message] = []
    seen: set[str | bytes] = set()
    order = sorted(messages, key=lambda each: (each.t_n, each.sender, each.sequence), reverse=True)
    for message in order:
        is_new = message.t_n >= least and seen.isdisjoint(_member(message))
        if is_new and shared.fits(message):
            chosen.append(message)
            seen |= _member(message)
    return sorted(chosen, key=lambda each: member(each.sender))


def _member(message: Message) -> set[str | bytes]:
    """Return what only one member of a release may have: its name, and its key if there is one."""
    own: set[str | bytes] = {member(message.sender)}
    return own | {message.key} if message.key else own


def is_due(federation: Federation, new: Iterable[Message], *, last: float, now: float) -> bool:
    """Tell whether the plan asks for a release now. Nobody waits for members that are away.

    What counts is how many members have something new: how many trials or agents one of them claims
    does not. Whether the plan still allows a release is the question of `next_release`.

    Args:
        federation: The federation. If ``least_members`` of its plan is 0, somebody makes releases
            by hand.
        new: The contributions that arrived since ``last``, in any order.
        last: When the last release was made, or the federation if there was none: seconds since
            1970.
        now: The time, in seconds since 1970.
    """
    plan = federation.require_plan()
    if not plan.least_members or last + plan.days * _DAY > now:
        return False
    return len(one_each(federation, new)) >= plan.least_members


def releases_made(released: Sequence[Release], lost: int = 0) -> int:
    """Return how many releases were made: at least those that are known.

    A number that is missing below the last one was released too. Two different releases with one
    number are two.

    Args:
        released: The known releases of one federation, each once.
        lost: How many more were made whose content nobody has.
    """
    numbers = {release.sequence for release in released}
    surplus = len(released) - len(numbers)
    return max(len(released) + lost, max(numbers, default=0) + surplus)


def check_signer(federation: Federation, keys: KeyPair) -> None:
    """Raise `KeyRefused` if members would refuse a release that is signed with this key.

    Args:
        federation: The federation, with its privacy plan.
        keys: The key pair of whoever makes releases.
    """
    plan = federation.require_plan()
    if not federation.members:
        return
    listed = federation.members[plan.by]  # no federation lists members without it
    if keys.public != listed:
        raise KeyRefused(
            f"the federation lists {plan.by!r}, who makes releases, with the key "
            f"{key_text(listed)}, and the key here is {keys}: only the holder of the listed "
            "private key can make one"
        )


def next_number(federation: Federation, released: Sequence[Release], lost: int = 0) -> int:
    """Return the number of the next release; raise `BudgetSpent` if all planned ones were made."""
    made = releases_made(released, lost)
    if made < federation.require_plan().releases:
        return made + 1
    cost = statement(released) if released else f"There were {made}."
    raise BudgetSpent(f"all planned releases were made, so there cannot be another one. {cost}")


def next_release(
    federation: Federation,
    released: Sequence[Release],
    contributions: Sequence[Message | None],
    *,
    keys: KeyPair,
    lost: int = 0,
    source: Source = SECRET,
) -> Release:
    """Make the next private release within the plan. Nobody may see it before it is recorded.

    Args:
        federation: The federation, with its privacy plan.
        released: The known releases of this federation, each once, received ones included.
        contributions: One contribution of each member, see `one_each`; None for one that is empty.
        keys: The key pair that signs the release.
        lost: How many more releases were made whose content nobody has.
        source: The source of randomness; any but the system's secret one (default) is for tests.

    Raises:
        BudgetSpent: If all planned releases were made.
        KeyRefused: If the federation lists the key of whoever makes releases, and it is not this
            one: members would refuse a release that has cost a part of the budget.
        ValueError: If there are no contributions, if a member has two, or if one does not fit.

    >>> from fedbo import Float
    >>> from fedbo.privacy import Plan
    >>> federation = Federation({"x": Float(0, 1)}, privacy=Plan(epsilon=2.0, delta=1e-3))
    >>> keys = KeyPair.generate()
    >>> release = next_release(federation, [], [None] * 20, keys=keys)
    >>> release.sequence, release.members
    (1, 20)
    >>> next_release(federation, [release], [None] * 20, keys=keys)
    Traceback (most recent call last):
    fedbo.errors.BudgetSpent: all planned releases were made...
    """
    contributed = [message for message in contributions if message is not None]
    counts = Counter(name for message in contributed for name in _member(message))
    if twice := [name for name, n in counts.items() if n > 1]:
        name = key_text(twice[0]) if isinstance(twice[0], bytes) else repr(twice[0])
        raise ValueError(
            f"{name} has {counts[twice[0]]} contributions, expected one of each member: what is "
            "promised is for one"
        )
    check_signer(federation, keys)
    quiet = composed(federation, contributions, None, next_number(federation, released, lost))
    return keys.sign(noisy(federation, quiet, source))
