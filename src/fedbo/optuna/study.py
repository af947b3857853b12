"""The agent of a study, rebuilt from what the study stores.

A study stores two things as system attributes of Optuna: a `StudyRecord`, which says who its agent
is, and in each trial an `Asked`, which says where its query came from. Every worker builds its
agent from these and from the trials, and does so again after a restart. So what an agent is told
depends only on the study's finished trials, and on the order in which they ended. User attributes
say the same to people, and nothing reads them.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import secrets
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec
import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution
from optuna.search_space import IntersectionSearchSpace
from optuna.trial import FrozenTrial, TrialState

from fedbo import caller
from fedbo.agent.agent import Agent
from fedbo.agent.settings import Settings
from fedbo.agent.trial import Trial
from fedbo.errors import FederationMismatch
from fedbo.federation.federation import Federation
from fedbo.message import Message, Release
from fedbo.optuna import private
from fedbo.optuna.distributions import (
    SearchSpace,
    misfit,
    parameter_of,
    quoted,
    tunable,
)
from fedbo.policy import Origin, Policy, Source
from fedbo.space import Direction, Parameter, Space
from fedbo.space.axis import Value
from fedbo.trust import KeyPair, Keyring, Trusted

SCORED = (TrialState.COMPLETE, TrialState.PRUNED)  # the states of trials that have scores

QUERY = "fedbo:query"  # an attribute of trials
RECORD = "fedbo:agent:"  # an attribute of the study, followed by a token
KEY = "fedbo:key"  # an attribute of the study
SOURCE, PEERS = "fedbo:source", "fedbo:peers"  # user attributes of trials

_TOLD = Origin("told")
_HUGE = 1e300  # for infinity
_SAME = 1e-3  # on the unit cube: points that are closer are the same

#: What a study warns about, each once.
Warned = Literal[
    "cannot tune",
    "not learnt",
    "not suggested",
    "ignored",
]


# What a study stores


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the agent asked for in a trial, which may have run elsewhere: enqueued or clipped.

    Args:
        source: Where the query came from, with ``credit`` and ``trust`` as in `fedbo.Origin`.
        t: The number of the policy's query; None if no policy asked for it.
        params: The federation's values, not the study's.
    """

    source: Source
    t: int | None = None
    credit: dict[str, float] = {}
    trust: dict[str, float] = {}
    params: dict[str, Value] = {}

    @property
    def origin(self) -> Origin:
        """Where the query came from; a ValueError if the record does not make sense."""
        return Origin(self.source, self.credit, self.trust)


class StudyRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The agent of a study.

    Args:
        name: The name of the study among peers; at a hub, the member's name comes before it.
        entropy: The secret that all its randomness comes from, in hexadecimal.
        federation: The fingerprint of its federation; empty if the study began without one.
        key: The public key that its messages are signed with, as text; empty before the first one.
    """

    name: str
    entropy: str
    federation: str = ""
    key: str = ""

    @property
    def study(self) -> str:
        """What the ledger calls the study: the same on all machines, and told to no peer."""
        return hashlib.sha256(f"study {self.entropy}".encode()).hexdigest()[:16]


def read_asked(trial: FrozenTrial) -> Asked | None:
    """Return what the agent asked for in a trial; None if there is no record that can be read.

    >>> written = {QUERY: {"source": "own", "t": 3, "params": {"x": 0.5}}}
    >>> read_asked(optuna.trial.create_trial(value=1.0, system_attrs=written))
    Asked(source='own', t=3, credit={}, trust={}, params={'x': 0.5})
    """
    try:
        asked = msgspec.convert(trial.system_attrs.get(QUERY), Asked)
        asked.origin  # noqa: B018 (raises an error if it is none)
    except ValueError:
        return None
    return asked


def read_origin(trial: FrozenTrial) -> Origin | None:
    """Return where a trial's query came from; None if there is no record that can be read."""
    asked = read_asked(trial)
    return None if asked is None else asked.origin


