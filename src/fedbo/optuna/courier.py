"""A thread that carries messages, so that no trial waits for an exchange.

`fedbo.optuna.mailbox` decides when there is something to carry. The courier has four kinds of
errands: to withdraw what the study published under a former name, to fetch the messages of peers,
to make and publish the study's latest one, and to report progress after that, if it is wanted. They
run one after the other, and the thread ends when there are none left. Errors and warnings become
sentences, and the sampler gives them as warnings in the thread of the study.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from fedbo import caller
from fedbo.exchange import Exchange, ExchangeWarning, Ledger, Progress
from fedbo.exchange.choice import same_federation
from fedbo.exchange.ledger import NotOurs
from fedbo.federation import Federation
from fedbo.identity import KeyPair
from fedbo.message import Heard, Message, Release
from fedbo.optuna.notices import Complaints, Errand

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds between attempts to publish in an outage
_LEAVING = 5.0  # seconds for everything that is left to be sent when the interpreter exits


#: Makes a report when it is about to be sent, which may take seconds; None if there is none.
Report = Callable[[], Progress | None]


class Letter(NamedTuple):
    """A message to publish, and what the ledger calls the study that sends it."""

    message: Message
    study: str = ""
    report: Report | None = None  # what to report when it is published


#: Makes a letter when it is about to be sent; None if there is nothing to send.
Make = Callable[[], Letter | None]


class Withdrawal(NamedTuple):
    """What to withdraw: the arguments of `Ledger.withdraw`."""

    federation: Federation
    sender: str
    keys: KeyPair | None
    study: str

    def covers(self, message: Message) -> bool:
        return message.sender == self.sender and same_federation(self.federation, message)


class Courier:
    """Carries messages to and from an exchange; the ledger logs each before it is sent.

    Even if the exchange fails or hangs, only `wait_for_first` and `flush` wait for it. The ledger
    has a line for each attempt. So in an outage there are pauses of 1, 2, 4 … 60 seconds in which
    nothing is published.
    """

    def __init__(self, exchange: Exchange, ledger: Ledger) -> None:
        self.exchange, self.ledger = exchange, ledger
        self.restart()

    def restart(self) -> None:
        """Forget all errands."""
        self._changed = threading.Condition()
        self._is_running = False
        self._outgoing: Make | None = None
        self._is_sending = False
        self.last_words = ""  # what to say at the exit if the last message was not delivered
        self.signature = ("", "")  # the name of the study, and the key that signs its messages
        self._unsent: Letter | None = None  # failed or held, and is tried with a later errand
        self._pause, self._pause_ends = _FIRST_PAUSE, 0.0
        self._published: Letter | None = None  # and its report is due
        self._is_reporting = False
        self._withdrawals: list[Withdrawal] = []
        self._wanted: Federation | None = None
        self._fetched: tuple[Federation | None, list[Heard]] | None = None
        self._is_fresh = False  # whether nothing has changed since, as far as is known
        self._complaints = Complaints(self.exchange.address)
        _couriers.add(self)

    def __reduce__(self) -> tuple[type[Courier], tuple[Exchange, Ledger]]:
        return Courier, (self.exchange, self.ledger)

    def __deepcopy__(self, memo: dict[int, Any]) -> Courier:
        return Courier(self.exchange, self.ledger)  # the same exchange, not a copy of it

    # What the sampler asks for

    def send(self, make: Make) -> None:
        """Make a message and publish it soon; it replaces any that is not made yet.

        ``make`` is called in the courier's thread. It must not wait for a lock that the caller of
        `flush` holds.
        """
        with self._changed:
            self._outgoing = make
            self._wake()

    def withdraw(self, withdrawal: Withdrawal) -> None:
        """Withdraw a message of the study soon, if it is there and is the study's own."""
        with self._changed:
            if self._unsent is not None and withdrawal.covers(self._unsent.message):
                self._unsent = None
            self._withdrawals.append(withdrawal)
            self._wake()

    def fetch(self, federation: Federation) -> None:
        with self._changed:
            self._wanted = federation
            self._wake()

    def messages(self, federation: Federation) -> list[Heard] | None:
        """Return what the exchange handed out when it last did; None if it has not done so yet."""
        with self._changed:
            known, messages = self._fetched or (None, [])
            return messages if known is federation else None

    def current(self, federation: Federation) -> list[Heard] | None:
        """Return what the exchange handed out just now; None if that is not known."""
        with self._changed:
            known, messages = self._fetched or (None, [])
            return messages if known is federation and self._is_fresh else None

    def complaints(self) -> list[str]:
        with self._changed:
            return self._complaints.take()

    def wait_for_first(self, seconds: float) -> None:
        """Wait until messages are fetched, or fetching has failed; give up after ``seconds``."""
        with self._changed:
            self._changed.wait_for(lambda: self._fetched is not None, seconds)

    def flush(self, seconds: float) -> bool:
        """Wait until everything is sent, or has failed.

        Returns:
            Whether all messages were sent, or have failed. A report may be left.
        """
        with self._changed:
            self._pause_ends = 0.0
            if self._outgoing is None and self._unsent is not None:
                self._outgoing = lambda: None  # try an unsent message once more
            if self._outgoing is not None or self._withdrawals or self._published:
                try:
                    self._wake()
                except RuntimeError:  # the interpreter is shutting down
                    return False
            self._changed.wait_for(
                lambda: not (self._has_more_to_send or self._published or self._is_reporting),
                seconds,
            )
            return not self._has_more_to_send

    def leave(self, seconds: float) -> list[str]:
        """Send what is left, and return what went wrong; for a program that ends.

        Args:
            seconds: The longest time to wait.
        """
        is_late = not self.flush(seconds)
        with self._changed:
            lost = self.last_words or (
                "this study's last message was not delivered. The next one is sent when the study "
                "goes on"
            )
            if is_late:
                lost = f"{self.exchange.address} did not answer in time: {lost}"
            is_lost = is_late or self._unsent is not None
            return [*self._complaints.take(), *([lost] if is_lost else [])]

    # The errands

    @property
    def _has_more_to_send(self) -> bool:
        return bool(self._outgoing or self._is_sending or self._withdrawals)

    def _wake(self) -> None:
        if not self._is_running:
            threading.Thread(target=self._run, name="fedbo courier", daemon=True).start()
            self._is_running = True

    def _run(self) -> None:
        while True:
            with self._changed:
                make, self._outgoing = self._outgoing, None
                federation, self._wanted = self._wanted, None
                withdrawals, self._withdrawals = self._withdrawals, []
                published, self._published = self._published, None
                self._is_running = bool(make or federation or withdrawals or published)
                if not self._is_running:
                    return
                self._is_reporting = published is not None
                self._is_sending = bool(make or self._unsent or withdrawals)
            for withdrawal in withdrawals:
                self._withdraw(withdrawal)
            if federation is not None:
                self._fetch(federation)
            if self._is_sending:
                self._send(make)
            if published is not None:
                self._report(published)

    def _withdraw(self, given: Withdrawal) -> None:
        """Withdraw a message. The next process tries again if that fails."""
        federation, sender, keys, study = given
        try:
            with self._listening():
                self.ledger.withdraw(self.exchange, federation, sender, keys=keys, study=study)
        except NotOurs:
            pass  # the name belongs to another study now
        except Exception as error:
            with self._changed:
                self._complaints.failed("withdraw", error)

    def _send(self, make: Make | None) -> None:
        """Make a message and publish it; if there is none, publish the one that failed before."""
        letter = None
        try:
            with self._listening():
                letter = None if make is None else make()
        except Exception as error:
            with self._changed:
                self._complaints.failed("make", error)
        with self._changed:
            letter = self._unsent if letter is None else letter
            if letter is not None and time.monotonic() < self._pause_ends:
                self._hold(letter)
                return
        is_out: bool | None = None
        if letter is not None:
            with self._errand("publish"):
                is_out = self.ledger.publish(self.exchange, letter.message, study=letter.study)
        with self._changed:
            if letter is not None and is_out is None:
                self._pause_ends = time.monotonic() + self._pause
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            elif letter is not None and is_out is not None:
                self._pause = _FIRST_PAUSE
                self._complaints.published(letter.message.sender, is_out)
                self._is_fresh = False
                if is_out and letter.report is not None:
                    self._published = letter
            self._hold(letter if is_out is None else None)

    def _hold(self, letter: Letter | None) -> None:
        """Keep a letter for a later errand, or none; the caller has the lock."""
        self._unsent, self._is_sending = letter, False
        self._changed.notify_all()

    def _report(self, letter: Letter) -> None:
        """Report progress after a message. If that fails, the next message brings the next one."""
        assert letter.report is not None
        try:
            with self._listening():
                progress = letter.report() if self._published is None else None  # not a later one
            if progress is not None:
                with self._errand("report"):
                    self.ledger.report(self.exchange, progress, study=letter.study)
        except Exception as error:
            with self._changed:
                self._complaints.failed("report", error)
        with self._changed:
            self._is_reporting = False
            self._changed.notify_all()

    def _fetch(self, federation: Federation) -> None:
        found: tuple[Federation | None, list[Heard]] | None = None
        with self._errand("fetch") as texts:
            heard = self.exchange.fetch(federation)
            for one in heard:
                if isinstance(one, Release):
                    self.ledger.receive(one)
            found = federation, heard
            texts[:] = [text for text in texts if not self._is_own_refusal(text)]
        with self._changed:
            self._is_fresh = found is not None
            self._fetched = found or self._fetched or (None, [])
            self._changed.notify_all()

    def _is_own_refusal(self, text: str) -> bool:
        """Whether a warning is about the study's own message, which should have been signed.

        The study has said so itself, in `fedbo.optuna.signing.prepare`.
        """
        name, signer = self.signature
        return not signer and f" of {name!r}: it is not signed" in text

    @contextlib.contextmanager
    def _errand(self, errand: Errand) -> Iterator[list[str]]:
        """Turn an error in the body into a complaint."""
        with self._changed:
            self._complaints.begin(errand)
        problem: Exception | None = None
        try:
            with self._listening() as texts:
                yield texts
        except Exception as error:
            problem = error
        with self._changed:
            self._complaints.end(errand, problem)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[list[str]]:
        """Turn warnings in the body into complaints: this thread has no line of the user's."""
        with caller.collect() as texts:
            try:
                yield texts
            finally:
                with self._changed:
                    self._complaints.pass_on(texts)


_couriers: weakref.WeakSet[Courier] = weakref.WeakSet()


@atexit.register
def _leave() -> None:
    """Send what all couriers together have left when the interpreter exits."""
    until = time.monotonic() + _LEAVING
    for courier in list(_couriers):
        for complaint in courier.leave(max(0.0, until - time.monotonic())):
            caller.warn(complaint, ExchangeWarning)


def _after_fork() -> None:
    """A forked child has neither the thread nor its errands: they belong to the parent."""
    for courier in list(_couriers):
        courier.restart()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
