"""What exchanges raise, and what they warn of."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from fedbo.errors import ExchangeError, FileRefused

_ADVICE = {
    errno.EACCES: "ask for permission to use it",
    errno.EPERM: "ask for permission to use it",
    errno.EROFS: "ask for permission to use it",
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some space there",
    errno.EFBIG: "free some space there, or raise the limit on the size of files",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.ELOOP: "put a folder there instead",
    errno.ENOTDIR: "give the path of a folder",
}


class ExchangeWarning(UserWarning):
    """Something in an exchange was skipped; the text says what and why."""


@contextlib.contextmanager
def failing(what: str, error: type[ExchangeError] = ExchangeError) -> Iterator[None]:
    """Turn an error of the operating system into one that says what failed, and what to do."""
    try:
        yield
    except ExchangeError:
        raise
    except FileRefused as refused:
        raise error(f"{what}: {refused}") from None
    except OSError as failure:
        advice = _ADVICE.get(failure.errno or 0, "check whether it exists and can be reached")
        reason = f"{failure.strerror}; {advice}" if failure.strerror else str(failure)
        raise error(f"{what}: {reason}") from None
