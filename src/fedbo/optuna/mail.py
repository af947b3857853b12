"""What a study sends and receives, and when; no trial waits for it.

After each trial, a thread (`Courier`) fetches the messages of peers, and makes that of the study
(`Mail`). It is sent if the trial makes one `due`, which depends only on the study's trials, so that
all workers decide alike. The last one, which has all that the study knows, is sent when the program
ends. No worker can know whether another one goes on, so each of them does that. A message depends
on nothing but the scores behind it: workers that end with the same ones send the same message, and
without a new score there is no fresh noise.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from optuna.trial import FrozenTrial, TrialState

from fedbo import caller
from fedbo.agent import Agent
from fedbo.errors import ExchangeError, HubRefused
from fedbo.exchange import Exchange, ExchangeWarning, Ledger
from fedbo.exchange.latest import Content
from fedbo.federation.federation import Federation
from fedbo.message import Message, Release
from fedbo.optuna import private
from fedbo.optuna.standing import (
    Standing,
    introduce,
    replace,
    sender_at,
    standing_of,
    withdraw,
)
from fedbo.optuna.study import SCORED, Mirror, StudyAgent, StudyRecord, end_of, read_record
from fedbo.space import Direction
from fedbo.trust import Keyring, Trusted

_FIRST_NEWS = 0.5  # seconds that the first query waits for messages of peers
_LOOKS, _INTERVAL = 200, 0.01  # how often, and at which interval, to look for trials being stored
_PAUSE = 10.0  # seconds without an attempt after one that failed
_LEAVING = 5.0  # seconds for everything that is left to be sent when the program ends


class Letter(NamedTuple):
    """A message to send, and what the ledger calls the study that sends it."""

    message: Message
    study: str = ""


class Letters(NamedTuple):
    """What to send now, and what to send when the program ends."""

    due: Letter | None = None
    last: Letter | None = None


def due(scored: Sequence[FrozenTrial], every: int | None, direction: Direction) -> list[int]:
    """Return after how many scores a study sends a message: so that all workers decide alike.

    Every score makes a message with fresh noise, and whoever averages many of them comes close to
    the mean of the agent's belief. So one is sent when it has changed enough to be worth it.

    Args:
        scored: The trials with scores, in the order in which they ended.
        every: Send one after each so many scores. If None, send one when a score is the best so
            far, and when there are twice as many scores as in the last message.
        direction: Of the study.

    >>> from optuna.trial import create_trial
    >>> trials = [create_trial(value=value) for value in (5.0, 4.0, 6.0, 6.0, 6.0, 1.0)]
    >>> due(trials, None, "minimize"), due(trials, 2, "minimize")
    ([1, 2, 4, 6], [2, 4, 6])
    """
    if every is not None:
        return list(range(every, len(scored) + 1, every))
    sign = 1 if direction == "maximize" else -1
    counts: list[int] = []
    best = -math.inf
    for n, trial in enumerate(scored, 1):
        value = -math.inf
        if trial.state is TrialState.COMPLETE and trial.value is not None:
            value = sign * trial.value
        if not counts or value > best or n >= 2 * counts[-1]:
            counts.append(n)
        best = max(best, value)
    return counts


def rival(
    ledger: Ledger, record: StudyRecord, standing: Standing, message: Content, scores: int
) -> str:
    """Say that a message under the study's name and key is another study's; empty if it is not.

    The ledger knows which study sent a message; ``scores`` are those that are stored now.
    """
    if not isinstance(message, Message):
        return ""
    if (message.sender, message.signer) != (standing.sender, standing.key):
        return ""
    senders = ledger.studies(message)
    if message.sequence <= scores and (not senders or record.study in senders):
        return ""
    if record.study in senders:
        return (
            f"its message under the name {standing.sender!r} is about {message.sequence} scores, "
            f"and only {scores} count now. Trials without a constraint that others have do not "
            "count. It publishes again when it has more"
        )
    return (
        f"another study of this user publishes under the name {standing.sender!r}: run this one "
        "as another study with another name (name=...). If that study is no longer needed, "
        "withdraw its message (fedbo study withdraw; fedbo exchange withdraw if it was deleted)"
    )


class Mail:
    """The messages of one study. The lock guards its agent; whoever calls `begin` has it not."""

    def __init__(
        self,
        agent: StudyAgent,
        courier: Courier,
        federation: Federation,
        keyring: Keyring,
        lock: threading.RLock,
        *,
        every: int | None,
    ) -> None:
        self.courier = courier
        self.standing: Standing | None = None  # as it was found last
        self._record: StudyRecord | None = None  # of the study, then
        self._agent, self._federation, self._keyring = agent, federation, keyring
        self._lock = lock
        if every is None and federation.privacy is not None:
            # How many trials a member has is public, and must not tell when it found a best score.
            every = federation.privacy.least_trials
        self._every = every
        self._has_begun = False
        self._ended: set[int] = set()  # trials that ended here and are in no message yet
        self._messages: list[Trusted] = []  # that were fetched last

    def begin(self) -> None:
        """Before the first query, wait a moment for the messages of peers."""
        if not self._has_begun:
            self._has_begun = True
            self.courier.go(self._visit)
            self.courier.wait(_FIRST_NEWS)

    def receive(self, mirror: Mirror) -> None:
        """Let the agent hold what the exchange hands out."""
        for reason in mirror.hear(self._messages):
            self._agent.warn("ignored", f"a message was ignored: {reason}", ExchangeWarning)

    def end(self, trial: FrozenTrial, state: TrialState) -> None:
        """Note that a trial has ended, and visit the exchange soon."""
        if state in SCORED:
            self._ended.add(trial.number)
        self.courier.go(self._visit)

    def flush(self, seconds: float) -> None:
        """Send what the study knows, and wait for that."""
        self.courier.flush(self._visit, seconds)

    def sender(self) -> str:
        """Return the name of the study among peers."""
        return sender_at(self.courier.exchange, self._federation, self._agent.expected())

    def withdraw(self, seconds: float) -> bool:
        """Withdraw the study's message, and forget one that is not sent yet."""
        courier, record = self.courier, read_record(self._agent.study)
        courier.wait(seconds)
        courier.drop()
        args = courier.exchange, courier.ledger, self._federation
        return record is not None and withdraw(*args, record)

    def _visit(self) -> Letters:
        """Fetch messages, and make that of the study, in the courier's thread."""
        courier = self.courier
        with self._lock:
            ended = self._ended.copy()
        stored = self._wait_until_stored(ended)
        if not self._take_part():
            return Letters()
        self._messages = courier.exchange.fetch(self._federation)
        for content in (trusted.content for trusted in self._messages):
            if isinstance(content, Release):
                courier.ledger.receive(content)
        letters = self._make(ended) if ended else Letters()
        with self._lock:
            self._ended -= stored
        return letters

    def _wait_until_stored(self, ended: set[int]) -> set[int]:
        """Wait until these trials are stored, and return those that are.

        Optuna stores a trial after it has told the sampler how it ended, and a message must not
        know more than the study.
        """
        for _ in range(_LOOKS):
            trials = private.get_trials(self._agent.study) if ended else []
            stored = {number for number in ended if trials[number].state.is_finished()}
            if stored == ended:
                break
            time.sleep(_INTERVAL)
        return stored

    def _take_part(self) -> bool:
        """Find out how the study takes part, until it can; return whether it hears peers."""
        courier, federation, standing = self.courier, self._federation, self.standing
        with self._lock:
            record = self._agent.reread()
            is_settled = standing is not None and not (standing.silence or courier.has_failed)
            if is_settled and record == self._record:
                return True
            standing = standing_of(courier.exchange, federation, record, self._keyring)
        if not (standing.silence or self._agent.is_new):
            replace(courier.exchange, courier.ledger, federation, record, standing)
        with self._lock:
            self._record = introduce(self._agent, standing, self._keyring)
            self.standing = standing
        if not standing.is_member:
            caller.warn(
                f"{standing.silence}. Until then, the study tunes alone: no message comes in or "
                "goes out. It takes part by itself as soon as it can",
                ExchangeWarning,
            )
        elif standing.silence:
            _warn_of_silence(standing.silence)
        return standing.is_member

    def _make(self, ended: set[int]) -> Letters:
        """Make the study's message, which is due if one of these trials asks for it."""
        standing = self.standing
        if standing is None or standing.silence:
            return Letters()
        with self._lock:
            mirror = self._agent.follow(self._agent.beside(cached=False))
            record = self._agent.introduce()
            scored = sorted(mirror.told.values(), key=end_of)
            for other in self._messages:
                args = self.courier.ledger, record, standing, other.content, len(scored)
                if silence := rival(*args):
                    _warn_of_silence(silence)
                    return Letters()
            messages = Agent.messages([mirror.agent])
        if not messages:
            return Letters()
        letter = Letter(messages[0], record.study)
        counts = due(scored, self._every, self._federation.space.direction)
        is_due = any(scored[n - 1].number in ended for n in counts)
        # Contributions to private releases have a rhythm that does not depend on anything else.
        last = letter if self._federation.privacy is None else None
        return Letters(letter if is_due else None, last)


