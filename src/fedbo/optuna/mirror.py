"""An agent that knows what a study knows: each of its trials once, whoever ran it.

Every worker builds its agent from the study, and does so again after a restart or when the space
changes. So what the agent is told depends only on the study's finished trials, and on the order in
which they ended.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from optuna.trial import FrozenTrial, TrialState

from fedbo.agent import Agent
from fedbo.agent.trial import Trial
from fedbo.message import Heard, Release
from fedbo.optuna import record
from fedbo.optuna.distributions import Translation
from fedbo.policy import Origin
from fedbo.space import Space
from fedbo.space.axis import Value

_TOLD = Origin("told")
_From = tuple[str, bytes]  # a sender and its key


class StudyChanged(Exception):
    """The study contradicts what the agent was told, so the agent must be built anew."""


class Unlocated(ValueError):
    """A trial has no value for the parameters ``missing``.

    It never will if that ``is_final``. Otherwise it counts where it was asked for as soon as any
    trial suggests them.
    """

    def __init__(self, missing: list[str], *, is_final: bool) -> None:
        super().__init__(f"it has no parameter {missing[0]!r}")
        self.missing, self.is_final = missing, is_final


def end_of(trial: FrozenTrial) -> tuple[datetime, int]:
    """A key that sorts trials in the order in which they ended."""
    return trial.datetime_complete or datetime.min, trial.number


class _Scores:
    """The score that the agent is told for each trial, in the order in which they ended.

    ==================  ==================================================================
    complete, finite    its value
    complete, infinite  the best or the worst finite value so far
    pruned              its last value, or the median of the complete ones if that is worse
    failed              none
    ==================  ==================================================================

    A pruned trial was stopped because it looked worse, so it counts as no better than half of the
    others. Without a score, a region where every trial is pruned would stay unknown and attractive.
    """

    def __init__(self, sign: float) -> None:
        self._worse = min if sign > 0 else max
        self._values: list[float] = []  # of complete trials, if finite
        self._is_relative = False  # whether any score depends on those before it
        self._last = (datetime.min, -1)

    def add(self, trial: FrozenTrial) -> float | None:
        """Return the score of the next trial; None if it has none.

        Raises `StudyChanged` if it ended before another, and any score depends on the order.
        """
        value = trial.value if trial.value is not None else math.nan
        is_complete = trial.state is TrialState.COMPLETE
        is_pruned = trial.state is TrialState.PRUNED
        self._is_relative |= is_pruned or (is_complete and not math.isfinite(value))
        if self._is_relative and end_of(trial) < self._last:
            raise StudyChanged(f"trial {trial.number} ended before one that was told")
        self._last = max(self._last, end_of(trial))
        if is_pruned:
            known = [value] if math.isfinite(value) else []
            known += [statistics.median(self._values)] if self._values else []
            return self._worse(known, default=None)
        if not is_complete:
            return None
        if math.isfinite(value):
            self._values.append(value)
            return value
        return (max if value > 0 else min)(self._values, default=None)


class Mirror:
    """An agent, the translation of its values to the study's, and which trials it was told."""

    def __init__(self, agent: Agent, words: Translation) -> None:
        self.agent, self.words = agent, words
        self._numbers: dict[int, int] = {}  # of the agent's trials, by their numbers in the study
        agent.study_numbers = self._numbers
        self.told: set[int] = set()  # the numbers of the trials whose scores the agent was told
        self.names: set[str] = set()  # the parameters that any trial has suggested
        self.useless: FrozenTrial | None = None  # the first whose score could not be told
        self._pending: dict[int, Trial] = {}  # the agent's trials, by their numbers in the study
        self._settled: dict[int, TrialState] = {}
        self._scores = _Scores(agent.federation.space.sign)
        self._heard: dict[_From, int] = {}  # the sequences of what was handed out last
        self._latest: dict[_From, int] = {}  # the latest ones ever, of signed messages

    @property
    def scores(self) -> int:
        """The number of scores that the agent was told."""
        return len(self.told)

    def ask(self, number: int) -> record.Asked:
        """Ask the agent for a query for the study's trial with this number."""
        if number in self._pending:
            self.agent.tell(self._pending.pop(number), None)
        trial = self._pending[number] = self.agent.ask(key=number)
        self._numbers[number] = trial.number
        return record.Asked(origin=trial.origin, t=trial.t, params=trial.params)

    def hear(self, messages: Sequence[Heard]) -> list[str]:
        """Let the agent hold these messages and no others; return why some were refused.

        What it held before and is not among them, the exchange no longer hands out. A signed
        message that is earlier than one that was heard is ignored: somebody has put it back.
        """
        heard, now = self._heard, {(m.sender, m.key): m for m in messages}
        for origin, message in [*now.items()]:
            if message.key:
                if message.sequence < self._latest.get(origin, 0):
                    del now[origin]
                else:
                    self._latest[origin] = message.sequence
        self._heard = {origin: message.sequence for origin, message in now.items()}
        self.agent.forget({o[0] for o, n in heard.items() if self._heard.get(o, -1) < n})
        refusals = []
        for origin, message in now.items():
            is_own = message.sender == self.agent.name and not isinstance(message, Release)
            if message.sequence != heard.get(origin) and not is_own:
                try:
                    self.agent.receive(message)
                except (ValueError, OSError) as error:
                    refusals.append(str(error))
        return refusals

    def follow(self, trials: Iterable[FrozenTrial], asking: int | None = None) -> None:
        """Tell the agent which trials have finished, and which are running except the one asking.

        Raises:
            StudyChanged: If the study contradicts what the agent was told, for example because a
                worker that seemed dead was alive.
        """
        ended, names = [], set(self.names)
        for trial in trials:
            names.update(trial.params)
            told = self._settled.get(trial.number)
            if trial.state.is_finished():
                if told is None:
                    ended.append(trial)
                elif told is not trial.state:
                    raise StudyChanged(f"trial {trial.number}: {told.name}, {trial.state.name}")
            elif told is None and trial.number not in self._pending and trial.number != asking:
                self._take_up(trial)
        if self.useless is not None and names > self.names:
            raise StudyChanged("a parameter was suggested for the first time")
        self.names = names
        for trial in sorted(ended, key=end_of):
            self._settle(trial)

    def _take_up(self, trial: FrozenTrial) -> None:
        """Let the agent know of a trial that another worker is running."""
        adopted = self._adopt(record.read_asked(trial))
        if adopted is None:
            ran = self._locate(trial)
            adopted = None if ran is None else self.agent.adopt(ran, origin=_TOLD)
        if adopted is not None:
            self._pending[trial.number] = adopted
            self._numbers[trial.number] = adopted.number

    def _settle(self, trial: FrozenTrial) -> None:
        """Tell the agent how a trial ended.

        The score counts where the trial ran. If the agent asked for another point, that query is
        told as failed.
        """
        score = self._scores.add(trial)
        self._settled[trial.number] = trial.state
        ran = self._locate(trial)
        if score is not None and ran is not None:
            self.told.add(trial.number)
        stored = record.read_asked(trial)
        asked = self._pending.pop(trial.number, None) or self._adopt(stored)
        if asked is not None:
            self._numbers[trial.number] = asked.number
            if ran is not None and self._is_same(asked.params, ran):
                self.agent.tell(asked, score)
                return
            self.agent.tell(asked, None)
        if ran is not None:
            # A query that the agent cannot adopt was made in another space.
            origin, t = _TOLD, None
            if asked is not None and stored is not None:
                origin, t = stored.origin, stored.t
            told = self.agent.adopt(ran, origin=origin, t=t)
            self._numbers[trial.number] = told.number
            self.agent.tell(told, score)
        elif score is not None and self.useless is None:
            self.useless = trial

    def _adopt(self, stored: record.Asked | None) -> Trial | None:
        """Give the agent a stored query; None if there is none, or it is of another space."""
        if stored is None:
            return None
        try:
            return self.agent.adopt(stored.params, origin=stored.origin, t=stored.t)
        except ValueError:
            return None

    def _locate(self, trial: FrozenTrial) -> dict[str, Value] | None:
        try:
            return locate(trial, self.agent.federation.space, self.words, self.names)
        except ValueError:
            return None

    def _is_same(self, asked: dict[str, Value], ran: dict[str, Value]) -> bool:
        encode = self.agent.federation.space.encode
        return bool((encode(asked) == encode(ran)).all())


def locate(
    trial: FrozenTrial, space: Space, words: Translation, suggested: Collection[str]
) -> dict[str, Value]:
    """Return where a trial ran in the federation's space.

    If only other trials suggested a parameter, its value is the one that the agent asked for.

    Raises:
        Unlocated: If the trial has no value for some parameters.
        ValueError: If it ran outside the space.
    """
    asked = record.read_asked(trial)
    wanted = {} if asked is None else asked.params
    params = {name: value for name, value in wanted.items() if name in suggested}
    params |= words.inward(
        {name: trial.params[name] for name in space.names if name in trial.params}
    )
    missing = [name for name in space.names if name not in params]
    if missing:
        raise Unlocated(missing, is_final=any(name not in wanted for name in missing))
    params = {name: params[name] for name in space.names}
    space.encode(params)
    return params
