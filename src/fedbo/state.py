"""The folder in which fedbo keeps what belongs to the user: the ledger, keys, known keys."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from pathlib import Path

from fedbo.caller import warn
from fedbo.errors import StateMissing

VARIABLE = "FEDBO_STATE"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

_reported: set[Path] = set()  # folders that others can write to


def state_folder() -> Path:
    """Return the folder; it may not exist yet.

    It is the folder that the environment variable ``FEDBO_STATE`` names, or else fedbo's folder
    in the user's state folder (``~/.local/state/fedbo`` on Linux).

    Raises:
        StateMissing: If the variable is not set, and this user has no home folder.
    """
    if named := os.environ.get(VARIABLE):
        return Path(os.path.abspath(os.path.expanduser(named)))
    from platformdirs import user_state_path  # `import fedbo` does not load it

    with contextlib.suppress(RuntimeError):  # there is no home; old versions return a relative path
        folder = user_state_path("fedbo", appauthor=False)
        if folder.is_absolute():
            return folder
    raise StateMissing(
        f"this user has no home folder: set {VARIABLE} to a folder for fedbo's own files"
    )


def make_folder(folder: Path) -> None:
    """Create a folder for the user's files, and its parents, so that only this user can open them.

    Those that exist stay as they are. If the state folder is one that others can write to, there is
    a warning, once.
    """
    _make(folder)
    if os.name != "posix" or folder in _reported:
        return
    with contextlib.suppress(OSError):
        if folder.stat().st_mode & _OTHERS_WRITE and folder == state_folder():
            _reported.add(folder)
            warn(
                f"others can write to {folder}, and could replace the keys that fedbo keeps there: "
                f"run chmod 700 {shlex.quote(str(folder))}"
            )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)  # another process may have been first
    except OSError:
        if not folder.is_dir():
            raise
