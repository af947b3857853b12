"""Files are written completely or not at all, and nobody waits for a pipe."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from fedbo import files
from fedbo.errors import FileRefused
from fedbo.files import alone


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


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
    assert seen == [0o600, 0o644, 0o640]


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


def test_a_file_written_in_pieces_appears_at_once_or_not_at_all(tmp_path: Path) -> None:
    place = tmp_path / "log"
    place.write_text("old")
    with files.replacing(place, 0o600) as (path, file):
        file.write(b"new")
        assert mode(Path(path)) == 0o600 and place.read_text() == "old"
    assert place.read_text() == "new" and mode(place) == 0o600
    with pytest.raises(ZeroDivisionError), files.replacing(place, 0o600) as (path, _):
        Path(path).write_text("half")
        raise ZeroDivisionError
    assert [*tmp_path.iterdir()] == [place] and place.read_text() == "new"


def test_reading_waits_for_nobody_and_reads_no_more_than_it_may(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to("file")
    for name in ("pipe", ""):
        with pytest.raises((FileRefused, IsADirectoryError)):
            files.read(tmp_path / name, 100)
    with pytest.raises(FileRefused, match="it has 10 bytes, expected at most 9"):
        files.read(tmp_path / "file", 9)
    with pytest.raises(OSError, match="symbolic links"):
        files.read(tmp_path / "link", 100, links=False)
    assert files.read(tmp_path / "link", 10) == b"0123456789"


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
