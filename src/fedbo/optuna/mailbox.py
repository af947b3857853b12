"""When a study publishes a message, and what it receives.

All of it depends only on the study's trials, so all workers of a study decide alike. A `Courier`
carries the messages.
"""

from __future__ import annotations

import contextlib
import math
import shlex
import threading
import time
from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from fedbo.exchange import Exchange, ExchangeError, FolderExchange, Ledger, Progress, timing
from fedbo.exchange.choice import same_federation
from fedbo.federation import Federation
from fedbo.message import Heard, Message
from fedbo.optuna import private
from fedbo.optuna.courier import Courier, Letter, Withdrawal
from fedbo.optuna.mirror import Mirror, StudyChanged, end_of
from fedbo.optuna.notices import namesake
from fedbo.optuna.progress import Reporter, can_show
from fedbo.optuna.signing import Signing, announcement
from fedbo.optuna.studies import shown
from fedbo.optuna.study_agent import SCORED, StudyAgent
from fedbo.space import Direction

_FIRST_NEWS = 0.5  # seconds that the first query waits for messages of peers
_LOOKS, _PAUSE = 200, 0.01  # how often, and at which interval, to look for trials being stored

#: Why there is no message: see `Mailbox.silence`.
NO_TRIAL, NO_SCORE = "no trial was run", "no trial has a score"


