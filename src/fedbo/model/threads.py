"""BLAS on one thread while an agent computes.

An agent's matrices are small: on a busy machine, two threads are many times slower than one.

The number of threads belongs to the whole process. If two agents compute in two threads, the second
one finds the limit of the first: it must not take that for the caller's setting and restore it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import scipy.linalg  # noqa: F401  (its BLAS has to be loaded before the controller looks)
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from fedbo.locks import Lock


def one_thread() -> AbstractContextManager[None]:
    """Return a context in which BLAS uses one thread; it restores the caller's setting."""
    return _OneThread()


class _OneThread(AbstractContextManager[None]):
    _lock = Lock()
    _inside = 0  # contexts, in all threads
    _setting: Any = None  # the caller's, when the first of them was entered

    def __enter__(self) -> None:
        with _OneThread._lock:
            self._limit = _controller().limit(limits=1, user_api="blas")
            if _OneThread._inside:
                self._limit._original_info = _OneThread._setting
            else:
                _OneThread._setting = self._limit._original_info
            _OneThread._inside += 1
        self._limit.__enter__()

    def __exit__(self, *_: object) -> None:
        self._limit.__exit__(None, None, None)
        with _OneThread._lock:
            _OneThread._inside -= 1


@cache
def _controller() -> ThreadpoolController:  # it takes milliseconds to find the loaded libraries
    return ThreadpoolController()
