"""The border: what is checked where something enters, in which order, and how often."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from msgspec.structs import replace

import fedbo
from fedbo import Agent, Federation, Float
from fedbo.message import Message, MessageRefused, Withdrawal
from fedbo.testing.keys import keys_of, new_keys
from fedbo.trust import Border, Keyring, NotTrusted, Trusted, border, open, open_all

OURS = Federation({"x": Float(0, 1)}, features=2, kind="weights")
OTHER = Federation({"x": Float(0, 1)}, features=2, kind="weights", seed=1)


def message(
    sender: str = "a", sequence: int = 1, federation: Federation = OURS, omega: float = 0.5
) -> Message:
    header = {"fingerprint": federation.fingerprint, "sequence": sequence, "t_n": 5}
    unsigned = Message.of_weights([omega, -1.0], sender=sender, **header)  # type: ignore[arg-type]
    return keys_of(sender).sign(unsigned)


def unsigned(given: Message) -> Message:
    return replace(given, key=b"", signature=b"")


def test_what_is_sound_is_trusted() -> None:
    sent = message()
    withdrawal = keys_of("a").sign(Withdrawal(fingerprint=OURS.fingerprint, sender="a", sequence=2))
    for content in (sent, withdrawal):
        assert open(OURS, Keyring(), content.encode()) == Trusted(content)
    assert open(OURS, None, unsigned(sent)) == Trusted(unsigned(sent))


def test_checks_come_in_their_order() -> None:
    """Each of these has the faults of all that follow, too."""
    keyring = Keyring()
    keyring.trust("a", new_keys().public)
    absurd, foreign = message(omega=1e9), message(federation=OTHER)
    cases = {
        "expected at most": unsigned(foreign).encode() + bytes(10_000),
        "no message of this kind": unsigned(foreign).encode()[:-1],
        "foreign features": unsigned(foreign).encode(),
        "has norm": unsigned(absurd).encode(),
        "is not signed": unsigned(message()).encode(),
        "has a wrong signature": replace(message(), signature=bytes(64)).encode(),
        "is known here by": message().encode(),
    }
    for why, data in cases.items():
        with pytest.raises(MessageRefused, match=why):
            open(OURS, keyring, data)


def test_all_or_none() -> None:
    keyring = Keyring()
    forged = replace(message("b"), signature=bytes(64))
    with pytest.raises(MessageRefused, match="wrong signature"):
        open_all(OURS, keyring, [message().encode(), forged.encode()])
    other = new_keys().sign(message("b"))
    with pytest.raises(NotTrusted, match="several sites use the name"):
        open_all(OURS, keyring, [message().encode(), message("b").encode(), other.encode()])
    assert keyring.known() == {}
    assert len(open_all(OURS, keyring, [message().encode(), message("b").encode()])) == 2
    assert sorted(keyring.known()) == ["a", "b"]


def test_what_was_judged_is_judged_again_only_if_a_key_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keyring = Keyring()
    here = Border(OURS, keyring)
    data = [message(sender).encode() for sender in ("a", "b")]
    first = here.admit(data)
    monkeypatch.setattr(border, "verify", None)  # it would fail
    monkeypatch.setattr(keyring, "judge", None)
    again = here.admit(map(bytes, data))
    assert all(one is other for one, other in zip(first, again, strict=True))
    monkeypatch.undo()
    monkeypatch.setattr(border, "verify", None)  # a signature stays valid
    keyring.revoke(keys_of("a").public)
    assert not here.is_settled
    [gone, stays] = here.admit(data)
    assert isinstance(gone, NotTrusted) and stays == first[1]
    here.federation = Federation(
        OURS.space, features=2, kind="weights", members={"c": str(keys_of("c"))}
    )
    assert not here.is_settled
    assert all(isinstance(each, NotTrusted) for each in here.admit(data))


def test_nothing_else_makes_a_trusted() -> None:
    source = Path(fedbo.__file__).parent
    makers = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Trusted"
    }
    assert makers == {"trust/border.py"}


def test_only_what_is_trusted_reaches_an_inbox() -> None:
    agent = Agent(OURS, name="target", policy=fedbo.FTS())
    with pytest.raises(MessageRefused, match="is not signed"):
        agent.receive([message("b").encode(), unsigned(message()).encode()])
    assert len(agent.inbox) == 0
    with pytest.raises(MessageRefused, match="another federation"):
        agent.receive(open(OTHER, None, unsigned(message(federation=OTHER))))
    assert agent.receive([unsigned(message()), message("b").encode()]) == 2
    assert agent.receive(open(OURS, None, unsigned(message("c")))) == 1
