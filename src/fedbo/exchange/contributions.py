"""From the contributions at an exchange to a private release of them.

A hub does the same in a transaction of its database; how a release is made is in
`fedbo.privacy.budget`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedbo.errors import ExchangeError
from fedbo.exchange.base import OpenExchange
from fedbo.exchange.ledger import Ledger
from fedbo.federation.federation import Federation
from fedbo.message import Message, Release
from fedbo.privacy.budget import check_signer, next_number, next_release, one_each
from fedbo.trust.keys import KeyPair


def make_release(
    exchange: OpenExchange,
    federation: Federation,
    ledger: Ledger,
    keys: KeyPair,
    ask: Callable[[int, Sequence[Message]], None] | None = None,
) -> tuple[Release, bool]:
    """Make the next private release of the contributions at an exchange, and publish it.

    A release that was recorded before and is not at the exchange, perhaps because the process was
    killed, is published first, and then no other one is made. Without contributions, and if the
    budget is spent, that is an error.

    Args:
        exchange: Where the contributions are, and where the release goes.
        federation: The federation, with its privacy plan.
        ledger: The record of this party, to which the release is added before it is published.
        keys: The key pair that signs the release.
        ask: Is called with the number of a new release and the contributions to it, before it is
            made. If it raises, nothing is spent.

    Returns:
        The release, and whether it is new.
    """
    plan = federation.require_plan()
    check_signer(federation, keys)
    published = [trusted.content for trusted in exchange.fetch(federation)]
    for release in published:  # the ledger may have been lost
        if isinstance(release, Release):
            ledger.receive(release)
    recorded = ledger.releases(federation)
    if recorded and recorded[-1] not in published:
        _publish(exchange, ledger, recorded[-1])
        return recorded[-1], False
    contributions = exchange.contributions(federation)
    counted = one_each(federation, contributions)
    if not counted:
        raise ExchangeError(
            f"no release is made: {exchange.address} has {len(contributions)} contributions, none "
            f"of them from {plan.least_trials} trials or more, as the plan asks for"
        )
    if ask is not None:
        ask(next_number(federation, recorded), counted)
    release = ledger.add_release(
        federation, lambda made: next_release(federation, made, counted, keys=keys)
    )
    _publish(exchange, ledger, release)
    return release, True


def _publish(exchange: OpenExchange, ledger: Ledger, release: Release) -> None:
    if not ledger.publish(exchange, release):
        raise ExchangeError(
            f"release {release.sequence} is recorded in {ledger.path}, but {exchange.address} has "
            "another one under this name and number, or a later one: perhaps a second record of "
            "releases exists, or somebody else uses the name"
        )