def _warn_of_silence(reason: str) -> None:
    caller.warn(
        f"no message of this study is published from here: {reason}. The study goes on, and still "
        "receives messages",
        ExchangeWarning,
    )


# The thread


class Courier:
    """Does errands in a thread, one at a time, and sends the letters that they bring.

    Nobody waits for it, except in `wait` and `flush`. The ledger logs each message before it is
    sent, and has a line for each attempt, so there is a pause after one that failed. What goes
    wrong becomes a complaint: the thread has no line of the user's program that a warning could
    point at.
    """

    def __init__(self, exchange: Exchange, ledger: Ledger) -> None:
        self.exchange, self.ledger = exchange, ledger
        self.restart()

    def restart(self) -> None:
        """Forget everything."""
        self._changed = threading.Condition()
        self._errand: Callable[[], Letters] | None = None  # waits, or has failed
        self.is_running = self._sends_all = self.has_failed = False
        self._pause_ends = 0.0
        self._sent = 0  # the sequence of the last message that was sent
        self._complaints: list[str] = []
        self._told: set[str] = set()  # warnings that are not repeated
        self.drop()

    def drop(self) -> None:
        """Forget what is not sent yet."""
        self._letters, self._errand = Letters(), None

    @property
    def has_something(self) -> bool:
        """Whether something is left to do, or to send."""
        return self.is_running or self._errand is not None or any(self._letters)

    def go(self, errand: Callable[[], Letters]) -> None:
        """Do an errand soon, in place of any that waits, and send the letter that is due."""
        with self._changed:
            self._errand = errand
            _busy.add(self)
            if not self.is_running and time.monotonic() >= self._pause_ends:
                with contextlib.suppress(RuntimeError):  # the interpreter is shutting down
                    _watch()
                    threading.Thread(target=self._run, name="fedbo courier", daemon=True).start()
                    self.is_running = True

    def wait(self, seconds: float) -> bool:
        """Wait until nothing is going on; return whether it is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.is_running, seconds)

    def flush(self, errand: Callable[[], Letters], seconds: float) -> None:
        """Do an errand, send the last letter, and wait for that."""
        with self._changed:
            self._pause_ends, self._sends_all = 0.0, True
            self.go(errand)
        if not self.wait(seconds):
            self._complaints.append(f"{self.exchange.address} did not answer in time")

    def finish(self) -> None:
        """Send everything that is left, in this thread."""
        if self.wait(_LEAVING):
            self._sends_all, self._errand = True, self._errand or Letters
            self._run()

    def complaints(self) -> list[str]:
        """Return what went wrong since the last call."""
        complaints, self._complaints = self._complaints, []
        return complaints

    def _run(self) -> None:
        is_done = True
        while is_done:
            with self._changed:
                errand, self._errand = self._errand, None
                sends_all, self._sends_all = self._sends_all, False
            is_done = errand is not None and self._do(errand, sends_all)
            with self._changed:
                is_done = is_done and self._errand is not None
                self.is_running = is_done
                self._changed.notify_all()
        if not (self.has_something or self._complaints):
            _busy.discard(self)

    def _do(self, errand: Callable[[], Letters], sends_all: bool) -> bool:
        """Do an errand, and send the letter that is due, or the last one; return whether it is."""
        problem: Exception | None = None
        with caller.collect() as warnings:
            try:
                due, last = errand()
                self._send(due or self._letters.due, last or self._letters.last, sends_all)
            except Exception as error:
                problem = error
        self._complaints += [text for text in warnings if text not in self._told]
        self._told.update(warnings)
        if problem is not None:
            with self._changed:
                self._errand = self._errand or errand
                self._pause_ends = time.monotonic() + _PAUSE
            if not self.has_failed:
                kind = "" if isinstance(problem, ExchangeError) else f"{type(problem).__name__}: "
                self._complaints.append(
                    f"Messages of this study and of its peers do not arrive: {kind}{problem}. The "
                    "study goes on. This is tried again after later trials, and said once until "
                    "then"
                )
            if isinstance(problem, HubRefused) and problem.slug == "wrong-token":
                self._errand = None  # to try the same again helps nobody who was revoked
                self.drop()
        self.has_failed = problem is not None
        return not self.has_failed

    def _send(self, due: Letter | None, last: Letter | None, sends_all: bool) -> None:
        self._letters = Letters(due, last)
        letter = last or due if sends_all else due
        if letter is not None:
            is_out, message = self.ledger.publish(self.exchange, *letter), letter.message
            # An earlier one of another kind may come late; see also `rival`.
            if not is_out and message.kind == "contribution":
                caller.warn(
                    f"{self.exchange.address} does not take contribution {message.sequence} of "
                    f"{message.sender!r}: it has a later one under this name, or one that was "
                    "withdrawn. If that is another study's, run this one with another name "
                    "(name=...)",
                    ExchangeWarning,
                )
            self._sent = letter.message.sequence
        is_new = last is not None and last.message.sequence > self._sent
        self._letters = Letters(None, last if is_new else None)


_busy: set[Courier] = set()  # that have something left to do, to send, or to say


@functools.cache
def _watch() -> None:
    """Have what is left sent when the program ends.

    That is when the main thread has ended. Python then waits for threads that are no daemons, can
    start no others, and closes connections afterwards. So one that exists already sends, and
    another one waits for it, but not for ever.
    """
    sending = threading.Thread(target=_finish, name="fedbo last messages", daemon=True)
    waiting = threading.Thread(target=_wait, args=(sending,), name="fedbo exit", daemon=False)
    sending.start()
    waiting.start()


def _finish() -> None:
    threading.main_thread().join()
    for courier in sorted(_busy, key=lambda courier: courier.is_running):  # one may hang
        courier.finish()


def _wait(sending: threading.Thread) -> None:
    threading.main_thread().join()
    sending.join(_LEAVING)
    for courier in [*_busy]:
        complaints = courier.complaints()
        if courier.has_something:
            complaints.append(
                f"{courier.exchange.address} did not take the last message of this study. It is "
                "sent when the study goes on, or with fedbo study publish"
            )
        for complaint in complaints:
            caller.warn(complaint, ExchangeWarning)


def _after_fork() -> None:
    """A forked child has neither the threads nor what they do: that belongs to the parent."""
    for courier in _busy:
        courier.restart()
    _busy.clear()
    _watch.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
