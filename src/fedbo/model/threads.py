"""BLAS on one thread while an agent computes.

An agent's matrices are small: on a busy machine, two threads are many times slower than one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import scipy.linalg  # noqa: F401  (its BLAS has to be loaded before the controller looks)
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]


def one_thread() -> AbstractContextManager[Any]:
    """Return a context in which BLAS uses one thread; it restores the caller's setting."""
    limits: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limits


@cache
def _controller() -> ThreadpoolController:  # it takes milliseconds to find the loaded libraries
    return ThreadpoolController()
