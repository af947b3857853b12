"""The folder of the user's own files: nobody else can open it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from contracts.exchange import message

from fedbo.exchange import Ledger, MemoryExchange
from fedbo.state import state_folder
from fedbo.trust import KeyPair, Keyring

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows has other permissions")


def ledger() -> None:
    Ledger().publish(MemoryExchange(), message())


def keyring() -> None:
    Keyring.user().trust("site-a", b"\x11" * 32)


def keys() -> None:
    KeyPair.load()


WRITERS: list[Callable[[], None]] = [ledger, keyring, keys]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def lax() -> Iterator[None]:
    """Everybody may do everything with what is created."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize("write", WRITERS)
def test_the_folder_and_its_parents_are_the_users_own(
    write: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    monkeypatch.setenv("FEDBO_STATE", str(home / ".local" / "state" / "fedbo"))
    write()
    folder = state_folder()
    assert [mode(folder), mode(folder.parent), mode(folder.parents[1])] == [0o700] * 3
    assert mode(home) == 0o755
    assert {mode(path) for path in folder.iterdir()} == {0o600}


@pytest.mark.parametrize("write", [keyring, keys])
def test_a_folder_that_others_can_write_to_is_reported_once(
    write: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my state").mkdir(mode=0o777)
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "my state"))
    with pytest.warns(UserWarning, match="others can write to .*: run chmod 700 '/.*/my state'"):
        write()
    keyring()
    assert mode(tmp_path / "my state") == 0o777
