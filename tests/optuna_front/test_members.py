"""Studies at an exchange that knows its members, as a hub does."""

from __future__ import annotations

import re
from typing import Any

import optuna
import pytest
from contracts.exchange import heard, withdrawal
from contracts.studies import FEDERATION, inbox, record_of, run

from fedbo import Federation
from fedbo.exchange import (
    ExchangeError,
    ExchangeWarning,
    Identity,
    MemoryExchange,
)
from fedbo.exchange.latest import Content
from fedbo.message.signed import member
from fedbo.optuna import FederatedSampler
from fedbo.trust import KeyPair, Trusted

pytestmark = pytest.mark.usefixtures("patient")

HOW = "you are not a member at memory: run fedbo join memory --invite INVITATION"


class Hub(MemoryExchange):
    """An exchange with members, one of which is this user."""

    def __init__(self, name: str | None = "clinic") -> None:
        super().__init__()
        self.name, self.keys, self.fetched = name, KeyPair.load(), 0

    def identity(self, federation: Federation) -> Identity:
        if self.name is None:
            raise ExchangeError(HOW)
        return Identity(self.name, str(self.keys))

    def publish(self, content: Content) -> bool:
        if member(content.sender) != self.name:
            raise ExchangeError(f"{content.sender!r} is no agent of {self.name!r}")
        if content.signer != str(self.keys):
            raise ExchangeError(f"{content.signer!r} is not the key of {self.name!r}")
        return super().publish(content)

    def fetch(self, federation: Federation) -> list[Trusted]:
        self.fetched += 1
        self.identity(federation)
        return super().fetch(federation)

    def rekey(self, keys: KeyPair) -> None:
        """Give the member another key; what was signed with the old one is no longer handed out."""
        for trusted in super().fetch(FEDERATION):
            super().publish(withdrawal(trusted.content, self.keys))
        self.keys = keys


def sampler(hub: Any, name: str | None = None, **options: Any) -> FederatedSampler:
    return FederatedSampler(FEDERATION, hub, name=name, every=1, **options)


def senders(hub: MemoryExchange) -> list[str]:
    return [message.sender for message in heard(hub, FEDERATION)]


def test_a_given_name_is_kept_below_that_of_the_member() -> None:
    hub, study = Hub(), optuna.create_study()
    for _ in range(2):
        study.sampler = sampler(hub, "liver")
        run(study)
        assert senders(hub) == ["clinic/liver"]
    study.sampler = sampler(hub)
    preview = study.sampler.preview(study)
    assert preview is not None and preview.sender == "clinic/liver"
    study.sampler = sampler(hub, "lung")
    with pytest.raises(ValueError, match="cannot be renamed to 'lung'"):
        run(study)
    assert senders(hub) == ["clinic/liver"]
    study.sampler = sampler(hub)
    assert study.sampler.withdraw(study)
    assert senders(hub) == []


def test_without_a_membership_a_study_tunes_alone_and_goes_on_by_itself_later() -> None:
    hub = Hub(None)
    other = optuna.create_study(sampler=sampler(MemoryExchange(), "lab"))
    run(other, 2)
    [peer] = heard(other.sampler.exchange, FEDERATION)  # type: ignore[attr-defined]
    MemoryExchange.publish(hub, peer)
    study = optuna.create_study(sampler=sampler(hub))
    with pytest.warns(ExchangeWarning) as caught:
        run(study, 3)
        study.sampler.flush()  # type: ignore[attr-defined]
    [text] = [str(warning.message) for warning in caught]
    assert text.startswith(f"{HOW}. Until then, the study tunes alone")
    assert hub.fetched == 0
    drawn = record_of(study).name
    assert re.fullmatch("agent-[0-9a-f]{8}", drawn)
    hub.name = "clinic"
    run(study, 3)  # without a warning
    assert senders(hub) == [f"clinic/{drawn}", "lab"]
    assert inbox(study) == ["lab"]
    assert len(study.trials) == 6


def test_a_name_that_becomes_too_long_is_one_warning() -> None:
    hub = Hub("c" * 40)
    study = optuna.create_study(sampler=sampler(hub, "n" * 30))
    with pytest.warns(ExchangeWarning, match="with 71 bytes, and at most 64 are possible"):
        run(study, 2)
    assert senders(hub) == []


# Keys


def test_messages_are_signed_with_the_key_of_the_member() -> None:
    hub = Hub()
    study = optuna.create_study(sampler=sampler(hub))
    run(study)
    assert [message.signer for message in heard(hub, FEDERATION)] == [str(hub.keys)]
    assert record_of(study).key == str(hub.keys)


def test_a_member_with_a_new_key_goes_on_with_it() -> None:
    hub = Hub()
    study = optuna.create_study(sampler=sampler(hub, "liver"))
    run(study)
    hub.rekey(KeyPair.retire())
    with pytest.warns(ExchangeWarning, match="is not the key of 'clinic'"):
        run(study)
    run(study)  # in the same process
    assert [message.signer for message in heard(hub, FEDERATION)] == [str(hub.keys)]
    assert record_of(study).key == str(hub.keys)
    hub.rekey(KeyPair.retire())
    study.sampler = sampler(hub)  # in another one
    run(study)
    assert [message.signer for message in heard(hub, FEDERATION)] == [str(hub.keys)]
