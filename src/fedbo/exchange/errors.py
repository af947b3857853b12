"""What exchanges raise, and what they warn of."""

from __future__ import annotations

import errno

_ADVICE = {
    errno.EACCES: "ask for permission to use it",
    errno.EPERM: "ask for permission to use it",
    errno.EROFS: "ask for permission to use it",
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some space there",
    errno.EFBIG: "free some space there, or raise the limit on the size of files",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.ELOOP: "put a folder there instead",
}


class ExchangeError(OSError):
    """A place cannot be reached; the text says what failed, why, and what to do."""


class ExchangeWarning(UserWarning):
    """Something in an exchange was skipped; the text says what and why."""


def failed(what: str, error: OSError) -> ExchangeError:
    """Return the error that says what failed, why, and what to do."""
    advice = _ADVICE.get(error.errno or 0, "check whether it exists and can be reached")
    return ExchangeError(f"{what}: {error.strerror or error}; {advice}")
