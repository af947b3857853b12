"""When a study receives messages of peers, and when it publishes its own."""

from __future__ import annotations

import contextlib
import threading
import time

from optuna.trial import FrozenTrial, TrialState

from fedbo.message import Message
from fedbo.optuna import private
from fedbo.optuna.courier import Courier
from fedbo.optuna.mirror import Mirror
from fedbo.optuna.scores import StudyChanged, end_of
from fedbo.optuna.study_agent import StudyAgent

_FIRST_NEWS = 0.5  # seconds that the first query waits for messages of peers
_LOOKS, _PAUSE = 200, 0.01  # how often, and at which interval, to look for trials being stored
_SCORED = (TrialState.COMPLETE, TrialState.PRUNED)


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
            notices.message_ignored(reason)
        name = mirror.agent.name
        published = max((m.sequence for m in messages if m.sender == name), default=0)
        if published > mirror.scores:  # perhaps another worker's, after a trial that just ended
            with contextlib.suppress(StudyChanged):
                mirror.follow(private.get_trials(self._agent.study), asking)
        if published > mirror.scores:
            notices.name_is_taken(name, self._courier.exchange)

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
        """Whether a trial that ended here has a place in the study that is a multiple of ``every``.

        All workers count in the order in which trials ended, so only one of them publishes.
        """
        scored = sorted((trial for trial in trials if trial.state in _SCORED), key=end_of)
        return any(trial.number in ended for trial in scored[self._every - 1 :: self._every])
