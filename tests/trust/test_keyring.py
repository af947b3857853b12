"""The keyring: whose key is whose, revoked keys, and what was heard last."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedbo import Federation, Float
from fedbo.errors import FileRefused
from fedbo.message import Message, Withdrawal
from fedbo.message.signed import Signed
from fedbo.testing.keys import new_keys
from fedbo.trust import KeyPair, Keyring, keyring
from fedbo.trust.keyring import Reason

SPACE = {"x": Float(0, 1)}
ours = Federation(SPACE, features=2)
A, B, C = new_keys(), new_keys(), new_keys()


def message(sender: str = "a", keys: KeyPair = A, sequence: int = 1) -> Message:
    header = {"fingerprint": ours.fingerprint, "sequence": sequence, "t_n": 5}
    return keys.sign(Message.of_weights([0.5, -1.0], sender=sender, **header))  # type: ignore[arg-type]


def withdrawal(sender: str = "a", keys: KeyPair = A, sequence: int = 1) -> Withdrawal:
    header = {"fingerprint": ours.fingerprint, "sender": sender}
    return keys.sign(Withdrawal(sequence=sequence, **header))


def listed(**members: KeyPair) -> Federation:
    keys = {name: str(pair) for name, pair in members.items()}
    return Federation(SPACE, features=2, members=keys)


@pytest.fixture(params=["memory", "file"])
def ring(request: pytest.FixtureRequest, tmp_path: Path) -> Keyring:
    return Keyring(tmp_path / "state" / "known.json" if request.param == "file" else None)


def reasons(ring: Keyring, *contents: Signed, of: Federation = ours) -> list[Reason | None]:
    """Why each is not trusted; None if it is."""
    return [refusal and refusal.reason for refusal in ring.judge(of, contents)]


# The rule


def test_the_first_key_of_a_name_is_kept(ring: Keyring) -> None:
    assert reasons(ring, message()) == [None]
    assert ring.known(ours) == ring.known() == {"a": str(A)}
    assert reasons(ring, message(keys=B), message("a/2", B)) == [Reason.OTHER_KEY] * 2
    assert reasons(ring, message(sequence=2)) == [None]
    assert ring.known(Federation({"y": Float(0, 1)}, features=2)) == {}


def test_a_dry_run_remembers_nothing(ring: Keyring) -> None:
    sent = [message("b"), message(sequence=9)]
    assert ring.judge(ours, sent, remember=False) == [None, None]
    assert ring.known() == {} and reasons(ring, message(), message("b", B)) == [None, None]


def test_of_two_keys_that_come_at_once_neither_is_trusted(ring: Keyring) -> None:
    assert reasons(ring, message(), message(keys=B)) == [Reason.CONTESTED] * 2
    ring.trust("a", B.public)
    assert reasons(ring, message(), message(keys=B)) == [Reason.OTHER_KEY, None]


def test_advice_can_be_pasted(tmp_path: Path) -> None:
    name = "a'$(reboot)"
    ring = Keyring(tmp_path / "known.json")
    ring.judge(ours, [message(name)])
    [refusal] = ring.judge(ours, [message(name, B)])
    command = str(refusal)[str(refusal).index("fedbo identity trust") :]
    assert shlex.split(command) == ["fedbo", "identity", "trust", name, str(B)]


def test_trust_replaces_a_key(ring: Keyring) -> None:
    ring.judge(ours, [message()])
    ring.trust("a", B.public, ours)
    assert reasons(ring, message(keys=B), message()) == [None, Reason.OTHER_KEY]
    ring.trust("a", A.public)  # in every federation
    assert reasons(ring, message()) == [None]


def test_a_revoked_key_is_refused_under_every_name_and_keeps_its_own_closed(ring: Keyring) -> None:
    ring.judge(ours, [message()])
    ring.revoke(A.public)
    assert ring.revoked() == [str(A)]
    assert reasons(ring, message(), message("another")) == [Reason.REVOKED] * 2
    assert reasons(ring, message(), of=listed(a=A)) == [Reason.REVOKED]
    assert reasons(ring, message(keys=B), message("a/2", C)) == [Reason.CLOSED] * 2
    assert reasons(ring, message(keys=B), of=listed(a=B)) == [Reason.CLOSED]
    ring.trust("a", B.public)
    assert reasons(ring, message(keys=B), message()) == [None, Reason.REVOKED]


@pytest.mark.parametrize("key", [bytes(32), bytes([1]) + bytes(31)])
def test_a_weak_key_is_neither_trusted_nor_revoked(tmp_path: Path, key: bytes) -> None:
    ring = Keyring(tmp_path / "known.json")
    for act in (ring.revoke, lambda key: ring.trust("a", key)):
        with pytest.raises(ValueError, match="anyone can sign with it"):
            act(key)
    assert Keyring(tmp_path / "known.json").known() == {}


# Lists of members


def test_a_list_of_members_admits_nobody_else(ring: Keyring) -> None:
    sent = [message(), message("a/2"), message("b", B), message(keys=B)]
    assert reasons(ring, *sent, of=listed(a=A)) == [
        None,
        None,
        Reason.NOT_LISTED,
        Reason.NOT_THE_LISTED_KEY,
    ]
    assert ring.known() == {"a": str(A)}


@pytest.mark.parametrize("first", ["heard", "said", "listed"])
def test_a_list_does_not_speak_for_a_name_that_is_known_by_another_key(
    ring: Keyring, first: str
) -> None:
    """Such as the list of a hub that has put its own key in the place of a member's."""
    if first == "said":
        ring.trust("a", B.public)
    elif first == "heard":
        ring.judge(ours, [message(keys=B)])
    else:
        ring.judge(listed(a=B), [])
    agreed = listed(a=A, b=B)
    assert ring.disputed(agreed) == {"a": str(B)}
    faults = [Reason.OTHER_KEY, Reason.NOT_THE_LISTED_KEY]
    assert reasons(ring, message(), message(keys=B), of=agreed) == faults
    assert not ring.is_trusted(agreed, "a", A.public)
    ring.trust("a", A.public)
    assert ring.disputed(agreed) == {} and reasons(ring, message(), of=agreed) == [None]


