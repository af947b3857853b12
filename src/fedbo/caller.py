"""Warnings that point at the line of the user's program that led to them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_INNER = ("fedbo", "fedbo_paper", "optuna")  # packages that are not the user's program

_collected: ContextVar[list[str] | None] = ContextVar("collected", default=None)


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Give a warning that points at the first caller outside fedbo and Optuna."""
    collected = _collected.get()
    if collected is not None:
        collected.append(text)
        return
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _is_inner(str(frame.f_globals.get("__name__"))):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


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
