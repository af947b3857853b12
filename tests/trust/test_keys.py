"""Key pairs: created once, readable by their user only, and what their signatures cover."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from fedbo.message import Message, MessageRefused, Withdrawal, read
from fedbo.message.message import Weights
from fedbo.trust import KeyPair, KeyRefused, verify


def message(**changes: object) -> Message:
    header = {"fingerprint": bytes(16), "sender": "a", "sequence": 1, "t_n": 5}
    return Message.of_weights([0.5, -1.0], **header | changes)  # type: ignore[arg-type]


def test_the_users_key_is_created_once_and_only_its_user_can_read_it(state: Path) -> None:
    first = KeyPair.load()
    assert first.path == state / "identity.pem"
    assert first.path.stat().st_mode & 0o777 == 0o600
    assert KeyPair.load().public == first.public == KeyPair.find(first.public).public  # type: ignore[union-attr]
    assert [path.name for path in state.iterdir()] == ["identity.pem"]


def test_processes_that_start_together_get_one_key(state: Path) -> None:
    program = "from fedbo.trust import KeyPair; print(KeyPair.load())"
    running = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert len({process.communicate()[0] for process in running}) == 1


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_key_that_others_can_read_is_refused() -> None:
    path = KeyPair.load().path
    assert path is not None
    path.chmod(0o644)
    with pytest.raises(KeyRefused, match="can be read by other users: run chmod 600"):
        KeyPair.load()


def test_a_file_that_is_no_key_is_refused_and_kept(state: Path) -> None:
    (state / "identity.pem").write_text("hello")
    (state / "identity.pem").chmod(0o600)
    with pytest.raises(KeyRefused, match="is not a private key"):
        KeyPair.load()
    assert (state / "identity.pem").read_text() == "hello"


def test_a_key_is_imported_from_another_machine(tmp_path: Path, state: Path) -> None:
    other = KeyPair.load()
    assert other.path is not None
    copy = other.path.rename(tmp_path / "copy.pem")
    copy.chmod(0o644)  # as it may arrive by mail; what is stored is private
    assert KeyPair.find(other.public) is None
    added = KeyPair.add(copy)
    assert added.public == other.public
    assert added.path is not None
    assert added.path.stat().st_mode & 0o777 == 0o600
    own = KeyPair.load()
    new = KeyPair.retire()
    assert KeyPair.load().public == new.public
    for kept in (other, own):
        assert KeyPair.find(kept.public).public == kept.public  # type: ignore[union-attr]


OTHER = KeyPair.generate()


@pytest.mark.parametrize(
    "changes",
    [
        {"sender": "b"},
        {"sequence": 2},
        {"fingerprint": b"x" * 16},
        {"t_n": 6},
        {"body": Weights(bytes(8))},
        {"key": OTHER.public},
    ],
)
def test_a_signature_covers_everything_and_belongs_to_its_key(changes: dict[str, object]) -> None:
    signed = KeyPair.generate().sign(message())
    verify(signed)
    with pytest.raises(MessageRefused, match="wrong signature"):
        verify(replace(signed, **changes))
    with pytest.raises(MessageRefused, match="is not signed"):
        verify(message())


def test_a_weak_key_signs_nothing() -> None:
    """With the neutral element as key, one fixed signature is valid for many messages."""
    weak = b"\x01" + bytes(31)
    for sequence in range(20):
        forged = replace(message(sequence=sequence), key=weak, signature=weak + bytes(32))
        with pytest.raises(MessageRefused, match="wrong signature"):
            verify(forged)


def test_a_withdrawal_cannot_be_made_from_a_message() -> None:
    keys = KeyPair.generate()
    header = {"fingerprint": bytes(16), "sender": "a", "sequence": 1}
    withdrawal = keys.sign(Withdrawal(**header))  # type: ignore[arg-type]
    verify(withdrawal)
    assert read(withdrawal.encode()) == withdrawal
    stolen = replace(withdrawal, signature=keys.sign(message()).signature)
    with pytest.raises(MessageRefused, match="wrong signature"):
        verify(stolen)
    with pytest.raises(MessageRefused, match="are no message"):
        Message.decode(withdrawal.encode())


def test_signed_messages_travel_and_have_one_spelling() -> None:
    signed = KeyPair.generate().sign(message())
    data = signed.encode()
    assert Message.decode(data) == read(data) == signed
    assert repr(signed).endswith(f", signed by {signed.signer})")
    longer = data.replace(b"\xc4\x20", b"\xc5\x00\x20")  # the length of the key in two bytes
    assert longer != data
    with pytest.raises(MessageRefused, match="another encoding"):
        Message.decode(longer)