def write_asked(study: optuna.Study, trial: FrozenTrial, asked: Asked) -> None:
    private.set_trial_attribute(study, trial, QUERY, msgspec.to_builtins(asked))


def show_asked(study: optuna.Study, trial: FrozenTrial, asked: Asked) -> None:
    """Let the dashboard show where a trial's query came from, unless the user enqueued it."""
    if not private.is_enqueued(trial):
        private.show_trial_attribute(study, trial, SOURCE, asked.source)
        if asked.credit:
            ranked = sorted(asked.credit.items(), key=lambda share: -share[1])
            peers = ", ".join(f"{name} {share:.0%}" for name, share in ranked)
            private.show_trial_attribute(study, trial, PEERS, peers)


def read_record(study: optuna.Study) -> StudyRecord | None:
    """Return the record of the study's agent, or None before its first query."""
    attributes = private.study_attributes(study)
    # Two workers that start at once may each write a record: the smallest token counts.
    first = min((name for name in attributes if name.startswith(RECORD)), default=None)
    if first is None:
        return None
    record = msgspec.convert(attributes[first], StudyRecord)
    return msgspec.structs.replace(record, key=str(attributes.get(KEY, "")))


def write_record(study: optuna.Study, new: StudyRecord) -> StudyRecord:
    """Store a record in a study that has none, and return the one that counts."""
    private.set_study_attribute(study, RECORD + secrets.token_hex(8), msgspec.to_builtins(new))
    record = read_record(study)
    assert record is not None
    return record


def write_key(study: optuna.Study, key: str) -> None:
    """Store the public key that the study's messages are signed with from now on."""
    private.set_study_attribute(study, KEY, key)


# An agent that is told each trial once


class StudyChanged(Exception):
    """The study contradicts what the agent was told, so the agent must be built anew."""


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
            values = [value] if math.isfinite(value) else []
            values += [statistics.median(self._values)] if self._values else []
            return self._worse(values, default=None)
        if not is_complete:
            return None
        if math.isfinite(value):
            self._values.append(value)
            return value
        return (max if value > 0 else min)(self._values, default=None)


