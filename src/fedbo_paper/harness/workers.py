"""The processes that joblib runs work in."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal


def stop() -> None:
    """End joblib's processes at once.

    After Ctrl-C at an unlucky moment joblib forgets them while they wait for work, and Python waits
    for them at its exit: for ever.
    """
    from joblib.externals.loky.backend.process import LokyProcess

    for process in multiprocessing.active_children():
        if isinstance(process, LokyProcess) and process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
