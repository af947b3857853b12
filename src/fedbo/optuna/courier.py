"""How a study receives messages and publishes its own, without any trial waiting for an exchange.

A `Mailbox` decides when, and a `Courier` carries the messages in a daemon thread. The courier has
two kinds of errands: to make and publish the study's latest message, and to fetch those of peers.
They run one after the other, and the thread ends when there are none left. An error becomes a
sentence, and the sampler gives it as a warning in the thread of the study.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from fedbo.exchange import Exchange, ExchangeWarning, Ledger
from fedbo.federation import Federation
from fedbo.message import Message
from fedbo.optuna import private
from fedbo.optuna.mirror import Mirror, StudyChanged, end_of
from fedbo.optuna.notices import Complaints, Errand
from fedbo.optuna.study_agent import StudyAgent

_LEAVING = 5.0  # seconds for everything that is left to be sent when the interpreter exits
_FIRST_NEWS = 0.5  # seconds that the first query waits for messages of peers
_LOOKS, _PAUSE = 200, 0.01  # how often, and at which interval, to look for trials being stored
_SCORED = (TrialState.COMPLETE, TrialState.PRUNED)

#: Makes a message when it is about to be sent; None if there is nothing to send.
Make = Callable[[], Message | None]


class Courier:
    """Carries messages to and from an exchange; the ledger logs each before it is sent.

    Even if the exchange fails or hangs, only `wait_for_first` and `flush` wait for it.
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
        self._unsent: Message | None = None  # failed, and is tried again with the next errand
        self._wanted: Federation | None = None
        self._fetched: tuple[Federation | None, list[Message]] | None = None
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

    def fetch(self, federation: Federation) -> None:
        with self._changed:
            self._wanted = federation
            self._wake()

    def messages(self, federation: Federation) -> list[Message]:
        """Return the latest message of each peer that was fetched."""
        with self._changed:
            known, messages = self._fetched or (None, [])
            return messages if known is federation else []

    def complaints(self) -> list[str]:
        with self._changed:
            return self._complaints.take()

    def wait_for_first(self, seconds: float) -> None:
        """Wait until messages are fetched, or fetching has failed; give up after ``seconds``."""
        with self._changed:
            self._changed.wait_for(lambda: self._fetched is not None, seconds)

    def flush(self, seconds: float) -> bool:
        """Wait until everything is sent, or has failed; return False if that takes longer."""
        with self._changed:
            if self._outgoing is None and self._unsent is not None:
                self._outgoing = lambda: None  # try an unsent message once more
            if self._outgoing is not None:
                try:
                    self._wake()
                except RuntimeError:  # the interpreter is shutting down
                    return False
            return self._changed.wait_for(lambda: not (self._outgoing or self._is_sending), seconds)

    # The errands

    def _wake(self) -> None:
        if not self._is_running:
            threading.Thread(target=self._run, name="fedbo courier", daemon=True).start()
            self._is_running = True

    def _run(self) -> None:
        while True:
            with self._changed:
                make, self._outgoing = self._outgoing, None
                federation, self._wanted = self._wanted, None
                self._is_running = make is not None or federation is not None
                if not self._is_running:
                    return
                self._is_sending = make is not None or self._unsent is not None
            if self._is_sending:
                self._send(make)
            if federation is not None:
                self._fetch(federation)

    def _send(self, make: Make | None) -> None:
        """Make a message and publish it; if there is none, publish the one that failed before."""
        message = None
        try:
            message = None if make is None else make()
        except Exception as error:
            with self._changed:
                self._complaints.failed("make", error)
        message = self._unsent if message is None else message
        is_out: bool | None = None
        if message is not None:
            with self._errand("publish"):
                is_out = self.ledger.publish(self.exchange, message)
        with self._changed:
            if message is not None and is_out is not None:
                self._complaints.published(message.sender, is_out)
            self._unsent = message if is_out is None else None
            self._is_sending = False
            self._changed.notify_all()

    def _fetch(self, federation: Federation) -> None:
        found: tuple[Federation | None, list[Message]] | None = None
        with self._errand("fetch"):
            found = federation, list(self.exchange.fetch(federation))
        with self._changed:
            self._fetched = found or self._fetched or (None, [])
            self._changed.notify_all()

    @contextlib.contextmanager
    def _errand(self, errand: Errand) -> Iterator[None]:
        """Turn an error in the body into a complaint."""
        with self._changed:
            self._complaints.begin(errand)
        problem: Exception | None = None
        try:
            yield
        except Exception as error:
            problem = error
        with self._changed:
            self._complaints.end(errand, problem)