class Mirror:
    """An agent, and which trials of its study it was told."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._numbers: dict[int, int] = {}  # of the agent's trials, by their numbers in the study
        agent.study_numbers = self._numbers
        self.told: dict[int, FrozenTrial] = {}  # trials that count for messages, by number
        self.names: set[str] = set()  # the parameters that any trial has suggested
        self.constraints: set[str] = set()  # the names of those that any complete trial has
        self.useless: FrozenTrial | None = None  # the first whose score could not be told
        self._pending: dict[int, Trial] = {}  # the agent's trials, by their numbers in the study
        self._settled: dict[int, TrialState] = {}
        self._scores = _Scores(agent.federation.space.sign)
        self._heard: dict[tuple[str, bytes], int] = {}  # the sequences of what was handed out last
        self._messages: list[Trusted] = []  # that were heard last

    @property
    def scores(self) -> int:
        """The number of scores that count for messages."""
        return len(self.told)

    def ask(self, number: int) -> Asked:
        """Ask the agent for a query for the study's trial with this number."""
        if number in self._pending:
            self.agent.tell(self._pending.pop(number), None)
        trial = self._pending[number] = self.agent.ask(key=number)
        self._numbers[number] = trial.number
        origin = msgspec.structs.asdict(trial.origin)
        return Asked(**origin, t=trial.t, params=trial.params)

    def collisions(self, number: int, trials: Iterable[FrozenTrial]) -> list[int]:
        """Return the trials with (almost) the same query that the agent does not know of yet."""
        encode, ours = self.agent.space.encode, self._pending[number].params
        numbers = []
        for trial in trials:
            if trial.number != number and trial.number not in self._settled:
                asked, known = read_asked(trial), self._pending.get(trial.number)
                if asked is not None and (known is None or known.params != asked.params):
                    with contextlib.suppress(ValueError):  # it is of another space
                        if np.abs(encode(asked.params) - encode(ours)).max() < _SAME:
                            numbers.append(trial.number)
        return numbers

    def hear(self, messages: list[Trusted]) -> list[str]:
        """Let the agent hold these messages and no others; return why some were refused.

        What it held before and is not among them, the exchange no longer hands out.
        """
        if messages is self._messages:  # nothing has changed
            return []
        self._messages = messages
        before, now = self._heard, {(m.content.sender, m.content.key): m for m in messages}
        self._heard = {origin: m.content.sequence for origin, m in now.items()}
        self.agent.forget({o[0] for o, n in before.items() if self._heard.get(o, -1) < n})
        news = [
            message
            for origin, message in now.items()
            if message.content.sequence != before.get(origin)
            and (origin[0] != self.agent.name or isinstance(message.content, Release))
        ]
        return self._receive(news) if news else []

    def _receive(self, messages: Sequence[Trusted]) -> list[str]:
        """Let the agent receive what it does not refuse; return why it refuses the others."""
        try:
            self.agent.receive(messages)
        except (ValueError, OSError) as error:
            if len(messages) == 1:
                return [str(error)]
            half = len(messages) // 2
            return self._receive(messages[:half]) + self._receive(messages[half:])
        return []

    def follow(self, trials: Iterable[FrozenTrial], asking: int | None = None) -> None:
        """Tell the agent which trials have finished, and which are running except the one asking.

        Raises:
            StudyChanged: If the study contradicts what the agent was told, for example because a
                worker that seemed dead was alive.
        """
        ended, names, constraints = [], set(self.names), set(self.constraints)
        for trial in trials:
            names.update(trial.params)
            if trial.state in SCORED:
                constraints.update(private.constraints(trial))
            settled = self._settled.get(trial.number)
            if trial.state.is_finished():
                if settled is None:
                    ended.append(trial)
                elif settled is not trial.state:
                    raise StudyChanged(f"trial {trial.number}: {settled.name}, {trial.state.name}")
            elif settled is None and trial.number != asking:
                self._take_up(trial)
        if self.useless is not None and names > self.names:
            raise StudyChanged("a parameter was suggested for the first time")
        if self._settled and constraints > self.constraints:
            raise StudyChanged("a constraint was set for the first time")
        self.names, self.constraints = names, constraints
        for trial in sorted(ended, key=end_of):
            self._settle(trial)

    def _take_up(self, trial: FrozenTrial) -> None:
        """Let the agent know of a trial that another worker is running."""
        asked, known = read_asked(trial), self._pending.get(trial.number)
        if known is not None:
            if asked is None or asked.params == known.params:
                return
            self.agent.tell(self._pending.pop(trial.number), None)  # it asked for another point
        adopted = self._adopt(asked, trial)
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
        score, constraints = self._scores.add(trial), self._constraints_of(trial)
        if len(constraints) < len(self.constraints):
            score = None  # nobody knows whether it is feasible
        self._settled[trial.number] = trial.state
        ran = self._locate(trial)
        # In a private federation, nobody is told how many trials broke a constraint.
        counts = self.agent.federation.privacy is not None or all(c <= 0.0 for c in constraints)
        if score is not None and ran is not None and counts:
            self.told[trial.number] = trial
        stored = read_asked(trial)
        asked = self._pending.pop(trial.number, None) or self._adopt(stored, trial)
        if asked is not None:
            self._numbers[trial.number] = asked.number
            if ran is not None and self._is_same(asked.params, ran):
                self.agent.tell(asked, score, constraints)
                return
            self.agent.tell(asked, None)
        if ran is not None:
            # A query that the agent cannot adopt was made in another space.
            origin, t = _TOLD, None
            if asked is not None and stored is not None:
                origin, t = stored.origin, stored.t
            adopted = self.agent.adopt(ran, origin=origin, t=t)
            self._numbers[trial.number] = adopted.number
            self.agent.tell(adopted, score, constraints)
        elif score is not None and self.useless is None:
            self.useless = trial

    def _constraints_of(self, trial: FrozenTrial) -> list[float]:
        """Return the values of a trial's constraints, by name; infinite ones as large numbers."""
        values = private.constraints(trial)
        return [
            min(max(values[name], -_HUGE), _HUGE)
            for name in sorted(self.constraints)
            if name in values
        ]

    def _adopt(self, stored: Asked | None, trial: FrozenTrial) -> Trial | None:
        """Give the agent a stored query; None if there is none, or it is of another space.

        If it was made before the study's own parameters were known, these are as the trial has
        them.
        """
        if stored is None:
            return None
        shared = self.agent.federation.space.parameters
        own = [name for name in self.agent.space.names if name not in shared]
        params = {name: value for name, value in stored.params.items() if name in shared}
        params |= {name: (trial.params | stored.params).get(name, math.nan) for name in own}
        try:
            return self.agent.adopt(params, origin=stored.origin, t=stored.t)
        except ValueError:
            return None

    def _locate(self, trial: FrozenTrial) -> dict[str, Value] | None:
        """Return where a trial ran in the agent's space; None if it did not.

        If only other trials suggested a parameter, its value is the one that was asked for.
        """
        asked, space = read_asked(trial), self.agent.space
        params = {} if asked is None else {n: v for n, v in asked.params.items() if n in self.names}
        params |= trial.params
        try:
            params = {name: params[name] for name in space.names}
            space.encode(params)
        except (KeyError, ValueError):
            return None
        return params

    def _is_same(self, asked: dict[str, Value], ran: dict[str, Value]) -> bool:
        encode = self.agent.space.encode
        return bool((encode(asked) == encode(ran)).all())


