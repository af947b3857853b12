"""The folder in which fedbo keeps what belongs to the user: the ledger, keys, known keys."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

VARIABLE = "FEDBO_STATE"


class StateMissing(OSError):
    """There is no folder for the user's files; the text says what to do."""


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