def test_a_list_that_vanishes_opens_no_name(ring: Keyring) -> None:
    """A file without a list has the same fingerprint, wherever it lies."""
    ring.judge(listed(a=A), [])
    assert reasons(ring, message(keys=B)) == [Reason.OTHER_KEY]
    assert reasons(ring, message()) == [None]


def test_a_key_that_an_updated_list_replaced_is_trusted_no_more(ring: Keyring) -> None:
    assert reasons(ring, message(), of=listed(a=A)) == [None]
    updated = listed(a=B)
    assert not ring.is_trusted(updated, "a", A.public)
    sent = [message(sequence=2), message(keys=B)]
    assert reasons(ring, *sent, of=updated) == [Reason.NOT_THE_LISTED_KEY, Reason.OTHER_KEY]
    ring.trust("a", B.public)
    assert reasons(ring, *sent, of=updated) == [Reason.NOT_THE_LISTED_KEY, None]


# What was heard last


def test_an_old_message_is_refused_by_the_next_program_too(tmp_path: Path) -> None:
    path = tmp_path / "state" / "known.json"
    assert reasons(Keyring(path), message(sequence=5), message("b", sequence=1)) == [None] * 2
    later = Keyring(path)
    sent = [message(sequence=4), message(sequence=5), message("b", sequence=1)]
    assert reasons(later, *sent) == [Reason.REPLAYED, None, None]
    ring = Keyring(path)
    assert reasons(ring, message(sequence=6)) == [None]
    assert reasons(ring, message(sequence=5)) == [Reason.REPLAYED]


def test_what_was_withdrawn_is_not_heard_again(tmp_path: Path) -> None:
    path = tmp_path / "state" / "known.json"
    assert reasons(Keyring(path), withdrawal(sequence=5)) == [None]
    sent = [message(sequence=5), withdrawal(sequence=5), message(sequence=6)]
    assert reasons(Keyring(path), *sent) == [Reason.REPLAYED, None, None]


