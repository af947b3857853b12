"""A thread that carries messages, so that no trial ever waits for an exchange.

There are two errands: to publish the latest message, and to fetch what peers have published. Both
are asked for in no time and run one after the other in one daemon thread, which starts with the
first of them and ends when there has been none for a while. A message that is not yet sent when a
newer one comes is dropped: the newer one says more. What goes wrong on the way becomes a sentence,
which the sampler, in the thread of the study, makes a warning.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from fedbo.exchange import Exchange, ExchangeError, ExchangeWarning, Releases
from fedbo.federation import Federation
from fedbo.message import Message

_IDLE = 5.0  # seconds without an errand, after which the thread ends
_LEAVING = 5.0  # seconds at most for all that is left to be sent when the interpreter exits


class Courier:
    """Carries messages to an exchange and from it.

    ``releases`` logs each message before it is sent. Whether the exchange fails or hangs, no method
    waits for it but `wait_for_first` and `flush`, and these no longer than they are told.
    """

    def __init__(self, exchange: Exchange, releases: Releases) -> None:
        self.exchange, self.releases = exchange, releases
        self._start()

    def _start(self) -> None:
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._outgoing: Message | None = None
        self._unsent: Message | None = None  # was tried, and is tried again with the next errand
        self._wanted: Federation | None = None
        self._sending = False
        self._letters: list[Message] = []
        self._letters_of: Federation | None = None
        self._fetched = False  # or tried to
        self._failing: set[str] = set()
        self._said: set[str] = set()
        self._complaints: list[str] = []
        _couriers.add(self)

    def __getstate__(self) -> dict[str, Any]:
        return {"exchange": self.exchange, "releases": self.releases}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.exchange, self.releases = state["exchange"], state["releases"]
        self._start()

    def __deepcopy__(self, memo: dict[int, Any]) -> Courier:
        return Courier(self.exchange, self.releases)  # the same place, not a copy of it

    # What the sampler asks for

    def send(self, message: Message) -> None:
        """Publish this message soon, instead of any that is still waiting."""
        with self._changed:
            self._outgoing = message
            self._wake()

    def fetch(self, federation: Federation) -> None:
        """Look soon for what the peers in this federation have published."""
        with self._changed:
            self._wanted = federation
            self._wake()

    def letters(self, federation: Federation) -> list[Message]:
        """The latest message of each peer, as far as it has been fetched."""
        with self._changed:
            return self._letters if self._letters_of is federation else []

    def complaints(self) -> list[str]:
        """What went wrong since this was last called, each kind of it once."""
        with self._changed:
            complaints, self._complaints = self._complaints, []
            return complaints

    def wait_for_first(self, seconds: float) -> None:
        """Wait until something has been fetched for the first time, but no longer than this."""
        with self._changed:
            self._changed.wait_for(lambda: self._fetched, seconds)

    def flush(self, seconds: float) -> bool:
        """Wait until all is sent, or could not be, but no longer than this; whether that is so."""
        with self._changed:
            if self._outgoing is None:
                self._outgoing, self._unsent = self._unsent, None  # once more
            if self._outgoing is not None:
                try:
                    self._wake()
                except RuntimeError:  # the interpreter is too far gone for a thread
                    return False
            return self._changed.wait_for(lambda: not (self._outgoing or self._sending), seconds)

    # The errands

    def _wake(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="fedbo courier", daemon=True)
            thread.start()
            self._thread = thread
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._outgoing or self._wanted, _IDLE):
                    self._thread = None
                    return
                message, self._outgoing, self._unsent = self._outgoing or self._unsent, None, None
                federation, self._wanted = self._wanted, None
                self._sending = message is not None
            if message is not None:
                self._publish(message)
            if federation is not None:
                self._fetch(federation)

    def _publish(self, message: Message) -> None:
        sent = self._tried("publish", lambda: self.releases.publish(self.exchange, message))
        with self._changed:
            self._unsent = None if sent else message
            self._sending = False
            self._changed.notify_all()

    def _fetch(self, federation: Federation) -> None:
        found: list[Message] = []
        worked = self._tried("fetch", lambda: found.extend(self.exchange.fetch(federation)))
        with self._changed:
            self._fetched = True
            if worked:
                self._letters_of = federation
                self._letters = found
            self._changed.notify_all()

    def _tried(self, errand: str, run: Callable[[], object]) -> bool:
        """Run it; whether it worked. A place where nothing works is one complaint, not two."""
        try:
            run()
        except Exception as error:
            with self._changed:
                if errand not in self._said and self._failing <= {errand}:
                    self._said.add(errand)
                    self._complaints.append(_sentence(errand, self.exchange, error))
                self._failing.add(errand)
            return False
        with self._changed:
            self._failing.discard(errand)
        return True


def _sentence(errand: str, exchange: Exchange, error: Exception) -> str:
    what = "This study's message was not published" if errand == "publish" else "No news of peers"
    why = str(error)
    if not isinstance(error, ExchangeError):  # a fault in the exchange, which says little of itself
        why = f"{type(error).__name__} at {exchange.address}: {error}"
    return (
        f"{what}: {why}. The study goes on with what it has, and tries again after each trial; "
        "this is said once"
    )


_couriers: weakref.WeakSet[Courier] = weakref.WeakSet()


@atexit.register
def _leave() -> None:
    """Send what is left, all couriers together, when the interpreter exits."""
    until = time.monotonic() + _LEAVING
    for courier in list(_couriers):
        complaints = []
        if not courier.flush(max(0.0, until - time.monotonic())):
            complaints = [
                f"{courier.exchange.address} did not answer in time: this study's last message was "
                "not published; the next one is, when the study goes on"
            ]
        for complaint in complaints + courier.complaints():
            warnings.warn(complaint, ExchangeWarning, stacklevel=2)


def _after_fork() -> None:
    """A forked child has neither the thread nor its errands: these are the parent's."""
    for courier in list(_couriers):
        courier._start()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
