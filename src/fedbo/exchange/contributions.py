"""From the contributions at an exchange to a private release of them."""

from __future__ import annotations

import contextlib

from fedbo.exchange.base import Exchange, ExchangeError
from fedbo.exchange.choice import chosen
from fedbo.exchange.ledger import Ledger
from fedbo.federation import Federation
from fedbo.identity import KeyPair, Keyring
from fedbo.message import Heard, MessageRefused, Release
from fedbo.privacy.budget import next_release, one_each


def make_release(
    exchange: Exchange, federation: Federation, ledger: Ledger, keys: KeyPair | None = None
) -> tuple[Release, bool]:
    """Make the next private release of the contributions at an exchange, and publish it.

    A release that was recorded before and is not at the exchange, perhaps because the process was
    killed, is published first, and then no other one is made.

    Args:
        exchange: Where the contributions are, and where the release goes.
        federation: What the members agree on, with its privacy plan.
        ledger: The record of this party, to which the release is added before it is published.
        keys: The key pair of this party, which signs the release; without one (default) it is not
            signed.

    Returns:
        The release, and whether it is new.

    Raises:
        BudgetSpent: If all planned releases were made.
        ExchangeError: If there are no contributions, or if the release cannot be recorded or
            published.
    """
    plan = federation.require_plan()
    published = [one for one in exchange.fetch(federation) if isinstance(one, Release)]
    for one in [*_earlier(exchange, federation), *published]:  # the ledger may have been lost
        ledger.receive(one)
    known = [one for one in ledger.releases(federation) if one.epoch == federation.epoch]
    if known and known[-1] not in published:
        _publish(exchange, ledger, known[-1])
        return known[-1], False
    given = exchange.contributions(federation)
    counted = one_each(federation, given)
    if not counted:
        raise ExchangeError(
            f"no release is made: {exchange.address} has {len(given)} contributions, none of them "
            f"from {plan.least_trials} trials or more, as the plan asks for"
        )
    made = ledger.add_release(
        federation, lambda released: next_release(federation, released, counted, keys=keys)
    )
    _publish(exchange, ledger, made)
    return made, True


def _earlier(exchange: Exchange, federation: Federation) -> list[Release]:
    """Return the last release of other epochs, whose budget is the same."""
    found: list[Heard] = []
    with contextlib.suppress(ExchangeError):  # not every exchange can list what it holds
        for one, _, _, fault in exchange.holdings():
            if isinstance(one, Release) and fault is None and one.epoch != federation.epoch:
                with contextlib.suppress(MessageRefused):  # of another federation, for example
                    federation.check(one)
                    found.append(one)
    accepted, _ = chosen(federation, exchange.keyring or Keyring(), found)
    return [one for one in accepted if isinstance(one, Release)]


def _publish(exchange: Exchange, ledger: Ledger, made: Release) -> None:
    if not ledger.publish(exchange, made):
        raise ExchangeError(
            f"release {made.sequence} is recorded in {ledger.path}, but {exchange.address} has "
            "another one under this name and number, or a later one: perhaps a second record of "
            "releases exists, or somebody else uses the name"
        )