class Mailbox:
    """The messages of one study. The lock guards its agent; callers of the methods hold it."""

    def __init__(
        self,
        courier: Courier,
        agent: StudyAgent,
        every: int | None,
        lock: threading.RLock,
        *,
        progress: bool = False,
    ) -> None:
        self._courier, self._agent, self._every, self._lock = courier, agent, every, lock
        self._reporter = Reporter() if progress else None
        courier.last_words = ""  # those of another study
        self.silence = NO_TRIAL  # why the last trial was followed by no message
        self._has_waited = False
        self._ended: set[int] = set()  # trials that ended here since the last message was made
        self._withdrawn: set[tuple[bytes, str, str]] = set()  # federations, names and keys
        self._sent_again: set[int] = set()  # after how many scores these messages were made

    def introduce(self) -> str:
        """Withdraw what was published under a former name, and say how messages are signed.

        Called before the first query of a study that has an identity and a federation file.
        """
        known, signing, courier = self._agent.identity, self._agent.signing, self._courier
        federation = self._agent.federation
        assert known is not None and federation is not None
        self._withdraw_former(federation)
        if not signing.hindrance and has_namesake(
            courier.exchange, courier.ledger, federation, known.name, signing.key, known.study
        ):
            reason = namesake(known.name)
            self._agent.warn_of_silence("namesake", reason)
            signing = Signing(hindrance=reason)
        return announcement(signing)

    def leave(self) -> None:
        """Withdraw what the study published in federations that it has left."""
        self._withdraw_former(None)

    def receive(self, mirror: Mirror, asking: int) -> None:
        """Let the agent hold what the exchange hands out; the first query waits for that."""
        federation, notices = mirror.agent.federation, self._agent.notices
        if self._agent.standing.hindrance:
            return
        if self._reporter is not None and not can_show(self._courier.exchange):
            notices.warn("no progress", exchange=self._courier.exchange.address)
            self._reporter = None
        if self._reporter is not None and federation.privacy is not None:
            notices.warn("private progress")
            self._reporter = None
        self._courier.signature = mirror.agent.name, mirror.agent.signer
        self._withdraw_former(federation)
        if not self._has_waited:
            self._has_waited = True
            self._courier.fetch(federation)
            self._courier.wait_for_first(_FIRST_NEWS)
        messages = self._courier.messages(federation)
        if messages is None:
            return
        for reason in mirror.hear([one for one in messages if not self._is_former(one)]):
            notices.warn("message ignored", reason=reason)
        name = mirror.agent.name
        if self._has_rival(mirror, messages):
            return
        published, others = self._under_our_name(mirror, messages)
        if published > mirror.scores:  # perhaps by another worker, after a trial that just ended
            with contextlib.suppress(StudyChanged):
                mirror.follow(private.get_trials(self._agent.study), asking)
        if published > mirror.scores or others:
            notices.warn("name is taken", name=name, exchange=self._courier.exchange.address)

    def end(self, trial: FrozenTrial, state: TrialState) -> None:
        """Publish a message if it is time for one, and look for messages of peers."""
        if self.silence == NO_TRIAL:
            self.silence = NO_SCORE
        if self._agent.mirror is None:
            self.silence = self._agent.mismatch or self.silence
            return
        if not self._agent.standing.hindrance:
            self._courier.fetch(self._agent.mirror.agent.federation)
        if state in SCORED:
            self._ended.add(trial.number)
            self._courier.send(self._make)

    def _make(self) -> Letter | None:
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
            if self._agent.mirror is None:  # the study has left its federation
                return None
            was_alone = bool(self._agent.standing.hindrance)
            mirror = self._agent.update()
            if self._agent.standing.hindrance:
                self.silence = self._agent.standing.hindrance
                return None
            if was_alone:
                self._courier.fetch(mirror.agent.federation)
            self._withdraw_former(mirror.agent.federation)
            known = self._agent.identity
            assert known is not None
            if self._agent.signing.hindrance:
                self.silence = self._agent.signing.hindrance
            elif not mirror.scores:
                self.silence = self._agent.mismatch or NO_SCORE
            elif self._has_rival(mirror, self._courier.messages(mirror.agent.federation) or []):
                self.silence = namesake(mirror.agent.name)
            elif (message := self._due_message(mirror, trials, ended)) is None:
                self.silence = _not_due(self._rhythm(mirror.agent.federation))
            else:
                self.silence = ""
                if not self._courier.last_words:
                    self._courier.last_words = self._last_words()
                is_private = mirror.agent.federation.privacy is not None
                can_report = self._reporter is not None and not is_private
                return Letter(message, known.study, self._report if can_report else None)
            return None

    def _last_words(self) -> str:
        """Say that the last message was not delivered, and which command sends it, if one does."""
        agent, exchange = self._agent, self._courier.exchange
        known, address = agent.identity, private.storage_address(agent.study)
        is_hub = exchange.address.startswith(("http://", "https://"))
        study = agent.study.study_name
        said = f"the last message of study {study!r} was not delivered to {exchange.address}"
        if address is None or known is None or not (is_hub or isinstance(exchange, FolderExchange)):
            return f"{said}. The next one is sent when the study goes on"
        given = {"--storage": shown(address), "--study": study, "--to": exchange.address}
        command = " ".join(f"{name} {shlex.quote(value)}" for name, value in given.items())
        command += " --federation FILE" if known.federation and not is_hub else ""
        command += "" if known.key else " --unsigned"
        return f"{said}: send it with fedbo publish {command}"

    def _report(self) -> Progress | None:
        """Return how far the study has come. The courier calls this in its own thread.

        It takes long, so that it has an agent of its own: no query waits for it.
        """
        assert self._reporter is not None
        trials = private.get_trials(self._agent.study)
        with self._lock:
            twin = self._agent.twin()
        if twin is None:
            return None
        twin.follow(trials)
        return self._reporter(twin, trials)

    def _withdraw_former(self, federation: Federation | None) -> None:
        """Withdraw what the study published before, and peers should no longer hear.

        That is what it published in this federation under other names, with other keys or without
        one, and what it published in federations that it has left.
        """
        if self._agent.standing.hindrance:
            return
        for one in former_messages(self._agent, federation):
            signer = "" if one.keys is None else str(one.keys)
            what = bytes(one.federation.fingerprint), one.sender, signer
            if what not in self._withdrawn:
                self._withdrawn.add(what)
                self._courier.withdraw(one)

    def _is_former(self, message: Heard) -> bool:
        """Whether the study itself sent this message, under a name that it had before."""
        known = self._agent.identity
        return (
            known is not None
            and message.sender in known.former
            and known.study in self._studies_of(message)
        )

    def _has_rival(self, mirror: Mirror, messages: Sequence[Heard]) -> bool:
        """Whether another study of this user publishes under this name; if so, warn."""
        known, agent = self._agent.identity, mirror.agent
        for message in messages:
            if (message.sender, message.signer) == (agent.name, agent.signer):
                sent_by = self._studies_of(message)
                if known is not None and sent_by and known.study not in sent_by:
                    self._agent.warn_of_silence("namesake", namesake(agent.name))
                    return True
        return False

    def _studies_of(self, message: Heard) -> set[str]:
        with contextlib.suppress(ExchangeError):  # a message cannot be sent either, which is said
            return self._courier.ledger.studies_of(message)
        return set()

    def _under_our_name(self, mirror: Mirror, messages: Sequence[Heard]) -> tuple[int, bool]:
        """Return the latest sequence of our message, and whether another's has our name."""
        name = mirror.agent.name
        named = [one for one in messages if isinstance(one, Message) and one.sender == name]
        known = self._agent.identity
        own = {mirror.agent.signer, "" if known is None else known.key}
        ours = [message.sequence for message in named if message.signer == mirror.agent.signer]
        return max(ours, default=0), any(message.signer not in own for message in named)

    def _due_message(
        self, mirror: Mirror, trials: list[FrozenTrial], ended: set[int]
    ) -> Message | None:
        """Return the last message that was due; None if there is no reason to publish it now.

        It is published after the trial that asks for it, and once more if the exchange lacks it
        though it was not withdrawn: a worker was killed, or somebody removed it. It depends only on
        the trials up to that one: whoever removes it again and again gets no fresh noise.
        """
        told = (trial for trial in trials if trial.number in mirror.told)
        scored = sorted((trial for trial in told if trial.state.is_finished()), key=end_of)
        federation = mirror.agent.federation
        counts = due(scored, self._rhythm(federation), federation.space.direction)
        if not counts:
            return None
        n = counts[-1]
        is_new = any(scored[count - 1].number in ended for count in counts)
        if not is_new and not self._is_missing(mirror, n):
            return None
        message = self._agent.mirror_of(scored[:n]).agent.message()
        if not is_new:
            self._sent_again.add(n)
            with contextlib.suppress(ExchangeError):  # nothing can be sent either, which is said
                if self._courier.ledger.was_withdrawn(self._courier.exchange, message):
                    return None
        return message

    def _rhythm(self, federation: Federation) -> int | None:
        """Return after how many scores a message is due; None if scores decide that.

        Contributions to private releases are sent at times that do not depend on scores: how many
        trials a member has is public, and would otherwise tell when it found something better.
        """
        if self._every is None and federation.privacy is not None:
            return federation.privacy.least_trials
        return self._every

    def _is_missing(self, mirror: Mirror, n: int) -> bool:
        """Whether the exchange lacks the message after n scores, and it was not sent again yet."""
        federation = mirror.agent.federation
        messages = self._courier.current(federation)
        if messages is None or n in self._sent_again or federation.privacy is not None:
            return False  # contributions are not handed out, so that nobody can tell
        published, others = self._under_our_name(mirror, messages)
        return published < n and not others


