"""How much of what strangers put into a folder stays in memory."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import pytest
from contracts.exchange import OURS, message, new_keys, sequences, unwarned

from fedbo import Federation
from fedbo.exchange import ExchangeError, ExchangeWarning, FolderExchange
from fedbo.exchange.file import seal
from fedbo.identity import Keyring
from fedbo.message import Message

LARGE = Federation(OURS.space, features=300, kind="belief")  # messages of 180 kB


def put(folder: Path, name: str, content: Message, *, seconds: float = 100.0) -> Path:
    """A file with a message in it that is old enough not to be read again."""
    place = folder / str(OURS.fingerprint) if content.fingerprint == OURS.fingerprint else folder
    path = place / f"epoch-{content.epoch}" / f"{name}.fedbo"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(seal(content))
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


def listing(*names: str) -> Federation:
    members = {name: new_keys().public for name in names}
    return Federation(LARGE.space, features=300, kind="belief", members=members)


def held(exchange: FolderExchange, federation: Federation) -> tuple[list[Message], float, float]:
    """What is fetched, the megabytes that it and the cache take, and the most in between."""
    tracemalloc.start()
    try:
        found = unwarned(exchange, federation)
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return found, now / 1e6, peak / 1e6


@pytest.mark.parametrize("is_listed", [False, True])
def test_many_links_to_one_message_are_held_once(tmp_path: Path, is_listed: bool) -> None:
    federation = listing("site-a") if is_listed else LARGE
    path = put(tmp_path, "evil", new_keys().sign(message(LARGE, "evil")))
    for i in range(200):
        os.link(path, path.with_name(f"{i}.fedbo"))
    exchange = FolderExchange(tmp_path, Keyring())
    for _ in range(2):
        found, now, peak = held(exchange, federation)
        assert len(found) == (0 if is_listed else 1)
        assert now < 2.0 and peak < 6.0


def test_old_messages_of_one_sender_are_not_held(tmp_path: Path) -> None:
    for sequence in range(1, 101):
        put(tmp_path, str(sequence), message(LARGE, sequence=sequence))
    exchange = FolderExchange(tmp_path, Keyring())
    [found], now, _ = held(exchange, LARGE)
    assert found.sequence == 100 and now < 2.0


def test_messages_of_strangers_are_not_held_if_members_are_listed(tmp_path: Path) -> None:
    federation = listing("site-a")
    for i in range(50):
        put(tmp_path, str(i), new_keys().sign(message(LARGE, f"evil-{i}")))
        put(tmp_path, f"{i}-unsigned", message(LARGE, "site-a", i))
    exchange = FolderExchange(tmp_path, Keyring())
    with pytest.warns(ExchangeWarning, match="skipped") as caught:
        assert exchange.fetch(federation) == []
    reasons = ("list of members has no 'evil-", "'site-a' is listed with the key", "95 more files")
    assert all(any(why in str(one.message) for why in reasons) for one in caught)
    found, now, _ = held(exchange, federation)
    assert found == [] and now < 2.0


def test_a_list_of_members_that_changes_counts_at_once(tmp_path: Path) -> None:
    keys = {name: new_keys() for name in ("a", "b")}
    for name, pair in keys.items():
        put(tmp_path, name, pair.sign(message(sender=name)))
    exchange = FolderExchange(tmp_path, Keyring())
    for names in (["a"], ["a", "b"], ["b"]):
        members = {name: keys[name].public for name in names}
        federation = Federation(OURS.space, features=OURS.features, seed=7, members=members)
        assert federation.fingerprint == OURS.fingerprint
        assert [found.sender for found in unwarned(exchange, federation)] == names


def test_known_keys_that_cannot_be_read_are_an_error_for_strangers_too(tmp_path: Path) -> None:
    put(tmp_path, "evil", new_keys().sign(message(LARGE, "evil")))
    (tmp_path / "keys").write_text("{")
    with pytest.raises(ExchangeError, match="the list of known keys"):
        FolderExchange(tmp_path, Keyring(tmp_path / "keys")).fetch(listing("site-a"))


@pytest.mark.parametrize("how", ["removed", "replaced", "damaged"])
def test_an_older_copy_is_read_when_the_newer_one_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    for sequence in (1, 2, 4):
        put(tmp_path, f"copy-{sequence}", message(sequence=sequence))
    newest = put(tmp_path, "newest", message(sequence=4))
    twin = put(tmp_path, "twin", message(sequence=4))
    exchange = FolderExchange(tmp_path)
    assert sequences(exchange) == {"site-a": 4}
    with monkeypatch.context() as patched:
        patched.setattr("fedbo.exchange.folder.load", None)  # no file is read
        assert sequences(exchange) == {"site-a": 4}
    (newest.parent / "copy-4.fedbo").unlink()
    assert sequences(exchange) == {"site-a": 4}
    twin.unlink()
    assert sequences(exchange) == {"site-a": 4}
    if how == "removed":
        newest.unlink()
    elif how == "replaced":
        put(tmp_path, "newest", message(sequence=1))
    else:
        newest.write_bytes(b"x")
    assert [found.sequence for found in unwarned(exchange)] == [2]


def test_of_equal_sequences_the_choice_does_not_depend_on_what_was_read_before(
    tmp_path: Path,
) -> None:
    one, other = sorted([message(), message(t_n=21)], key=Message.encode)
    put(tmp_path, "one", one)
    exchange = FolderExchange(tmp_path)
    assert exchange.fetch(OURS) == [one]
    larger, copy = put(tmp_path, "other", other), put(tmp_path, "copy", other)
    assert exchange.fetch(OURS) == FolderExchange(tmp_path).fetch(OURS) == [other]
    larger.unlink()
    assert exchange.fetch(OURS) == [other]
    copy.unlink()
    assert exchange.fetch(OURS) == [one]


def test_no_more_is_held_than_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is heard stays, and who is not is heard as soon as there is room."""
    first = put(tmp_path, "b", message(sender="b"))
    room = 2 * (first.stat().st_size + 1024) + 100
    monkeypatch.setattr("fedbo.exchange.found.MOST_HELD", room)
    exchange = FolderExchange(tmp_path)
    assert sequences(exchange) == {"b": 1}
    for name in "acdef":
        put(tmp_path, name, message(sender=name))
    with pytest.warns(ExchangeWarning, match=f"messages of more than {room:,} bytes") as caught:
        found = sequences(exchange)
    assert len(caught) == 1
    assert len(found) == 2 and found["b"] == 1
    with monkeypatch.context() as patched:
        patched.setattr("fedbo.exchange.folder.load", None)  # no file is read, and nothing is said
        assert sequences(exchange) == found
    put(tmp_path, "b", message(sender="b", sequence=2))
    put(tmp_path, "new b", message(sender="b", sequence=3))
    assert sequences(exchange) == found | {"b": 3}
    for name in ("b", "new b"):
        (first.parent / f"{name}.fedbo").unlink()
    again = sequences(exchange)
    assert len(again) == 2 and "b" not in again
    for name in "acdef"[2:]:
        (first.parent / f"{name}.fedbo").unlink()
    assert sequences(exchange) == {"a": 1, "c": 1}
