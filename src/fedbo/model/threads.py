"""BLAS on one thread while an agent computes.

An agent's matrices are small: two threads contend for them, and are many times slower than one on
a busy machine. Looking for the loaded libraries costs milliseconds, so it is done once.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import scipy.linalg  # noqa: F401  (its BLAS has to be loaded before the controller looks)
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]


def one_thread() -> AbstractContextManager[Any]:
    """A context in which BLAS uses one thread; the caller's setting comes back after it."""
    limits: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limits


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
