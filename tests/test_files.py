"""Files are written completely or not at all, and nobody waits for a pipe."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from contracts.parties import PLANE

from fedbo import Agent, Federation, files
from fedbo.files import FileRefused, alone


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def made_old(path: Path) -> Path:
    then = time.time() - 2 * 3600
    os.utime(path, (then, then), follow_symlinks=False)
    return path


def test_a_file_gets_its_permissions_before_anybody_can_open_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    replace = os.replace

    def watched(source: str, target: str, **given: int | None) -> None:
        seen.append(mode(Path(source)))
        replace(source, target, **given)

    monkeypatch.setattr(os, "replace", watched)
    for wanted in (0o600, 0o644, 0o640):
        files.write(tmp_path / "file", b"x", wanted)
        assert mode(tmp_path / "file") == wanted
    before = os.umask(0o077)
    try:
        files.write(tmp_path / "file", b"x", at_least=0o040)
    finally:
        os.umask(before)
    assert seen == [0o600, 0o644, 0o640, 0o640]


def test_the_folder_is_on_the_disk_after_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(fd: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        fsync(fd)

    def replaced(*args: str, **given: int | None) -> None:
        done.append("rename")
        replace(*args, **given)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    files.write(tmp_path / "file", b"x")
    assert done == ["file", "rename", "folder"]


@pytest.mark.parametrize(("number", "fails"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_folder_that_cannot_be_synchronised_is_no_error_but_a_broken_disk_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, fails: bool
) -> None:
    def broken(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", broken)
    if fails:
        with pytest.raises(OSError, match="Input/output"):
            files.write(tmp_path / "file", b"x")
    else:
        files.write(tmp_path / "file", b"x")
    assert (tmp_path / "file").read_bytes() == b"x"


def test_a_link_is_replaced_and_its_target_left_alone(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    (tmp_path / "file").symlink_to("target")
    files.write(tmp_path / "file", b"x", 0o666)
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "target").read_text() == "mine"


def save(path: Path) -> None:
    Agent(Federation(PLANE), name="site-a", seed=0).save(path)


def write_and_sweep(path: Path) -> None:
    files.write(path, b"x")
    files.sweep(path)


@pytest.mark.parametrize("act", [save, write_and_sweep])
def test_what_a_killed_save_left_is_removed_an_hour_later(
    tmp_path: Path, act: Callable[[Path], None]
) -> None:
    left, young = tmp_path / ".agent.fedbo.0123abcd", tmp_path / ".agent.fedbo.0123abce"
    others = [
        tmp_path / ".agent.fedbo.0123abc",  # not a name that a save gives
        tmp_path / ".agent.fedbo.0123abcd.bak",
        tmp_path / ".agentxfedbo.0123abcd",
        tmp_path / ".other.fedbo.0123abcd",  # of another file
        tmp_path / "agent.fedbo.0123abcd",
    ]
    for path in (left, young, *others):
        path.write_text("x")
    link = tmp_path / ".agent.fedbo.ffffffff"
    link.symlink_to("other")
    for path in (left, link, *others):
        made_old(path)
    act(tmp_path / "agent.fedbo")
    assert not left.exists()
    assert young.exists() and link.is_symlink() and all(path.exists() for path in others)


def test_a_file_written_in_pieces_appears_at_once_or_not_at_all(tmp_path: Path) -> None:
    place = tmp_path / "log"
    place.write_text("old")
    with files.replacing(place, 0o600) as path, open(path, "w") as file:
        file.write("new")
        assert mode(Path(path)) == 0o600 and place.read_text() == "old"
    assert place.read_text() == "new" and mode(place) == 0o600
    with pytest.raises(ZeroDivisionError), files.replacing(place, 0o600) as path:
        Path(path).write_text("half")
        raise ZeroDivisionError
    assert [*tmp_path.iterdir()] == [place] and place.read_text() == "new"


def test_reading_waits_for_nobody_and_reads_no_more_than_it_may(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"0123456789")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "link").symlink_to("file")
    for name, why in (("pipe", "regular"), ("", "regular"), ("empty", "empty")):
        with pytest.raises(FileRefused, match=why):
            files.read(tmp_path / name, 100)
    with pytest.raises(FileRefused, match="it has 10 bytes, expected at most 9"):
        files.read(tmp_path / "file", 9)
    with pytest.raises(OSError, match="symbolic links"):
        files.read(tmp_path / "link", 100, links=False)
    assert files.read(tmp_path / "link", 10) == b"0123456789"
    assert files.read(tmp_path / "file", 10, start=b"01") == b"0123456789"
    assert files.read(tmp_path / "file", 10, start=b"ab") == b"01"


def test_a_lock_waits_for_no_pipe_and_takes_descriptors(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with alone(tmp_path / "pipe"):
        pass
    with alone(tmp_path / "nothing") as locked:
        assert not locked
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with alone(fd) as locked:
            assert locked
        os.fstat(fd)  # it is still open
    finally:
        os.close(fd)
