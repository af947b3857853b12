"""The keyring: listed members, first use, changed keys, revoked keys."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedbo import Federation, Float
from fedbo.files import FileRefused
from fedbo.identity import KeyPair, Keyring, keyring
from fedbo.identity.keyring import NotTrusted, Reason
from fedbo.message import Message

ours = Federation({"x": Float(0, 1)}, features=2)
A, B = KeyPair.generate(), KeyPair.generate()


def message(sender: str = "a", keys: KeyPair | None = A, sequence: int = 1) -> Message:
    header = {"fingerprint": ours.fingerprint, "sequence": sequence, "t_n": 5}
    unsigned = Message.of_weights([0.5, -1.0], sender=sender, **header)  # type: ignore[arg-type]
    return unsigned if keys is None else keys.sign(unsigned)


def listed(**members: KeyPair) -> Federation:
    return Federation(
        {"x": Float(0, 1)}, features=2, members={name: str(keys) for name, keys in members.items()}
    )


@pytest.fixture(params=["memory", "file"])
def ring(request: pytest.FixtureRequest, tmp_path: Path) -> Keyring:
    return Keyring(tmp_path / "state" / "known.json" if request.param == "file" else None)


def reasons(ring: Keyring, *messages: Message, of: Federation = ours) -> list[Reason | None]:
    """Why each message is refused; None if it is accepted."""
    accepted, refused = ring.admit(of, messages)
    faults = {message: error.reason for message, error in refused}
    assert accepted == [message for message in messages if message not in faults]
    return [faults.get(message) for message in messages]


def test_the_first_key_of_a_name_is_kept(ring: Keyring) -> None:
    assert reasons(ring, message()) == [None]
    assert ring.known(ours) == ring.known() == {"a": str(A)}
    assert reasons(ring, message(keys=B), message("a/2", B)) == [Reason.OTHER_KEY] * 2
    assert reasons(ring, message(keys=None)) == [Reason.UNSIGNED]
    assert reasons(ring, message(sequence=2)) == [None]
    assert ring.known(Federation({"y": Float(0, 1)}, features=2)) == {}


def test_check_accepts_all_or_remembers_nothing(ring: Keyring) -> None:
    ring.admit(ours, [message("b"), message()], remember=False)
    with pytest.raises(NotTrusted) as caught:
        ring.check(ours, [message("b"), message(), message(keys=B)])
    assert caught.value.reason is Reason.CONTESTED and ring.known() == {}
    ring.check(ours, [message("b"), message()])
    assert sorted(ring.known()) == ["a", "b"]


def test_messages_that_come_at_once(ring: Keyring) -> None:
    signed, unsigned = message(), message(keys=None, sequence=2**32 - 1)
    assert reasons(Keyring(), unsigned, signed) == [Reason.UNSIGNED, None]
    assert reasons(ring, signed, message(keys=B)) == [Reason.CONTESTED] * 2
    ring.trust("a", B.public)
    assert reasons(ring, signed, message(keys=B)) == [Reason.OTHER_KEY, None]


def test_advice_can_be_pasted(tmp_path: Path) -> None:
    name = "a'$(reboot)"
    ring = Keyring(tmp_path / "known.json")
    ring.admit(ours, [message(name)])
    [(_, error)] = ring.admit(ours, [message(name, B)])[1]
    command = str(error)[str(error).index("fedbo identity trust") :]
    assert shlex.split(command) == ["fedbo", "identity", "trust", name, str(B)]


def test_trust_replaces_a_key(ring: Keyring) -> None:
    ring.admit(ours, [message()])
    ring.trust("a", B.public, ours)
    assert reasons(ring, message(keys=B), message()) == [None, Reason.OTHER_KEY]
    ring.trust("a", A.public)  # in every federation
    assert reasons(ring, message()) == [None]


def test_a_revoked_key_is_refused_under_every_name(ring: Keyring) -> None:
    ring.admit(ours, [message()])
    ring.revoke(A.public)
    assert ring.revoked() == [str(A)]
    assert reasons(ring, message(), message("another")) == [Reason.REVOKED] * 2
    assert reasons(ring, message(), of=listed(a=A)) == [Reason.REVOKED]
    ring.trust("a", A.public)
    assert reasons(ring, message()) == [None]


def test_a_list_of_members_admits_nobody_else(ring: Keyring) -> None:
    sent = [message(), message("a/2"), message("b", B), message(keys=None), message(keys=B)]
    assert reasons(ring, *sent, of=listed(a=A)) == [
        None,
        None,
        Reason.NOT_LISTED,
        Reason.UNSIGNED,
        Reason.NOT_THE_LISTED_KEY,
    ]
    assert ring.known() == {}


@pytest.mark.parametrize("is_said", [False, True])
def test_a_list_does_not_speak_for_a_name_that_is_known_by_another_key(
    ring: Keyring, is_said: bool
) -> None:
    if is_said:
        ring.trust("a", B.public)
    else:
        ring.admit(ours, [message(keys=B)])
    agreed = listed(a=A, b=B)
    assert ring.disputed(agreed) == {"a": str(B)}
    faults = [Reason.DISPUTED, Reason.NOT_THE_LISTED_KEY]
    assert reasons(ring, message(), message(keys=B), of=agreed) == faults
    assert not ring.is_trusted(agreed, "a", A.public)
    ring.trust("a", A.public)
    assert ring.disputed(agreed) == {} and reasons(ring, message(), of=agreed) == [None]


def test_a_wrong_signature_does_not_claim_a_name(ring: Keyring) -> None:
    forged = Message.decode(message(keys=B).encode().replace(B.public, A.public))
    assert reasons(ring, forged, message(keys=B)) == [Reason.WRONG_SIGNATURE, None]
    assert ring.known() == {"a": str(B)}


def test_the_key_that_another_process_remembered_first_counts(tmp_path: Path) -> None:
    ring, other = (Keyring(tmp_path / "known.json") for _ in range(2))
    judge = ring._sorted

    def slow(*given: Any) -> Any:
        judged = judge(*given)
        other.admit(ours, [message(keys=B)])
        return judged

    ring._sorted = slow  # type: ignore[method-assign]
    assert reasons(ring, message()) == [Reason.OTHER_KEY]
    assert ring.known() == {"a": str(B)}


def test_a_claim_does_not_take_the_name_of_another_site() -> None:
    ring, own = Keyring.user(), KeyPair.load()
    assert ring.claim("mine", own.public, ours) is None
    assert ring.claim("mine", own.public, ours) is None
    ring.admit(ours, [message("a")])
    assert ring.claim("a/second", own.public, ours) is not None
    assert ring.known(ours) == {"mine": str(own), "a": str(A)}
    ring.revoke(own.public)
    assert ring.claim("mine", own.public, ours) is not None
    assert ring.claim("mine", KeyPair.retire().public, ours) is None


def test_changes_tell_when_trust_was_lost(ring: Keyring) -> None:
    ring.admit(ours, [message()])
    before = ring.changes()
    ring.admit(ours, [message("b")])
    assert ring.changes() == before  # a new name takes nothing away
    assert ring.is_trusted(ours, "a", A.public)
    ring.trust("a", B.public)
    assert ring.changes() > before
    assert not ring.is_trusted(ours, "a", A.public)
    assert not ring.is_trusted(ours, "a", b"")
    assert ring.is_trusted(ours, "unknown", b"")
    assert not ring.is_trusted(listed(a=A), "c", b"")
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
        "import sys; from fedbo.identity import Keyring;"
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
