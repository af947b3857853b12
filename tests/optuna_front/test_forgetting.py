"""A study forgets what its exchange no longer hands out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from contracts.studies import FEDERATION, inbox, peer, run
from msgspec.structs import replace

from fedbo import Agent, Message
from fedbo.exchange import (
    Exchange,
    FolderExchange,
    MemoryExchange,
)
from fedbo.identity import KeyPair
from fedbo.optuna import FederatedSampler
from fedbo.optuna.study import Mirror

pytestmark = pytest.mark.usefixtures("patient")


@pytest.fixture(params=["memory", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Exchange:
    return MemoryExchange() if request.param == "memory" else FolderExchange(tmp_path / "exchange")


@pytest.mark.parametrize("make_keys", [lambda: None, KeyPair.generate])
def test_a_message_that_is_withdrawn_is_forgotten_and_heard_again_later(
    place: Exchange, make_keys: Callable[[], KeyPair | None]
) -> None:
    keys = make_keys()
    place.publish(peer("a", keys=keys))
    place.publish(peer("b"))
    study = optuna.create_study(sampler=FederatedSampler(FEDERATION, place))
    run(study, 2)
    assert inbox(study) == ["a", "b"]
    assert place.withdraw(FEDERATION, "a", keys)
    run(study, 2)
    assert inbox(study) == ["b"]
    place.publish(peer("a", 6, keys))
    run(study, 2)
    assert sorted(inbox(study)) == ["a", "b"]


def mirror() -> Mirror:
    return Mirror(Agent(FEDERATION, name="here", seed=0))


def test_the_agent_holds_what_was_handed_out_last() -> None:
    one, keys = mirror(), KeyPair.generate()
    assert one.hear([peer("a"), peer("b", 9), peer("here")]) == []
    assert one.agent.inbox.senders == ["a", "b"]
    one.hear([peer("b", 4), peer("c")])  # an earlier message of b has taken its place
    assert dict(zip(one.agent.inbox.senders, one.agent.inbox.t_n, strict=True)) == {"b": 4, "c": 5}
    one.hear([peer("b", 3, keys), peer("c")])
    assert dict(zip(one.agent.inbox.senders, one.agent.inbox.t_n, strict=True)) == {"c": 5, "b": 3}
    one.hear([])
    assert len(one.agent.inbox) == 0


def test_messages_are_received_together_without_those_that_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, sizes, receive = mirror(), [], Agent.receive
    messages = [peer(f"n{i:02}") for i in range(64)]

    def counted(agent: Agent, messages: list[Message]) -> int:
        sizes.append(len(messages))
        return receive(agent, messages)

    monkeypatch.setattr(Agent, "receive", counted)
    assert one.hear(messages) == [] and sizes == [64]
    messages[9] = peer("n09", 7, KeyPair.generate())  # its signature does not hold below
    assert "signature" in "".join(one.hear([replace(each, sequence=6) for each in messages]))
    assert len(one.agent.inbox) == 63 and len(sizes) < 16


def test_an_old_signed_message_that_somebody_puts_back_is_not_heard() -> None:
    one, keys = mirror(), KeyPair.generate()
    one.hear([peer("a", 9, keys)])
    one.hear([peer("a", 4, keys)])
    assert len(one.agent.inbox) == 0
    one.hear([])
    one.hear([peer("a", 4, keys)])
    assert len(one.agent.inbox) == 0
    one.hear([peer("a", 9, keys)])  # such as when a hub selects it again
    assert one.agent.inbox.senders == ["a"]
