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
from fedbo.message import Message, MessageRefused

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


def refusal(ring: Keyring, one: Message, federation: Federation = ours) -> str:
    accepted, refused = ring.admit(federation, [one])
    assert not accepted
    return refused[0][1]


def test_the_first_key_of_a_name_is_kept(ring: Keyring) -> None:
    assert ring.admit(ours, [message()]) == ([message()], [])
    assert ring.known(ours) == ring.known() == {"a": str(A)}
    text = refusal(ring, message(keys=B))
    assert f"'a' is known here by {A}" in text
    is_file = ring.path is not None
    advice = f"fedbo identity trust a {B}" if is_file else f"keyring.trust('a', parse_key('{B}'))"
    assert advice in text
    assert f"'a' is known here by the key {A}" in refusal(ring, message(keys=None))
    assert ring.admit(ours, [message(sequence=2)])[1] == []


def test_another_federation_has_other_names(ring: Keyring) -> None:
    ring.admit(ours, [message()])
    other = Federation({"y": Float(0, 1)}, features=2)
    assert ring.known(other) == {}


def test_a_signature_counts_more_than_none_when_both_come_at_once(ring: Keyring) -> None:
    signed, unsigned = message(), message(keys=None, sequence=2**32 - 1)
    accepted, refused = ring.admit(ours, [unsigned, signed])
    assert accepted == [signed]
    assert "is not signed" in refused[0][1]


def test_two_keys_at_once_are_both_refused_until_one_is_trusted(ring: Keyring) -> None:
    both = [message(), message(keys=B)]
    accepted, refused = ring.admit(ours, both)
    assert not accepted
    assert all(str(A) in text and str(B) in text for _, text in refused)
    ring.trust("a", B.public)
    accepted, refused = ring.admit(ours, both)
    assert accepted == [both[1]]
    assert len(refused) == 1


def test_a_name_with_thousands_of_keys_costs_little(ring: Keyring) -> None:
    """Each refusal used to quote all keys: 2,000 keys made 224 MB of text."""
    many = [message(keys=KeyPair.generate()) for _ in range(500)]
    accepted, refused = ring.admit(ours, many)
    assert not accepted
    assert "497 more" in refused[0][1]
    assert sum(len(text) for _, text in refused) < 500 * 1000


def test_advice_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    ring, name = Keyring(tmp_path / "known.json"), "a'$(reboot)"
    ring.admit(ours, [message(name)])
    text = refusal(ring, message(name, B))
    command = text[text.index("fedbo identity trust") :]
    assert shlex.split(command) == ["fedbo", "identity", "trust", name, str(B)]


def test_another_site_with_this_users_name_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path))
    ring, own = Keyring.user(), KeyPair.load()
    ring.trust("a", own.public, ours)
    text = refusal(ring, message())
    assert "'a' is a name of this user" in text
    assert "identity trust" not in text


def test_trust_replaces_a_key(ring: Keyring) -> None:
    ring.admit(ours, [message()])
    ring.trust("a", B.public, ours)
    assert ring.admit(ours, [message(keys=B)])[1] == []
    refusal(ring, message())
    ring.trust("a", A.public)  # in every federation
    assert ring.admit(ours, [message()])[1] == []


def test_a_revoked_key_is_refused_under_every_name(ring: Keyring) -> None:
    ring.admit(ours, [message()])
    ring.revoke(A.public)
    assert ring.revoked() == [str(A)]
    assert "was revoked here" in refusal(ring, message())
    assert "was revoked here" in refusal(ring, message("another"))
    assert "was revoked here" in refusal(ring, message(), listed(a=A))
    ring.trust("a", A.public)
    assert ring.admit(ours, [message()])[1] == []


def test_a_list_of_members_admits_nobody_else(ring: Keyring) -> None:
    federation = listed(a=A)
    assert ring.admit(federation, [message(), message("a/second")])[1] == []
    assert "has no 'b'" in refusal(ring, message("b", B), federation)
    assert "is not signed" in refusal(ring, message(keys=None), federation)
    text = refusal(ring, message(keys=B), federation)
    assert str(A) in text
    assert str(B) in text
    ring.trust("a", B.public)  # the list counts, not what this site trusts
    refusal(ring, message(keys=B), federation)


def test_a_wrong_signature_does_not_claim_a_name(ring: Keyring) -> None:
    forged = Message.decode(message(keys=B).encode().replace(B.public, A.public))
    assert "wrong signature" in refusal(ring, forged)
    assert ring.known() == {}


def test_check_refuses_all_or_remembers_all(ring: Keyring) -> None:
    with pytest.raises(MessageRefused, match="several sites use the name"):
        ring.check(ours, [message("b"), message(), message(keys=B)])
    assert ring.known() == {}
    ring.check(ours, [message("b"), message()])
    assert sorted(ring.known()) == ["a", "b"]


def test_the_key_that_another_process_remembered_first_counts(tmp_path: Path) -> None:
    ring, other = (Keyring(tmp_path / "known.json") for _ in range(2))
    judge = ring._judge

    def slow(*given: Any) -> Any:
        judged = judge(*given)
        other.admit(ours, [message(keys=B)])
        return judged

    ring._judge = slow  # type: ignore[method-assign]
    accepted, refused = ring.admit(ours, [message()])
    assert not accepted
    assert str(B) in refused[0][1]


def test_a_claim_does_not_take_the_name_of_another_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path))
    ring, own = Keyring.user(), KeyPair.load()
    assert ring.claim("mine", own.public, ours) is None
    assert ring.claim("mine", own.public, ours) is None
    ring.admit(ours, [message("a")])
    fault = ring.claim("a/second", own.public, ours)
    assert fault is not None and "that of another site" in fault
    assert ring.known(ours) == {"mine": str(own), "a": str(A)}
    ring.revoke(own.public)
    fault = ring.claim("mine", own.public, ours)
    assert fault is not None and "was revoked here" in fault
    assert ring.revoked() == [str(own)]
    new = KeyPair.retire()
    assert ring.claim("mine", new.public, ours) is None


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


def test_changes_of_another_process_are_seen(tmp_path: Path) -> None:
    here, there = (Keyring(tmp_path / "known.json") for _ in range(2))
    here.admit(ours, [message()])
    before = here.changes()
    there.revoke(A.public)
    assert here.changes() > before
    assert not here.is_trusted(ours, "a", A.public)


def test_the_number_of_names_is_bounded(ring: Keyring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "MOST", 3)
    accepted, refused = ring.admit(ours, [message(f"n{i}") for i in range(5)])
    assert (len(accepted), len(refused)) == (3, 2)
    assert "takes no new ones" in refused[0][1]
    assert ring.admit(ours, [message("n1", sequence=7)])[1] == []


def test_a_file_is_shared_by_processes_and_private(tmp_path: Path) -> None:
    path = tmp_path / "state" / "known.json"
    here = Keyring(path)
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
    with pytest.raises(FileRefused, match="cannot be used"):
        Keyring(path).known()
    assert path.read_text() == text