def test_another_program_makes_nothing_old_here(tmp_path: Path) -> None:
    """Of two workers, one may have read a message just before it was replaced."""
    path = tmp_path / "state" / "known.json"
    one, other = Keyring(path), Keyring(path)
    assert reasons(one, message(sequence=1)) == reasons(other, message(sequence=1)) == [None]
    assert reasons(other, message(sequence=3), message("b", sequence=7)) == [None, None]
    assert reasons(one, message(sequence=2)) == [None]
    sent = [message(sequence=2), message("b", sequence=6)]
    assert reasons(Keyring(path), *sent) == [Reason.REPLAYED] * 2


def test_a_damaged_list_of_what_was_heard_is_said_and_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "state" / "known.json"
    reasons(Keyring(path), message(sequence=5))
    [heard] = (tmp_path / "state" / "heard").iterdir()
    heard.write_text("{")
    with pytest.warns(UserWarning, match="an old message could be taken for a new one"):
        assert reasons(Keyring(path), message(sequence=4)) == [None]
    assert reasons(Keyring(path), message(sequence=3)) == [Reason.REPLAYED]


# Processes, files, limits


def test_the_key_that_another_process_remembered_first_counts(tmp_path: Path) -> None:
    ring, other = (Keyring(tmp_path / "known.json") for _ in range(2))
    judge = ring._judged

    def slow(*given: Any) -> Any:
        judged = judge(*given)
        other.judge(ours, [message(keys=B)])
        return judged

    ring._judged = slow  # type: ignore[method-assign]
    assert reasons(ring, message()) == [Reason.OTHER_KEY]
    assert ring.known() == {"a": str(B)}


def test_a_claim_does_not_take_the_name_of_another_site() -> None:
    ring, own = Keyring.user(), KeyPair.load()
    assert ring.claim("mine", own.public, ours) is None
    assert ring.claim("mine", own.public, ours) is None
    ring.judge(ours, [message("a")])
    assert ring.claim("a/second", own.public, ours) is not None
    assert ring.known(ours) == {"mine": str(own), "a": str(A)}
    ring.revoke(own.public)
    assert ring.claim("mine", own.public, ours) is not None
    assert ring.claim("mine", KeyPair.retire().public, ours) is None


def test_changes_tell_when_trust_was_lost(ring: Keyring) -> None:
    ring.judge(ours, [message()])
    before = ring.changes()
    ring.judge(ours, [message("b")])
    assert ring.changes() == before  # a new name takes nothing away
    assert ring.is_trusted(ours, "a", A.public)
    ring.trust("a", B.public)
    assert ring.changes() > before
    assert not ring.is_trusted(ours, "a", A.public)
    assert ring.is_trusted(ours, "unknown", C.public)
    assert not ring.is_trusted(listed(a=A), "c", C.public)
    ring.revoke(B.public)
    assert not ring.is_trusted(ours, "x", B.public)


def test_the_number_of_names_is_bounded(ring: Keyring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "MOST", 3)
    sent = [message(f"n{i}") for i in range(5)]
    assert reasons(ring, *sent) == [None] * 3 + [Reason.FULL] * 2
    assert reasons(ring, message("n1", sequence=7)) == [None]


def test_a_file_is_shared_by_processes_and_private(tmp_path: Path) -> None:
    path = tmp_path / "state" / "known.json"
    here = Keyring(path)
    here.trust("a", A.public)
    before = here.changes()
    Keyring(path).revoke(A.public)
    assert here.changes() > before and not here.is_trusted(ours, "a", A.public)
    here.trust("a", A.public)
    program = (
        "import sys; from fedbo.trust import Keyring;"
        "from fedbo.message.signed import parse_key;"
        "Keyring(sys.argv[1]).trust(sys.argv[2], parse_key(sys.argv[3]))"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program, str(path), f"n{i}", str(B)])
        for i in range(4)
    ]
    assert [process.wait() for process in running] == [0] * 4
    assert sorted(here.known()) == ["a", "n0", "n1", "n2", "n3"]
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("text", ["{", "[]", '{"known": {"": {"a": "ed25519:x"}}}', "[" * 10**5])
def test_a_damaged_file_is_an_error_and_stays(tmp_path: Path, text: str) -> None:
    path = tmp_path / "known.json"
    path.write_text(text)
    with pytest.raises(FileRefused):
        Keyring(path).known()
    assert path.read_text() == text