def former_messages(agent: StudyAgent, federation: Federation | None) -> list[Withdrawal]:
    """Return what a study may have published before, and peers should no longer hear.

    Args:
        agent: The agent of the study.
        federation: The federation in which it takes part; None if in none.
    """
    known, keys = agent.identity, agent.signing.keys
    if known is None:
        return []
    found = [Withdrawal(left, known.name, keys, known.study) for left in agent.left]
    if federation is not None:
        found += [Withdrawal(federation, name, keys, known.study) for name in known.former]
        found += [
            Withdrawal(federation, known.name, replaced, known.study) for replaced in agent.replaced
        ]
    return found


def due(scored: Sequence[FrozenTrial], every: int | None, direction: Direction) -> list[int]:
    """Return after how many scores a study publishes a message.

    This depends only on the trials and on the order in which they ended, so all workers agree.

    Args:
        scored: The trials that have scores, in the order in which they ended.
        every: Publish after each so many scores; None leaves it to the rule of `timing.due`.
        direction: Which values are better.

    >>> values = (5.0, 4.0, 6.0, 6.0, 6.0, 1.0)
    >>> from optuna.trial import create_trial
    >>> trials = [create_trial(value=value) for value in values]
    >>> due(trials, None, "minimize"), due(trials, 2, "minimize")
    ([1, 2, 4, 6], [2, 4, 6])
    """
    sign = 1 if direction == "maximize" else -1
    values = [
        sign * trial.value
        if trial.state is TrialState.COMPLETE and trial.value is not None
        else -math.inf
        for trial in scored
    ]
    return timing.due(values, every)


def has_namesake(
    exchange: Exchange, ledger: Ledger, federation: Federation, name: str, signer: str, study: str
) -> bool:
    """Return whether another study of this user has a message under this name and key.

    The exchange is only asked if the ledger knows of such a study. If it does not answer, this
    is not known, and the answer is no.

    Args:
        exchange: Where the messages are.
        ledger: What was sent by which study.
        federation: The federation of the study.
        name: The name of the study.
        signer: The key that signs its messages, as text; empty if they are not signed.
        study: The id of the study.
    """
    try:
        entries = [entry for entry in ledger.read(name) if entry.to == exchange.address]
        if not any(entry.study not in ("", study) for entry in entries):
            return False
        held = [one.message for one in exchange.holdings() if one.fault is None]
        sent_by = [
            ledger.studies_of(message)
            for message in held
            if message is not None
            and (message.sender, message.signer) == (name, signer)
            and same_federation(federation, message)
        ]
    except ExchangeError:  # it cannot be reached, or cannot list what it holds
        return False
    return any(studies and study not in studies for studies in sent_by)


def _not_due(every: int | None) -> str:
    if every is not None:
        return f"a message is sent after every {every} scores of the study"
    return (
        "a message is sent when a trial is the best so far, or when there are twice as many scores "
        "as in the last message"
    )
