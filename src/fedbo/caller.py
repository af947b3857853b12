"""Warnings that point at the line of the user's program that led to them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

#: Packages that are not the user's program; the last two begin a thread.
_INNER = ("fedbo", "fedbo_paper", "optuna", "concurrent", "threading")

_collected: ContextVar[list[str] | None] = ContextVar("collected", default=None)


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Give a warning that points at the first caller outside fedbo and Optuna.

    In a thread that no such caller began, it points at the program, and at no line of it.
    """
    collected = _collected.get()
    if collected is not None:
        collected.append(text)
        return
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and _is_inner(str(frame.f_globals.get("__name__"))):
        level, frame = level + 1, frame.f_back
    if frame is not None:
        warnings.warn(text, category, stacklevel=level)
    else:
        warnings.warn_explicit(text, category, sys.argv[0], 0)


@contextmanager
def collect() -> Iterator[list[str]]:
    """Put the texts of `warn` into a list instead, in this thread.

    A thread that works for another one passes them on, so that the warning points at the program.

    >>> with collect() as texts:
    ...     warn("the folder is full")
    >>> texts
    ['the folder is full']
    """
    texts: list[str] = []
    token = _collected.set(texts)
    try:
        yield texts
    finally:
        _collected.reset(token)


def _is_inner(module: str) -> bool:
    return module.partition(".")[0] in _INNER
