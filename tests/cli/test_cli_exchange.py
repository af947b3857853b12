"""``fedbo exchange status``: who is there, and why some messages do not count."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedbo import Agent, Federation, Float, Int
from fedbo.cli.app import app
from fedbo.exchange import FolderExchange
from fedbo.identity import KeyPair, Keyring

ours = Federation({"lr": Float(0, 1), "depth": Int(1, 8)})


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderExchange:
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "120")
    ours.save(tmp_path / "ours.toml")
    (tmp_path / "exchange").mkdir()
    return FolderExchange(tmp_path / "exchange")


def publish(place: FolderExchange, name: str, federation: Federation = ours, **more: int) -> None:
    keys = KeyPair.generate() if more.pop("signed", 1) else None
    agent = Agent(federation, name=name, seed=0, keys=keys)
    for i in range(more.pop("scores", 1)):
        agent.tell(dict.fromkeys(federation.space.names, 1), float(i))
    assert place.publish(agent.message())


def status(place: FolderExchange, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["exchange", "status", place.address, *arguments])
    assert result.exit_code == code, result.output
    return result.output


def line(text: str, start: str) -> list[str]:
    return next(one.split() for one in text.splitlines() if one.strip().startswith(start))


def test_an_empty_place(place: FolderExchange) -> None:
    assert "There is no message here yet" in status(place)


def test_peers_with_their_trials_ages_and_keys(place: FolderExchange, tmp_path: Path) -> None:
    publish(place, "site-a", scores=7)
    publish(place, "site-b", signed=0)
    for file in place.folder.rglob("site-a*"):
        os.utime(file, (time.time() - 7300,) * 2)
    text = status(place, "--federation", str(tmp_path / "ours.toml"))
    a, b = line(text, "site-a"), line(text, "site-b")
    assert a[:4] == ["site-a", "7", "2", "hours"]
    assert a[4].startswith("ed25519:")
    assert a[-1] == b[-1] == "accepted"
    assert "not signed" in " ".join(b)
    assert str(ours.fingerprint) in text


def test_what_does_not_match_is_said(place: FolderExchange, tmp_path: Path) -> None:
    publish(place, "site-a")
    publish(place, "other", Federation({"lr": Float(0, 2), "depth": Int(1, 8)}))
    text = " ".join(status(place, "--federation", str(tmp_path / "ours.toml")).split())
    assert "Another federation" in text
    assert "foreign space" in text
    assert "Another federation" not in status(place)  # without a file, nothing to compare with


def test_refused_keys_are_said_and_nothing_is_remembered(
    place: FolderExchange, tmp_path: Path
) -> None:
    publish(place, "site-a")
    publish(place, "site-a")  # the same name under another key
    text = status(place, "--federation", str(tmp_path / "ours.toml"))
    assert line(text, "site-a")[-1] == "refused"
    assert "several sites use the name" in " ".join(text.split())
    assert "'site-a' is used with 2 keys" in status(place)
    assert Keyring.user().known(ours) == {}


def test_damaged_files_are_listed_and_cannot_make_up_lines(place: FolderExchange) -> None:
    publish(place, "site-a")
    home = place.folder / str(ours.fingerprint)
    (home / "x\n\nAll peers are accepted.\n.fedbo").write_text("hello")
    with open(os.fsencode(home) + b"/\xff\x1b[2J.fedbo", "w") as file:
        file.write("hello")
    text = status(place)
    assert "Skipped" in text
    assert not any(line.startswith("All peers") for line in text.splitlines())
    assert r"x\n\nAllpeersareaccepted.\n.fedbo" in "".join(text.split())
    assert r"\udcff\x1b[2J.fedbo" in "".join(text.split()) and "\x1b" not in text


def test_a_place_that_does_not_exist_is_an_error(place: FolderExchange) -> None:
    for address in ("/nowhere/at/all", f"{place.address}-misspelt"):
        result = CliRunner().invoke(app, ["exchange", "status", address])
        assert result.exit_code == 2
        said = " ".join(result.output.replace("│", " ").split())
        assert "does not exist" in said or "there is no folder" in said
