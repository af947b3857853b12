"""A study forgets what its exchange no longer hands out."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from contracts.exchange import OTHERS, message, withdrawal
from contracts.studies import FEDERATION, inbox, peer, run
from msgspec.structs import replace

from fedbo import Agent, Federation, Message, trust
from fedbo.exchange import (
    Exchange,
    ExchangeWarning,
    FolderExchange,
    MemoryExchange,
)
from fedbo.exchange.folder import seal
from fedbo.optuna import FederatedSampler
from fedbo.optuna.study import Mirror
from fedbo.testing.keys import new_keys
from fedbo.trust import Trusted

pytestmark = pytest.mark.usefixtures("patient")


@pytest.fixture(params=["memory", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Exchange:
    return MemoryExchange() if request.param == "memory" else FolderExchange(tmp_path / "exchange")


def test_a_message_that_is_withdrawn_is_forgotten_and_heard_again_later(place: Exchange) -> None:
    place.publish(peer("a"))
    place.publish(peer("b"))
    study = optuna.create_study(sampler=FederatedSampler(FEDERATION, place))
    run(study, 2)
    assert inbox(study) == ["a", "b"]
    assert place.publish(withdrawal(peer("a")))
    run(study, 2)
    assert inbox(study) == ["b"]
    place.publish(peer("a", 6))
    run(study, 2)
    assert sorted(inbox(study)) == ["a", "b"]


def mirror() -> Mirror:
    return Mirror(Agent(FEDERATION, name="here", seed=0))


def opened(*messages: Message, federation: Federation = FEDERATION) -> list[Trusted]:
    """Messages as an exchange returns them."""
    return [trust.open(federation, None, each) for each in messages]


def test_the_agent_holds_what_was_handed_out_last() -> None:
    one = mirror()
    assert one.hear(opened(peer("a"), peer("b", 9), peer("here"))) == []
    assert one.agent.inbox.senders == ["a", "b"]
    one.hear(opened(peer("b", 4), peer("c")))  # an earlier message of b has taken its place
    assert dict(zip(one.agent.inbox.senders, one.agent.inbox.t_n, strict=True)) == {"b": 4, "c": 5}
    one.hear(opened(peer("b", 3, new_keys()), peer("c")))
    assert dict(zip(one.agent.inbox.senders, one.agent.inbox.t_n, strict=True)) == {"c": 5, "b": 3}
    one.hear([])
    assert len(one.agent.inbox) == 0


def test_messages_are_received_together_without_those_that_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, sizes, receive = mirror(), [], Agent.receive
    messages = opened(*(peer(f"n{i:02}") for i in range(64)))

    def counted(agent: Agent, messages: list[Trusted]) -> int:
        sizes.append(len(messages))
        return receive(agent, messages)

    monkeypatch.setattr(Agent, "receive", counted)
    assert one.hear(messages) == [] and sizes == [64]
    later = opened(*(replace(each.content, sequence=6) for each in messages))
    other = OTHERS["seed"]
    [later[9]] = opened(message(other, "n09", keys=new_keys()), federation=other)
    assert "another federation" in "".join(one.hear(later))
    assert len(one.agent.inbox) == 63 and len(sizes) < 16


def test_an_old_message_that_somebody_puts_back_is_not_heard(tmp_path: Path) -> None:
    place, new, old = FolderExchange(tmp_path / "exchange"), peer("a", 9), peer("a", 4)
    place.publish(new)
    study = optuna.create_study(sampler=FederatedSampler(FEDERATION, place))
    run(study, 2)
    assert inbox(study) == ["a"]
    [file] = place.folder.rglob("a-*.fedbo")
    file.unlink()
    with pytest.warns(ExchangeWarning, match="a later one of this sender was heard here"):
        for _ in range(2):
            file.write_bytes(seal(old))
            run(study, 2)
            assert inbox(study) == []
            file.unlink()
            run(study, 2)
    file.write_bytes(seal(new))  # such as when a hub selects it again
    run(study, 2)
    assert inbox(study) == ["a"]
