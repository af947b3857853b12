"""An agent that knows what a study knows: every trial of it once, whoever ran it.

A study is what lasts; the agent is made of it, again and again: by each worker, after a restart,
when the space changes. So all that is told to the agent is a function of the study's finished
trials, in the order in which they ended, and of nothing that a worker remembers.
"""

from __future__ import annotations

import difflib
import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from optuna.trial import FrozenTrial, TrialState

from fedbo.agent import Agent
from fedbo.agent.trial import Trial
from fedbo.message import Message
from fedbo.optuna import record
from fedbo.optuna.distributions import Translation
from fedbo.space import Parameter, Space
from fedbo.space.axis import Value


class StudyChanged(Exception):
    """A trial ended otherwise in the study than the agent was told: make the agent anew."""


class Mirror:
    """The ``agent``, and which of the study's trials it has been told.

    ``words`` translates between the study's values and the federation's. ``scores`` is how many the
    agent was told, ``names`` are the parameters that any trial has suggested, ``within`` the ranges
    that the agent keeps to. ``useless`` is the first trial with a value that it could not be told.
    """

    def __init__(
        self, agent: Agent, words: Translation, within: Mapping[str, Parameter] | None = None
    ) -> None:
        self.agent, self.words, self.within = agent, words, dict(within or {})
        self.scores = 0
        self.useless: FrozenTrial | None = None
        self._open: dict[int, Trial] = {}  # the agent's, by the number of the study's
        self._settled: dict[int, TrialState] = {}
        self._values: list[float] = []  # of complete trials, finite ones
        self.names: set[str] = set()
        self._relative = False  # whether a score was told that depends on those before it
        self._last = (datetime.min, -1)  # when the last one that was told ended
        self._heard: dict[str, int] = {}  # sequence of the last message, by sender

    def ask(self, number: int) -> record.Origin:
        """The query for the study's trial with this number."""
        before = self._open.pop(number, None)
        if before is not None:
            self._tell(before, None)
        trial = self.agent.ask(key=number)
        self._open[number] = trial
        return record.Origin(
            source=trial.source,
            t=trial.t,
            peer=trial.peer,
            credit=trial.credit,
            weights=trial.weights,
            params=trial.params,
        )

    def follow(self, trials: Iterable[FrozenTrial], asking: int | None = None) -> None:
        """Tell what has finished, and take up what other workers are running.

        The trial that is ``asking`` is not one of those. `StudyChanged` if the study contradicts
        what was told: a worker that seemed dead was alive, or the study is another one.
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
            elif told is None and trial.number not in self._open and trial.number != asking:
                self._take_up(trial)
        if self.useless is not None and names > self.names:
            raise StudyChanged("a parameter was suggested for the first time")
        self.names = names
        for trial in sorted(ended, key=_ended):
            self._settle(trial)

    def _settle(self, trial: FrozenTrial) -> None:
        """Tell how a trial ended.

        Where it ran is what counts. If that is not where the agent wanted it, the place that was
        asked for is told as failed: nothing is known of it, and it was this query's turn.
        """
        score = self._score(trial)
        self._settled[trial.number] = trial.state
        self._last = max(self._last, _ended(trial))
        origin = record.read_origin(trial)
        asked = self._open.pop(trial.number, None)
        if asked is None and origin is not None:
            asked = self._opened(origin.params, origin)
            origin = None if asked is None else origin  # it was a query in another space
        ran = self._params(trial)
        if asked is not None and ran is not None and self._same(asked.params, ran):
            self._tell(asked, score)
            return
        if asked is not None:
            self._tell(asked, None)
        if ran is not None:
            self._tell(self._opened(ran, origin), score)
        elif score is not None and self.useless is None:
            self.useless = trial

    def hear(self, messages: Iterable[Message]) -> list[str]:
        """Take what is new of peers' messages; why some were refused."""
        new = [m for m in messages if m.sequence > self._heard.get(m.sender, -1)]
        self._heard |= {message.sender: message.sequence for message in new}
        new = [message for message in new if message.sender != self.agent.name]
        if not new:
            return []
        try:
            self.agent.receive(new)
            return []
        except ValueError:  # one is refused, and thereby all
            return [sentence for message in new if (sentence := self._refusal(message))]

    def _refusal(self, message: Message) -> str | None:
        try:
            self.agent.receive(message)
        except ValueError as error:
            return str(error)
        return None

    def _take_up(self, trial: FrozenTrial) -> None:
        origin = record.read_origin(trial)
        opened = None if origin is None else self._opened(origin.params, origin)
        params = self._params(trial) if opened is None else None
        if params is not None:
            opened = self._opened(params, None)
        if opened is not None:
            self._open[trial.number] = opened

    def _opened(self, params: dict[str, Value], origin: record.Origin | None) -> Trial | None:
        """The agent's new trial; None if it is one of another space."""
        origin = record.Origin(source="told") if origin is None else origin
        try:
            return self.agent.open(
                params,
                source=origin.source,
                t=origin.t,
                peer=origin.peer,
                credit=origin.credit,
                weights=origin.weights,
            )
        except ValueError:
            return None

    def _tell(self, trial: Trial | None, score: float | None) -> None:
        assert trial is not None
        self.agent.tell(trial, score)
        self.scores += score is not None

    def _params(self, trial: FrozenTrial) -> dict[str, Value] | None:
        """Where the trial ran, in the federation's words; None if that is in another space."""
        try:
            return place(trial, self.agent.federation.space, self.words, self.names)
        except ValueError:
            return None

    def _same(self, asked: dict[str, Value], ran: dict[str, Value]) -> bool:
        encode = self.agent.federation.space.encode
        return bool((encode(asked) == encode(ran)).all())

    def _score(self, trial: FrozenTrial) -> float | None:
        """What the agent is told of a trial; None if that is nothing.

        An infinite value is as good or as bad as the best or worst so far. A pruned trial is no
        better than half of the complete ones: it was stopped because it looked worse, and a region
        where all are pruned must not stay unknown, and thereby attractive.
        """
        value = trial.value
        finite = value is not None and math.isfinite(value)
        complete = trial.state is TrialState.COMPLETE
        relative = trial.state is TrialState.PRUNED or (complete and not finite)
        if (relative or self._relative) and _ended(trial) < self._last:
            raise StudyChanged(f"trial {trial.number} ended before one that was told")
        self._relative |= relative
        if complete and value is not None:
            if finite:
                self._values.append(value)
                return value
            return (max if value > 0 else min)(self._values, default=None)
        if trial.state is TrialState.PRUNED:
            known = [value] if finite and value is not None else []
            known += [statistics.median(self._values)] if self._values else []
            worse = min if self.agent.federation.space.sign > 0 else max
            return worse(known, default=None)
        return None


def place(
    trial: FrozenTrial, space: Space, words: Translation, suggested: Collection[str]
) -> dict[str, Value]:
    """Where a trial ran, in a federation's words; ValueError says why an agent cannot know.

    A parameter that the objective had no use for in this trial, but has been ``suggested`` in
    another, is where it was asked for.
    """
    origin = record.read_origin(trial)
    asked = {} if origin is None else origin.params
    params = {name: value for name, value in asked.items() if name in suggested}
    params |= words.inward(
        {name: trial.params[name] for name in space.names if name in trial.params}
    )
    missing = [name for name in space.names if name not in params]
    if missing:
        others = [name for name in trial.params if name not in space.names]
        near = difflib.get_close_matches(missing[0].lower(), map(str.lower, others), 1)
        hint = next((f", but {name!r}" for name in others if name.lower() in near), "")
        raise ValueError(f"it has no parameter {missing[0]!r}{hint}")
    params = {name: params[name] for name in space.names}
    space.encode(params)
    return params


def _ended(trial: FrozenTrial) -> tuple[datetime, int]:
    return trial.datetime_complete or datetime.min, trial.number
