"""``fedbo identity``: show, trust, revoke and import."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedbo import Federation, Float
from fedbo.cli.app import app
from fedbo.identity import KeyPair, Keyring

OTHER = KeyPair.generate()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "state"


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["identity", *arguments])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def test_show_creates_a_key_once_and_never_prints_the_private_one(state: Path) -> None:
    first = run("show")
    assert str(KeyPair.load()) in first
    assert "No key of a peer is known here yet" in first
    secret = (state / "identity.pem").read_text().splitlines()[1]
    assert secret not in first
    assert run("show") == first


def test_nothing_in_the_list_of_known_keys_reaches_the_screen_as_it_is(state: Path) -> None:
    run("show")
    known = {"\x1b[2J": {"site\x1b[2J": str(OTHER)}}
    (state / "known_keys.json").write_text(json.dumps({"version": 1, "known": known}))
    text = run("show")
    assert "\x1b" not in text and text.count(r"\x1b[2J") == 2


def test_trust_replaces_a_key_and_says_so() -> None:
    first = KeyPair.generate()
    assert "in every federation" in run("trust", "site-b", str(first))
    assert f"no longer with {first}" in run("trust", "site-b", str(OTHER))
    assert Keyring.user().known() == {"site-b": str(OTHER)}
    assert "site-b" in run("show")


def test_a_name_of_this_user_is_not_given_to_another_key() -> None:
    """Followed to the letter, the advice for another site's new key gave away the own name."""
    Keyring.user().trust("mine", KeyPair.load().public)
    assert "is a name of this user" in run("trust", "mine", str(OTHER), code=1)
    assert Keyring.user().known() == {"mine": str(KeyPair.load())}
    assert "this user" in run("show")


def test_trust_in_one_federation(tmp_path: Path) -> None:
    plain = Federation({"x": Float(0, 1)})
    plain.save(tmp_path / "f.toml")
    run("trust", "b", str(OTHER), "--federation", str(tmp_path / "f.toml"))
    assert Keyring.user().known(plain) == {"b": str(OTHER)}
    assert Keyring.user().known(Federation({"y": Float(0, 1)})) == {}
    listed = Federation({"x": Float(0, 1)}, members={"b": str(KeyPair.load())})
    listed.save(tmp_path / "l.toml")
    text = run("trust", "b", str(OTHER), "--federation", str(tmp_path / "l.toml"))
    assert "that list decides" in text


def test_revoke_by_name_and_by_key() -> None:
    run("trust", "site-b", str(OTHER))
    assert f"{OTHER} is revoked" in run("revoke", "site-b")
    assert Keyring.user().revoked() == [str(OTHER)]
    assert "No key of 'site-b' is known here" in run("revoke", "site-b", code=1)
    assert "Revoked keys" in run("show")


def test_revoking_the_own_key_makes_a_new_one() -> None:
    old = KeyPair.load()
    Keyring.user().trust("mine", old.public)
    assert "add --own" in run("revoke", "mine", code=1)
    assert KeyPair.load().public == old.public
    text = run("revoke", str(old), "--own")
    new = KeyPair.load()
    assert new.public != old.public
    assert f"The new one is {new}" in text


def test_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = KeyPair.load()
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "elsewhere"))
    assert "can publish from this machine now" in run("import", str(source.path))
    assert KeyPair.find(source.public) is not None
    assert f"other keys {source}" in run("show")
    (tmp_path / "no.pem").write_text("hello")
    assert "is not a private key" in run("import", str(tmp_path / "no.pem"), code=1)
    assert "cannot be read" in run("import", str(tmp_path / "missing.pem"), code=2)


def test_a_damaged_list_of_known_keys_is_an_error(state: Path) -> None:
    run("trust", "site-b", str(OTHER))
    (state / "known_keys.json").write_text("{")
    assert "cannot be used" in run("trust", "site-b", str(OTHER), code=1)
    assert (state / "known_keys.json").read_text() == "{"