# The agent of one study


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of a `FederatedSampler` that its agents are made with."""

    federation: Federation | None
    policy: Policy
    settings: Settings | None = None
    seed: int | None = None
    name: str | None = None
    clip: bool = False

    def federation_of(self, study: optuna.Study, search_space: SearchSpace) -> Federation:
        """Return the federation that was given, or one of what a study that is alone tunes."""
        direction: Direction = "maximize" if study.direction.name == "MAXIMIZE" else "minimize"
        if self.federation is None:
            space = Space(tunable(search_space)[0], direction=direction)
            return Federation(space, kind=self.policy.kinds[0])
        theirs = self.federation.space.direction
        if theirs != direction:
            raise FederationMismatch(
                f"the study has direction {direction}, but its federation has {theirs}: create a "
                f"study with direction={theirs!r}, and change the sign of the objective if "
                "necessary. A stored study keeps its direction, so give the new one another name"
            )
        return self.federation


class StudyAgent:
    """The agent of one study, and what is known about that study. One thread at a time uses it."""

    def __init__(self, study: optuna.Study, options: Options) -> None:
        self.study, self.options = study, options
        self.record: StudyRecord | None = None  # as it was read or written last
        self._new: StudyRecord | None = None  # that a new study gets
        self.mirror: Mirror | None = None  # until the first query, or the first look
        self.queries: dict[int, dict[str, Any]] = {}  # by the numbers of the running trials
        self.ranges: SearchSpace = {}  # that the objective gave for the federation's parameters
        # As whom it speaks at its exchange, see `speak_as`.
        self._sender: str | None = None
        self._keys: KeyPair | None = None
        self._keyring: Keyring | None = None
        self._made_from: tuple[object, ...] = ()
        self._intersection = IntersectionSearchSpace()
        self._shared: SearchSpace = {}  # the parameters that all complete trials share
        self._tuned: SearchSpace = {}  # those of them that fedbo can tune
        self._warned: set[Warned] = set()

    @property
    def agent(self) -> Agent | None:
        """The agent, told everything that has finished; None before the study's first query."""
        mirror = None if read_record(self.study) is None else self.look()
        return None if mirror is None else mirror.agent

    def warn(self, about: Warned, text: str, category: type[Warning] = UserWarning) -> None:
        """Give a warning, unless one about the same was given before."""
        if about not in self._warned:
            self._warned.add(about)
            caller.warn(text, category)

    def beside(self, *, cached: bool = True) -> SearchSpace:
        """Return what is tuned beside the federation: all that is tuned, if there is none.

        These are the study's own parameters, as far as all complete trials share them and fedbo can
        tune them. A federation that lists its points has none. If some trials have parameters that
        others lack, choices are left out: a model that does not see the parameters that depend on
        a choice would settle for one choice too early.
        """
        federation = self.options.federation
        if federation is not None and federation.space.points is not None:
            return {}
        theirs = () if federation is None else federation.space.parameters
        own = {n: ours for n, ours in self._common(cached).items() if n not in theirs}
        numbers = {
            n: ours for n, ours in own.items() if not isinstance(ours, CategoricalDistribution)
        }
        return numbers if len(numbers) < len(own) and self._has_conditions(cached) else own

    def _common(self, cached: bool) -> SearchSpace:
        """Return the parameters that all complete trials share and that fedbo can tune."""
        shared = private.intersection(self._intersection, self.study, cached=cached)
        if shared != self._shared:
            several = {name: ours for name, ours in shared.items() if not ours.single()}
            parameters, refusals = tunable(several)
            for reason in refusals:
                self.warn("cannot tune", f"{reason}; it is sampled independently")
            self._shared, self._tuned = shared, {name: shared[name] for name in parameters}
        return self._tuned

    def _has_conditions(self, cached: bool) -> bool:
        """Tell whether a complete trial lacks a parameter that one before it has."""
        names: set[str] = set()
        for trial in private.get_trials(self.study, cached=cached):
            if trial.state is TrialState.COMPLETE:
                if names - trial.params.keys():
                    return True
                names |= trial.params.keys()
        return False

    @property
    def is_new(self) -> bool:
        """Whether the study had no record before."""
        return self._new is not None

    def expected(self) -> StudyRecord:
        """Return the study's record, or what a new study would store as its record."""
        if self.record is not None:
            return self.record
        record = read_record(self.study)
        if record is None:
            self._new = self._new or self._new_record()
            return self._new
        if self.options.name not in (None, record.name):
            raise ValueError(
                f"study {self.study.study_name!r} has the name {record.name!r} among its peers, "
                f"and cannot be renamed to {self.options.name!r}: leave the name out, or run "
                "another study"
            )
        return record

    def introduce(self) -> StudyRecord:
        """Return the study's record; a new study gets one."""
        if self.record is None:
            self.record = self.expected()
            if self.record is self._new:
                self.record = write_record(self.study, self.record)
        return self.record

    def reread(self) -> StudyRecord:
        """Return the record as it is stored now: another worker may have changed the key."""
        self.record = None
        return self.introduce()

    def speak_as(
        self, sender: str, keys: KeyPair | None = None, keyring: Keyring | None = None
    ) -> None:
        """Let the agent have this name among peers, and sign its messages with these keys."""
        self._sender, self._keys, self._keyring = sender, keys, keyring

    def follow(
        self, search_space: SearchSpace, asking: int | None = None, *, cached: bool = False
    ) -> Mirror:
        """Bring the agent up to date with the study, except for the trial that is ``asking``.

        ``search_space`` is what is tuned beside the federation. If ``cached``, trials may be as old
        as the beginning of the running trial.
        """
        trials = private.get_trials(self.study, cached=cached)
        return self._followed(search_space, self.introduce(), trials, asking)

    def look(self) -> Mirror | None:
        """Return the agent with all that the study knows, without changing the study.

        None if there is no federation, and no parameter that all complete trials share.
        """
        search_space = self.beside(cached=False)
        if self.options.federation is None and not search_space:
            return None
        trials = private.get_trials(self.study)
        return self._followed(search_space, self.expected(), trials)

    def preview(self) -> Message | None:
        """Return the message that would be published now, without changing the study."""
        mirror = self.look()
        return None if mirror is None else next(iter(Agent.messages([mirror.agent])), None)

    def end(self, trial: FrozenTrial, state: TrialState) -> None:
        """Note that a trial has ended, and warn if the agent cannot learn from it."""
        self.queries.pop(trial.number, None)
        if state in SCORED:
            self._check_trial(trial)

    def _followed(
        self,
        search_space: SearchSpace,
        record: StudyRecord,
        trials: Sequence[FrozenTrial],
        asking: int | None = None,
    ) -> Mirror:
        """Tell the agent of these trials. It is built anew if it is not made from the same."""
        within = self._narrower(trials)
        made_from = search_space, record.entropy, within, self._sender, str(self._keys)
        mirror = self.mirror if made_from == self._made_from else None
        if mirror is not None:
            try:
                mirror.follow(trials, asking)
            except StudyChanged:
                mirror = None
        if mirror is None:
            mirror = self._build(search_space, record, within)
            mirror.follow(trials, asking)
            self.mirror, self._made_from = mirror, made_from
        if mirror.useless is not None:
            self._check_trial(mirror.useless)
        return mirror

    def _build(
        self, search_space: SearchSpace, record: StudyRecord, within: dict[str, Parameter]
    ) -> Mirror:
        """Make a new agent, whose queries stay in the narrower ranges ``within``."""
        federation, own = self.options.federation_of(self.study, search_space), None
        if self.options.federation is not None:
            own = tunable(search_space)[0]
        # A study has one secret for all federations, and different noise in each of them.
        secret = record.entropy.encode() + federation.fingerprint
        agent = Agent(
            federation,
            self.options.policy,
            name=self._sender or record.name,
            seed=int.from_bytes(hashlib.sha256(secret).digest()[:16]),
            settings=self.options.settings,
            within=within,
            own=own,
            keys=self._keys,
            keyring=self._keyring,
        )
        return Mirror(agent)

    def _new_record(self) -> StudyRecord:
        seed, name, federation = self.options.seed, self.options.name, self.options.federation
        entropy = secrets.token_hex(16)
        if seed is not None:
            entropy = hashlib.sha256(f"{int(seed)} {name or ''}".encode()).hexdigest()[:32]
        return StudyRecord(
            name=f"agent-{secrets.token_hex(4)}" if name is None else name,
            entropy=entropy,
            federation="" if federation is None else str(federation.fingerprint),
        )

    def _narrower(self, trials: Sequence[FrozenTrial]) -> dict[str, Parameter]:
        """Return the ranges that are narrower than the federation's, if clipping is allowed.

        They are the objective's in this process, or in the last trial.
        """
        federation = self.options.federation
        if federation is None or not self.options.clip:
            return {}
        theirs = federation.space.parameters
        last = next((trial.distributions for trial in reversed(trials) if trial.params), {})
        return {
            name: parameter_of(name, ours)
            for name, ours in (last | self.ranges).items()
            if name in theirs
            and not ours.single()
            and misfit(ours, theirs[name])
            and not misfit(ours, theirs[name], clip=True)
        }

    def _check_trial(self, trial: FrozenTrial) -> None:
        """Warn if the agent can learn nothing from a trial with a value, or only a part."""
        if self.options.federation is None:
            return  # its space is what trials share: it is normal that some have more
        space, number = self.options.federation.space, trial.number
        missing = [name for name in space.names if name not in trial.params]
        others = [name for name in trial.params if name not in space.parameters]
        if missing:
            self.warn(
                "not suggested",
                f"in trial {number}, the objective does not suggest {quoted(missing)} of the "
                f"federation{f', but {quoted(others)}' if others else ''}. The score counts at "
                "the values that were asked for if another trial suggests what is missing, and not "
                "at all otherwise. This is right for a parameter that only some trials need. If it "
                "is a mistake, correct the objective, or create a federation with the parameters "
                "that it suggests (fedbo federation new). This warning is given once",
            )
            return
        try:
            space.encode({name: trial.params[name] for name in space.names})
        except ValueError as problem:
            self.warn(
                "not learnt",
                f"trial {number} has a value, but the federation cannot learn from it: {problem}. "
                "Other trials like this one are ignored without another warning",
            )
