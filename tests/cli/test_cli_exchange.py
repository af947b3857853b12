"""``fedbo exchange status``: who is there, and why some messages do not count."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from cli.terminal import run, said

from fedbo import Agent, Federation, Float, Int
from fedbo.exchange import FolderExchange
from fedbo.exchange.folder import name_of, seal
from fedbo.trust import KeyPair, Keyring

OURS = Federation({"lr": Float(0, 1), "depth": Int(1, 8)})
OTHERS = Federation({"lr": Float(0, 2), "depth": Int(1, 8)})


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderExchange:
    monkeypatch.chdir(tmp_path)
    OURS.save("ours.toml")
    Path("exchange").mkdir()
    return FolderExchange("exchange")


def publish(
    place: FolderExchange, name: str, federation: Federation = OURS, scores: int = 1
) -> None:
    agent = Agent(federation, name=name, seed=0, keys=KeyPair.generate())
    for i in range(scores):
        agent.tell(dict.fromkeys(federation.space.names, 1), float(i))
    assert place.publish(agent.message())


def put_unsigned(place: FolderExchange, name: str) -> None:
    """Put a message into the folder that no program of fedbo would put there."""
    agent = Agent(OURS, name=name, seed=0)
    agent.tell({"lr": 1, "depth": 1}, 0.0)
    home = place.folder / str(OURS.fingerprint)
    (home / name_of(agent.message())).write_bytes(seal(agent.message()))


def status(*arguments: object) -> str:
    return run("exchange", "status", "exchange", *arguments)


def row(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(start))


def test_peers_with_their_trials_ages_keys_and_state(place: FolderExchange) -> None:
    publish(place, "site-a", scores=7)
    publish(place, "site-b")
    put_unsigned(place, "site-c")
    publish(place, "other", OTHERS)
    for file in place.folder.rglob("site-a*"):
        os.utime(file, (time.time() - 7300,) * 2)
    text = status("--federation", "ours.toml")
    assert row(text, "site-a").split()[:4] == ["site-a", "7", "2", "hours"]
    assert " ed25519:" in row(text, "site-a") and "none" in row(text, "site-c").split()
    for name, state, federation in (
        ("site-a", "accepted", OURS),
        ("site-b", "accepted", OURS),
        ("site-c", "refused", OURS),
        ("other", "refused", OTHERS),
    ):
        assert row(text, name).split()[-2:] == [state, str(federation.fingerprint)]
    assert "foreign space" in text and "message 1 of 'site-c' is not signed" in text
    assert "refused" not in status()  # without a file, nothing to compare with


def test_refused_keys_are_said_and_nothing_is_remembered(place: FolderExchange) -> None:
    for _ in range(2):  # the same name under two keys
        publish(place, "site-a")
    text = status("--federation", "ours.toml")
    assert row(text, "site-a").split()[-2] == "refused"
    assert "several sites use the name" in " ".join(text.split())
    assert Keyring.user().known(OURS) == {}


def test_damaged_files_are_listed_and_cannot_make_up_lines(place: FolderExchange) -> None:
    publish(place, "site-a")
    home = place.folder / str(OURS.fingerprint)
    (home / "x\n\nAll peers are accepted.\n.fedbo").write_text("hello")
    with open(os.fsencode(home) + b"/\xff\x1b[2J.fedbo", "w") as file:
        file.write("hello")
    text = status()
    assert "Skipped" in text
    assert not any(line.startswith("All peers") for line in text.splitlines())
    assert r"x\n\nAllpeersareaccepted.\n.fedbo" in "".join(text.split())
    assert r"\udcff\x1b[2J.fedbo" in "".join(text.split()) and "\x1b" not in text


def test_a_place_that_does_not_exist_is_an_error() -> None:
    assert "does not exist" in said("exchange", "status", "/nowhere/at/all", code=1)
    assert "there is no folder" in said("exchange", "status", "exchange-misspelt", code=1)
