"""The names of members and operators, and who is named in the audit log."""

from __future__ import annotations

import unicodedata

from fedbo.hub.problems import Refused
from fedbo.outside import shortened

#: Who acted, if it was neither a member nor an operator.
COMMAND_LINE, SCHEDULE, UNKNOWN = "command line", "release schedule", "unknown"
_OPERATOR, _INVITATION = "operator ", "invitation "
#: Python prints these letters and this symbol, and they look like nothing.
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_LONGEST = 48  # bytes; the name of an agent begins with its member's, and has 64 at most


def operator_actor(name: str) -> str:
    """Return how the audit log calls an operator. No member can have such a name."""
    return _OPERATOR + name


def invitation_subject(number: int) -> str:
    """Return how the audit log calls an invitation. No member can have such a name."""
    return f"{_INVITATION}{number}"


def wanted_subject(name: str) -> str:
    """Return how the audit log calls a name that somebody wants, and that may be anything.

    A name that nobody can have is quoted, so that it is not taken for another.

    >>> wanted_subject("clinic-a"), wanted_subject("invitation 3")
    ('clinic-a', "'invitation 3'")
    """
    return repr(shortened(name)) if _fault(name) else name


def check_person(name: str) -> str:
    """Return the name of a member or an operator; `Refused` if it cannot be one.

    >>> check_person("Zürich 2")
    'Zürich 2'
    """
    if fault := _fault(name):
        raise Refused(
            "wrong-name",
            f"the name is {shortened(name)!r}, {fault}; expected 1 to {_LONGEST} bytes of "
            'printable UTF-8 without "/", with no space at either end',
        )
    return name


def _fault(name: str) -> str | None:
    if not name:
        return "which is empty"
    if not name.isprintable():
        return "which has characters that cannot be printed"
    if not _BLANK.isdisjoint(name) or all(unicodedata.category(char)[0] in "MZ" for char in name):
        return "which has characters that look like nothing"
    if len(name.encode()) > _LONGEST:
        return f"which has {len(name.encode()):,} bytes"
    if "/" in name:
        return 'which has a "/"'
    if name != name.strip():
        return "which has a space at an end"
    if unicodedata.normalize("NFC", name) != name:
        return "which is not in the normal form NFC of Unicode"
    if name in (".", ".."):
        return "which means a folder"
    if name in (COMMAND_LINE, SCHEDULE, UNKNOWN) or name.startswith((_OPERATOR, _INVITATION)):
        return "which means someone or something else in the audit log"
    return None
