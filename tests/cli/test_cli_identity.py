"""``fedbo identity``: show, trust, revoke and import."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.terminal import said

from fedbo import Federation, Float
from fedbo.trust import KeyPair, Keyring

OTHER = KeyPair.generate()


def identity(*arguments: object, code: int = 0) -> str:
    return said("identity", *arguments, code=code)


def test_show_creates_a_key_once_and_never_prints_the_private_one(state: Path) -> None:
    first = identity("show")
    assert str(KeyPair.load()) in first
    assert "No key of a peer is known here yet" in first
    assert (state / "identity.pem").read_text().splitlines()[1] not in first
    assert identity("show") == first


def test_nothing_in_the_list_of_known_keys_reaches_the_screen_as_it_is(state: Path) -> None:
    identity("show")
    known = {"\x1b[2J": {"site\x1b[2J": str(OTHER)}}
    (state / "known_keys.json").write_text(json.dumps({"version": 1, "known": known}))
    text = identity("show")
    assert "\x1b" not in text and text.count(r"\x1b[2J") == 2


def test_trust_replaces_a_key_and_says_so(tmp_path: Path) -> None:
    first, plain = KeyPair.generate(), Federation({"x": Float(0, 1)})
    plain.save(tmp_path / "f.toml")
    identity("trust", "site-b", first, "--federation", tmp_path / "f.toml")
    assert Keyring.user().known(plain) == {"site-b": str(first)}
    assert Keyring.user().known(Federation({"y": Float(0, 1)})) == {}
    assert "in every federation" in identity("trust", "site-b", first)
    assert f"no longer with {first}" in identity("trust", "site-b", OTHER)
    assert Keyring.user().known() == {"site-b": str(OTHER)}
    Federation(plain.space, members={"b": str(first)}).save(tmp_path / "f.toml")
    text = identity("trust", "b", OTHER, "--federation", tmp_path / "f.toml")
    assert "lists another key" in text and "site-b" in identity("show")


def test_a_name_of_this_user_is_not_given_to_another_key() -> None:
    """Followed to the letter, the advice for another site's new key gave away the own name."""
    Keyring.user().trust("mine", KeyPair.load().public)
    assert "is a name of this user" in identity("trust", "mine", OTHER, code=1)
    assert Keyring.user().known() == {"mine": str(KeyPair.load())}
    assert "this user" in identity("show")


def test_revoke_by_name_and_by_key() -> None:
    identity("trust", "site-b", OTHER)
    assert f"{OTHER} is revoked" in identity("revoke", "site-b")
    assert Keyring.user().revoked() == [str(OTHER)]
    assert Keyring.user().known() == {"site-b": str(OTHER)}  # its name stays closed
    assert "No key of 'site-c' is known here" in identity("revoke", "site-c", code=1)
    assert "Revoked keys" in identity("show")
    old = KeyPair.load()
    Keyring.user().trust("mine", old.public)
    assert "add --own" in identity("revoke", "mine", code=1)
    assert KeyPair.load().public == old.public
    text, new = identity("revoke", old, "--own"), KeyPair.load()
    assert new.public != old.public and f"The new one is {new}" in text


def test_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = KeyPair.load()
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "elsewhere"))
    assert "can publish from this machine now" in identity("import", source.path)
    assert KeyPair.find(source.public) is not None
    assert f"other keys {source}" in identity("show")
    (tmp_path / "no.pem").write_text("hello")
    assert "is not a private key" in identity("import", tmp_path / "no.pem", code=1)
    assert "missing.pem cannot be used" in identity("import", tmp_path / "missing.pem", code=1)