class Mailbox:
    """The messages of one study. The lock guards its agent; callers of the methods hold it."""

    def __init__(
        self, courier: Courier, agent: StudyAgent, every: int, lock: threading.RLock
    ) -> None:
        self._courier, self._agent, self._every, self._lock = courier, agent, every, lock
        self._has_waited = False
        self._ended: set[int] = set()  # trials that ended here since the last message was made

    def receive(self, mirror: Mirror, asking: int) -> None:
        """Give the agent the messages that have arrived; the first query waits for them."""
        federation, notices = mirror.agent.federation, self._agent.notices
        if not self._has_waited:
            self._has_waited = True
            self._courier.fetch(federation)
            self._courier.wait_for_first(_FIRST_NEWS)
        messages = self._courier.messages(federation)
        for reason in mirror.hear(messages):
            notices.warn("message ignored", reason=reason)
        name = mirror.agent.name
        published = max((m.sequence for m in messages if m.sender == name), default=0)
        if published > mirror.scores:  # perhaps by another worker, after a trial that just ended
            with contextlib.suppress(StudyChanged):
                mirror.follow(private.get_trials(self._agent.study), asking)
        if published > mirror.scores:
            notices.warn("name is taken", name=name, exchange=self._courier.exchange)

    def end(self, trial: FrozenTrial, state: TrialState) -> None:
        """Publish a message if it is time for one, and look for messages of peers."""
        if self._agent.mirror is None:
            return
        if state in _SCORED:
            self._ended.add(trial.number)
            self._courier.send(self._make)
        self._courier.fetch(self._agent.mirror.agent.federation)

    def _make(self) -> Message | None:
        """Return the message to publish, or None if it is not time for one.

        The courier calls this in its own thread. Optuna stores a trial after it has told the
        sampler how it ended, and a message must not know more than the study. So this waits until
        the trials that have ended are stored.
        """
        with self._lock:
            ended = self._ended.copy()
        for _ in range(_LOOKS):
            trials = private.get_trials(self._agent.study)
            if all(trials[number].state.is_finished() for number in ended):
                break
            time.sleep(_PAUSE)
        with self._lock:
            self._ended -= {number for number in ended if trials[number].state.is_finished()}
            return self._agent.message() if self._is_due(trials, ended) else None

    def _is_due(self, trials: list[FrozenTrial], ended: set[int]) -> bool:
        """Whether any trial that ended here is an ``every``-th trial of the study.

        All workers count in the order in which trials ended, so only one of them publishes.
        """
        scored = sorted((trial for trial in trials if trial.state in _SCORED), key=end_of)
        return any(trial.number in ended for trial in scored[self._every - 1 :: self._every])


_couriers: weakref.WeakSet[Courier] = weakref.WeakSet()


@atexit.register
def _leave() -> None:
    """Send what all couriers together have left when the interpreter exits."""
    until = time.monotonic() + _LEAVING
    for courier in list(_couriers):
        complaints = []
        if not courier.flush(max(0.0, until - time.monotonic())):
            complaints = [
                f"{courier.exchange.address} did not answer in time, so this study's last message "
                "was not published. The next one will be published when the study goes on"
            ]
        for complaint in complaints + courier.complaints():
            warnings.warn(complaint, ExchangeWarning, stacklevel=2)


def _after_fork() -> None:
    """A forked child has neither the thread nor its errands: they belong to the parent."""
    for courier in list(_couriers):
        courier.restart()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
