"""A thread that carries messages, so that no trial ever waits for an exchange.

There are two errands: to make and publish the latest message, and to fetch what peers have
published. Both are asked for in no time and run one after the other in one daemon thread, which
starts with the first of them and ends when there has been none for a while. A message that is not
yet made when a newer one is asked for is never made: the newer one says more. What goes wrong on
the way becomes a sentence, which the sampler, in the thread of the study, makes a warning.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from fedbo.exchange import Exchange, ExchangeError, ExchangeWarning, Ledger
from fedbo.federation import Federation
from fedbo.message import Message

_IDLE = 5.0  # seconds without an errand, after which the thread ends
_LEAVING = 5.0  # seconds at most for all that is left to be sent when the interpreter exits
_PATIENCE = 30.0  # seconds on one errand, after which the study is told
_OVERTAKEN = 5  # messages in a row; workers of one study overtake one another now and then

#: Makes a message when it is about to be sent; None if there is nothing to send.
Make = Callable[[], Message | None]


class Courier:
    """Carries messages to an exchange and from it.

    ``ledger`` logs each message before it is sent. Whether the exchange fails or hangs, no method
    waits for it but `wait_for_first` and `flush`, and these no longer than they are told.
    """

    def __init__(self, exchange: Exchange, ledger: Ledger) -> None:
        self.exchange, self.ledger = exchange, ledger
        self.restart()

    def restart(self) -> None:
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._outgoing: Make | None = None
        self._unsent: Message | None = None  # was tried, and is tried again with the next errand
        self._wanted: Federation | None = None
        self._sending = False
        self._messages: list[Message] = []
        self._messages_of: Federation | None = None
        self._fetched = False  # or tried to
        self._under_way: tuple[str, float] | None = None  # an errand at the place, since when
        self._unanswered: set[str] = set()  # errands that took too long, and the study was told
        self._overtaken = 0  # messages in a row that are not handed out, because later ones are
        self._failing: set[str] = set()
        self._said: set[str] = set()
        self._complaints: list[str] = []
        _couriers.add(self)

    def __getstate__(self) -> dict[str, Any]:
        return {"exchange": self.exchange, "ledger": self.ledger}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.exchange, self.ledger = state["exchange"], state["ledger"]
        self.restart()

    def __deepcopy__(self, memo: dict[int, Any]) -> Courier:
        return Courier(self.exchange, self.ledger)  # the same place, not a copy of it

    # What the sampler asks for

    def send(self, make: Make) -> None:
        """Make a message and publish it soon, instead of any that is not yet made.

        ``make`` is called in the courier's thread, and may take its time. If it raises, that is a
        complaint. It must not wait for a lock that is held by whoever calls `flush`.
        """
        with self._changed:
            self._outgoing = make
            self._wake()

    def fetch(self, federation: Federation) -> None:
        """Look soon for what the peers in this federation have published."""
        with self._changed:
            self._wanted = federation
            self._wake()

    def messages(self, federation: Federation) -> list[Message]:
        """The latest message of each peer, as far as it has been fetched."""
        with self._changed:
            return self._messages if self._messages_of is federation else []

    def complaints(self) -> list[str]:
        """What went wrong since this was last called, each kind of it once."""
        with self._changed:
            self._complain_of_silence()
            complaints, self._complaints = self._complaints, []
            return complaints

    def wait_for_first(self, seconds: float) -> None:
        """Wait until something has been fetched for the first time, but no longer than this."""
        with self._changed:
            self._changed.wait_for(lambda: self._fetched, seconds)

    def flush(self, seconds: float) -> bool:
        """Wait until all is made and sent, or could not be, but no longer; whether that is so."""
        with self._changed:
            if self._outgoing is None and self._unsent is not None:
                self._outgoing = _nothing_new  # what is unsent is tried once more
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
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        """Wait for errands and run them; False if there were none for a while."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._outgoing or self._wanted, _IDLE):
                self._thread = None
                return False
            make, self._outgoing = self._outgoing, None
            federation, self._wanted = self._wanted, None
            self._sending = make is not None or self._unsent is not None
        if self._sending:
            self._send(make or _nothing_new)
        if federation is not None:
            self._fetch(federation)
        return True

    def _send(self, make: Make) -> None:
        """Publish what is made; if that is nothing, what could not be sent before."""
        message: Message | None = None
        try:
            message = make()
        except Exception as error:
            self._complain("make", _sentence("make", error))
        if message is None:
            message = self._unsent
        sent = message is None or self._publish(message)
        with self._changed:
            self._unsent = None if sent else message
            self._sending = False
            self._changed.notify_all()

    def _publish(self, message: Message) -> bool:
        """Whether it worked, be the message handed out or overtaken by a later one."""
        answers: list[bool] = []
        worked = self._tried(
            "publish", lambda: answers.append(self.ledger.publish(self.exchange, message))
        )
        for is_out in answers:
            self._overtaken = 0 if is_out else self._overtaken + 1
            if self._overtaken == _OVERTAKEN:
                self._complain("overtaken", _overtaken(message.sender, self.exchange))
        return worked

    def _fetch(self, federation: Federation) -> None:
        found: list[Message] = []
        worked = self._tried("fetch", lambda: found.extend(self.exchange.fetch(federation)))
        with self._changed:
            self._fetched = True
            if worked:
                self._messages_of = federation
                self._messages = found
            self._changed.notify_all()

    def _tried(self, errand: str, run: Callable[[], object]) -> bool:
        """Run it; whether it worked. A place where nothing works is one complaint, not two."""
        with self._changed:
            self._under_way = errand, time.monotonic()
        try:
            run()
        except Exception as error:
            with self._changed:
                self._under_way = None
                if self._failing <= {errand}:
                    self._complain(errand, _sentence(errand, error, self.exchange))
                self._failing.add(errand)
            return False
        with self._changed:
            self._under_way = None
            self._failing.discard(errand)
            self._unanswered.discard(errand)
        return True

    def _complain(self, kind: str, sentence: str) -> None:
        with self._changed:
            if kind not in self._said:
                self._said.add(kind)
                self._complaints.append(sentence)

    def _complain_of_silence(self) -> None:
        errand, since = self._under_way or ("", math.inf)
        if time.monotonic() - since > _PATIENCE and errand not in self._unanswered:
            self._unanswered.add(errand)
            self._complaints.append(
                f"{self.exchange.address} has not answered for more than {_PATIENCE:g} seconds. "
                "The study goes on without it: no news of peers come in and no message goes out "
                "until it does; this is said once until then"
            )


_WHAT = {
    "make": "This study's message was not made",
    "publish": "This study's message was not published",
    "fetch": "No news of peers",
}


def _nothing_new() -> None:
    return None


def _sentence(errand: str, error: Exception, exchange: Exchange | None = None) -> str:
    why = str(error)
    if not isinstance(error, ExchangeError):  # a fault, which says little of itself
        where = "" if exchange is None else f" at {exchange.address}"
        why = f"{type(error).__name__}{where}: {error}"
    return (
        f"{_WHAT[errand]}: {why}. The study goes on with what it has, and tries again after each "
        "trial; this is said once"
    )


def _overtaken(name: str, exchange: Exchange) -> str:
    return (
        f"{exchange.address} has later messages under the name {name!r} than this study's, so "
        "another study, or an earlier one, seems to use it. Peers hear that one and not this. Give "
        "this study another name, or take the other's message back "
        f"(fedbo join {exchange.address} ... --withdraw); this is said once"
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
        courier.restart()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
