"""The names of members and operators, and who is named in the audit log."""

from __future__ import annotations

import unicodedata

from fedbo.hub.problems import Refused
from fedbo.outside import shortened

#: Who acted, if it was neither a member nor an operator.
COMMAND_LINE, SCHEDULE = "command line", "release schedule"
_OPERATOR = "operator "
#: Python prints these letters and this symbol, and they look like nothing.
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_LONGEST = 48  # bytes; the name of an agent begins with its member's, and has 64 at most


def operator_actor(name: str) -> str:
    """Return how the audit log calls an operator. No member can have such a name."""
    return _OPERATOR + name


def check_person(name: str) -> str:
    """Return the name of a member or an operator; `Refused` if it cannot be one.

    >>> check_person("Zürich 2")
    'Zürich 2'
    """
    is_text = name.isprintable() and "/" not in name and _BLANK.isdisjoint(name)
    is_seen = any(unicodedata.category(char)[0] not in "MZ" for char in name)
    is_normal = name == name.strip() == unicodedata.normalize("NFC", name)
    is_free = name not in (".", "..", COMMAND_LINE, SCHEDULE) and not name.startswith(_OPERATOR)
    if not (is_text and is_seen and is_normal and is_free and len(name.encode()) <= _LONGEST):
        raise Refused(
            "wrong-name",
            f"the name is {shortened(name)!r}, expected 1 to {_LONGEST} bytes of printable UTF-8 "
            "(NFC) without '/', with no space at either end, and not the hub's own words for "
            "others, such as 'operator ann'",
        )
    return name
