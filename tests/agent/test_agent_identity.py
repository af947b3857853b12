"""Agents that sign their messages, know the keys of their peers, and hold a bounded number."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from msgspec.structs import replace

from fedbo import Agent, Federation, FileRefused, Float, Message, MessageRefused
from fedbo.agent import agent as module
from fedbo.agent.agent import MOST_AGENTS
from fedbo.trust import KeyPair, KeyRefused, Keyring

ours = Federation({"x": Float(0, 1)}, features=5)


def told(name: str, keys: KeyPair | None = None, scores: int = 1, **more: object) -> Agent:
    agent = Agent(ours, name=name, seed=0, keys=keys, **more)  # type: ignore[arg-type]
    for i in range(scores):
        agent.tell({"x": 0.1 + 0.05 * i}, float(i))
    return agent


def test_an_agent_with_keys_signs_its_messages() -> None:
    keys = KeyPair.generate()
    agent = told("a", keys)
    message = agent.message()
    assert message.key == keys.public
    assert agent.message() is message
    assert Message.decode(message.encode()) == message
    peer = told("b")
    assert peer.receive(message.encode()) == 1


def test_a_forged_message_does_not_silence_a_peer() -> None:
    """One message with the largest sequence number used to silence a site permanently."""
    mine, peer = told("a", KeyPair.generate()), told("b")
    assert peer.receive(mine.message()) == 1
    plain, other = told("a", scores=3), told("a", KeyPair.generate(), scores=3)
    for forger in (plain, other):
        with pytest.raises(MessageRefused, match=r"known here by|is not signed"):
            peer.receive(forger.message().encode())
    mine.tell({"x": 0.9}, 2.0)
    assert peer.receive(mine.message()) == 1


def test_a_saved_agent_finds_its_key_again(tmp_path: Path) -> None:
    keys = KeyPair.load()
    agent = told("a", keys)
    first = agent.message()
    agent.save(tmp_path / "agent")
    assert Agent.load(tmp_path / "agent").message() == first
    assert keys.path is not None
    assert keys.path.read_bytes()[28:60] not in (tmp_path / "agent").read_bytes()


def test_a_saved_agent_without_its_key_goes_on_but_sends_nothing(tmp_path: Path) -> None:
    keys = KeyPair.generate()
    told("a", keys).save(tmp_path / "agent")
    agent = Agent.load(tmp_path / "agent")
    agent.tell(agent.ask(), 0.5)
    with pytest.raises(KeyRefused, match=f"signs its messages with {keys}.*identity import FILE"):
        agent.message()
    agent.save(tmp_path / "again")
    with pytest.raises(FileRefused, match="signs with"):
        Agent.load(tmp_path / "again", keys=KeyPair.generate())
    assert Agent.load(tmp_path / "again", keys=keys).message().key == keys.public


def test_a_saved_agent_remembers_what_its_keyring_knew(tmp_path: Path) -> None:
    trusted, revoked = KeyPair.generate(), KeyPair.generate()
    peer = told("b", keyring=Keyring(tmp_path / "known.json"))
    peer.receive(told("a", trusted).message())
    peer.keyring.revoke(revoked.public)
    peer.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent")
    with pytest.raises(MessageRefused, match="known here by"):
        again.receive(told("a", KeyPair.generate(), scores=2).message())
    with pytest.raises(MessageRefused, match="was revoked here"):
        again.receive(told("c", revoked).message())


def test_a_key_that_was_revoked_here_is_not_used_by_a_saved_agent(tmp_path: Path) -> None:
    keys = KeyPair.load()
    told("a", keys).save(tmp_path / "agent")
    Keyring.user().revoke(keys.public)
    with pytest.raises(KeyRefused, match="or was revoked"):
        Agent.load(tmp_path / "agent").message()


def test_an_inbox_is_bounded_and_says_so_once() -> None:
    agent, late = told("a"), told("late").message()
    assert agent.receive([replace(late, sender=f"n{i}") for i in range(1023)]) == 1023
    with pytest.warns(UserWarning, match=r"holds those of 1,024 peers") as caught:
        assert agent.receive([replace(late, sender=f"o{i}") for i in range(3)]) == 1
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert agent.receive(told("o2", scores=2).message()) == 0
        assert agent.receive(told("n1", scores=2).message()) == 1  # a newer one of a known peer
    assert len(agent.inbox) == 1024


def test_listed_members_always_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PEERS", 2)
    keys = {f"n{i}": KeyPair.generate() for i in range(4)}
    members = {name: str(pair) for name, pair in keys.items()}
    agent = Agent(Federation({"x": Float(0, 1)}, features=5, members=members))
    assert agent.receive([told(name, pair).message() for name, pair in keys.items()]) == 4


def test_one_member_cannot_be_a_crowd() -> None:
    keys = KeyPair.generate()
    federation = Federation({"x": Float(0, 1)}, features=5, members={"a": str(keys)})
    agent = Agent(federation, name="b")
    names = [f"a/{i}" for i in range(MOST_AGENTS + 5)]
    messages = [told(name, keys).message() for name in names]
    with pytest.warns(UserWarning, match=f"holds those of {MOST_AGENTS} agents of 'a'"):
        assert agent.receive(messages) == MOST_AGENTS
    for i in range(20):  # nor if it withdraws a message for each new one
        agent.forget([agent.inbox.senders[i % 2]])
        agent.receive([told(f"a/{i}/{j:02}", keys).message() for j in range(3)])
        assert len(agent.inbox) == MOST_AGENTS


def forged(sender: str, keys: KeyPair) -> Message:
    return keys.sign(replace(told(sender).message(), sequence=2**32 - 1))


def test_messages_of_a_key_that_is_no_longer_trusted_are_forgotten(tmp_path: Path) -> None:
    evil, good = KeyPair.generate(), KeyPair.generate()
    agent = told("b", scores=3)
    agent.receive([forged("a", evil), told("c", KeyPair.generate()).message()])
    agent.save(tmp_path / "agent")
    for one in (agent, Agent.load(tmp_path / "agent")):
        one.keyring.revoke(evil.public)
        one.keyring.trust("a", good.public)
        one.ask()
        assert one.inbox.senders == ["c"]
        assert one.receive(told("a", good).message()) == 1


def test_messages_of_former_members_are_forgotten() -> None:
    keys = {name: KeyPair.generate() for name in "ac"}
    agent = told("b")
    agent.receive([told(name, pair).message() for name, pair in keys.items()])
    agent.set_members(Federation({"x": Float(0, 1)}, features=5, members={"a": str(keys["a"])}))
    agent.ask()
    assert agent.inbox.senders == ["a"]


def test_an_agent_does_not_take_the_name_of_another() -> None:
    keyring = Keyring()
    assert keyring.judge(ours, [told("a", KeyPair.generate()).message()]) == [None]
    with pytest.raises(KeyRefused, match="that of another site"):
        told("a", KeyPair.generate(), keyring=keyring)
