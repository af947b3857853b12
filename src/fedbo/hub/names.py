"""The names of members, and who is named in the audit log."""

from __future__ import annotations

import getpass
import os
import sys
import unicodedata

from fedbo.hub.problems import Refused
from fedbo.outside import shortened

#: Who makes the releases that are due.
SCHEDULE = "release schedule"
#: Python prints these letters and this symbol, and they look like nothing.
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_LONGEST = 48  # bytes; the name of an agent begins with its member's, and has 64 at most


def command_line() -> str:
    """Return how the audit log calls this user of the operating system; no member has a "/"."""
    try:
        import pwd

        user = pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):  # on Windows, or if the system has no name for the user
        user = getpass.getuser() if sys.platform == "win32" else str(os.getuid())
    return f"command line/{user}"


def check_member(name: str) -> str:
    """Return the name of a member; `Refused` if it cannot be one.

    >>> check_member("Zürich 2")
    'Zürich 2'
    """
    is_text = name.isprintable() and "/" not in name and _BLANK.isdisjoint(name)
    is_seen = any(unicodedata.category(char)[0] not in "MZ" for char in name)
    is_normal = name == name.strip() == unicodedata.normalize("NFC", name)
    is_free = name not in (".", "..", SCHEDULE)
    if not (is_text and is_seen and is_normal and is_free and len(name.encode()) <= _LONGEST):
        raise Refused(
            "wrong-name",
            f"the name is {shortened(name)!r}, expected 1 to {_LONGEST} bytes of printable UTF-8 "
            "(NFC) without '/', with no space at either end, and not the hub's own words for "
            f"others, such as {SCHEDULE!r}",
        )
    return name
