"""Studies at an exchange that knows its members, as a hub does."""

from __future__ import annotations

import re
from typing import Any

import optuna
import pytest
from contracts.studies import FEDERATION, inbox, record_of, run

from fedbo import Federation, Message
from fedbo.exchange import (
    ExchangeError,
    ExchangeWarning,
    Identity,
    MemoryExchange,
)
from fedbo.identity import KeyPair
from fedbo.message.signed import member
from fedbo.optuna import FederatedSampler

pytestmark = pytest.mark.usefixtures("patient")

HOW = "you are not a member at memory: run fedbo join memory --invite INVITATION"


class Hub(MemoryExchange):
    """An exchange with members, one of which is this user."""

    def __init__(self, name: str | None = "clinic", key: str | None = None) -> None:
        super().__init__()
        self.name, self.key, self.fetched = name, key, 0

    def identity(self, federation: Federation) -> Identity:
        if self.name is None:
            raise ExchangeError(HOW)
        return Identity(self.name, self.key)

    def publish(self, message: Message) -> bool:
        if member(message.sender) != self.name:
            raise ExchangeError(f"{message.sender!r} is no agent of {self.name!r}")
        if self.key is not None and message.signer != self.key:
            raise ExchangeError(f"{message.signer!r} is not the key of {self.name!r}")
        return super().publish(message)

    def fetch(self, federation: Federation) -> list[Message]:
        self.fetched += 1
        self.identity(federation)
        return super().fetch(federation)


def sampler(hub: Any, name: str | None = None, **options: Any) -> FederatedSampler:
    return FederatedSampler(FEDERATION, hub, name=name, every=1, **options)


def senders(hub: MemoryExchange) -> list[str]:
    return [message.sender for message in hub.fetch(FEDERATION)]


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
    peer = other.sampler.exchange.fetch(FEDERATION)[0]  # type: ignore[attr-defined]
    MemoryExchange.publish(hub, peer)
    study = optuna.create_study(sampler=sampler(hub, signed=False))
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
    keys = KeyPair.load()
    hub = Hub(key=str(keys))
    study = optuna.create_study(sampler=sampler(hub))
    run(study)
    assert [message.signer for message in hub.fetch(FEDERATION)] == [str(keys)]
    assert record_of(study).key == str(keys)


def test_a_member_without_a_key_signs_nothing() -> None:
    hub = Hub(key="")
    study = optuna.create_study(sampler=sampler(MemoryExchange(), "liver"))
    run(study)  # which signs
    study.sampler = sampler(hub)
    run(study)
    assert [message.signer for message in hub.fetch(FEDERATION)] == [""]
    assert study.sampler.withdraw(study)
    study.sampler = sampler(hub, signed=True)
    with pytest.warns(ExchangeWarning, match="'clinic' joined without a key"):
        run(study)
    assert senders(hub) == []


@pytest.mark.filterwarnings("ignore:a message was skipped")
def test_a_member_with_a_new_key_goes_on_with_it() -> None:
    """Its message with the old key may be fetched, and skipped, before the new one replaces it."""
    first = KeyPair.load()
    hub = Hub(key=str(first))
    study = optuna.create_study(sampler=sampler(hub, "liver"))
    run(study)
    second = KeyPair.retire()
    hub.key = str(second)
    hub.keyring.trust("clinic", second.public)
    with pytest.warns(ExchangeWarning, match="is not the key of 'clinic'"):
        run(study)
    run(study)  # in the same process
    assert [message.signer for message in hub.fetch(FEDERATION)] == [str(second)]
    assert record_of(study).key == str(second)
