"""How a SQLite file takes in what was written ahead of it.

A commit goes to a file of its own (the WAL), and is moved to the database later. SQLite does that
in a commit now and then, which then takes as long as a hundred others. So a thread does it, and
holds up those who write only for what came in since it began.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from fedbo.hub.database import turn

_EVERY = 2.0  # seconds


class Checkpoints:
    """A thread that moves what was committed into the database.

    Args:
        engine: Of a SQLite file.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_needed, self._is_stopped = False, threading.Event()
        self._thread = threading.Thread(target=self._run, name="fedbo-checkpoints", daemon=True)
        self._thread.start()

    def note(self) -> None:
        """Note that something was committed."""
        self._is_needed = True

    def stop(self) -> None:
        """End the thread. SQLite does the rest when the last connection is closed."""
        self._is_stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_stopped.wait(_EVERY):
            if self._is_needed:
                self._is_needed = False
                with contextlib.suppress(sqlite3.Error, SQLAlchemyError):  # it is tried again
                    self._move()

    def _move(self) -> None:
        if self._is_all_moved():
            return
        with turn(self._engine):  # now the rest, so that the WAL can begin anew
            self._is_all_moved()

    def _is_all_moved(self) -> bool:
        with contextlib.closing(self._engine.raw_connection()) as connection:
            found = connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            _, written, moved = found
            return bool(written == moved)
