"""A sampler for Optuna that asks an agent of a federation.

The way of a trial. The objective suggests its first parameter, and the sampler brings its agent up
to date with the study (`Mirror`): what has finished is told, what other workers run is pending.
Messages of peers that have arrived meanwhile are received. The agent is asked, the trial remembers
where its query came from (`record`), and the objective gets its values one by one. When it is done
and stored, the `Courier` has a message made of what the study then knows, and takes it to the
exchange, in a thread of its own, so that no trial waits.

All that must last is in the study. The agent is made of it again whenever need be.

With a federation its parameters are handed out by `sample_independent`, though they are chosen
together: only there does a sampler see the distribution that the objective suggests, and can refuse
one that is not the federation's before anything is evaluated. In `sample_relative`, Optuna would
take a narrower range for the same, and speak for itself where kinds differ.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import threading
import time
import warnings
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.trial import FrozenTrial, TrialState

from fedbo.agent import Agent
from fedbo.agent.settings import Settings
from fedbo.exchange import Exchange, ExchangeWarning, Ledger, exchange_at
from fedbo.federation import Federation, FederationMismatch
from fedbo.message import Kind, Message
from fedbo.optuna import record
from fedbo.optuna.courier import Courier
from fedbo.optuna.distributions import Translation, difference, fitted, parameter_of
from fedbo.optuna.independent import usual_sampler
from fedbo.optuna.mirror import Mirror, StudyChanged, place
from fedbo.policy import PTS, Policy
from fedbo.space import Direction, Float, Parameter, Space

SearchSpace = dict[str, BaseDistribution]

_FIRST_NEWS = 0.5  # seconds that the first query waits for peers' messages, once
_LOOKS, _PAUSE = 200, 0.01  # of the courier for a trial that is being stored; seconds between them


class FederatedSampler(BaseSampler):
    """Tunes a study's parameters together, helped by the messages of peers.

    ``federation`` is a `fedbo.Federation` or the path of its file. Without one the sampler tunes
    the parameters that all trials have in common, and with an exchange it meets the studies whose
    parameters are the same. ``exchange`` is a `fedbo.exchange.Exchange` or its address, such as a
    folder; without one nobody hears of this study.

    Whenever the number of scores reaches a multiple of ``every``, a message is published.
    ``clip`` accepts an objective whose range is inside the federation's, and clips what is asked
    for to it. ``independent_sampler`` samples all other parameters, Optuna's TPE unless given.
    ``ledger`` is the log of what is handed out. ``seed`` and ``name`` are those of the study's
    agent (see `fedbo.Agent`) if it has none yet: both stay with the study, whoever works on it.

    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> study = optuna.create_study(sampler=FederatedSampler(seed=0))
    >>> study.optimize(lambda trial: (trial.suggest_float("x", 0, 1) - 0.3) ** 2, n_trials=12)
    >>> abs(study.best_params["x"] - 0.3) < 0.05
    True
    """

    def __init__(
        self,
        federation: Federation | str | os.PathLike[str] | None = None,
        exchange: Exchange | str | os.PathLike[str] | None = None,
        *,
        policy: Policy | None = None,
        seed: int | None = None,
        name: str | None = None,
        settings: Settings | None = None,
        every: int = 1,
        clip: bool = False,
        independent_sampler: BaseSampler | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        if isinstance(federation, str | os.PathLike):
            federation = _loaded(federation)
        if isinstance(exchange, str | os.PathLike):
            exchange = exchange_at(exchange)
        if exchange is not None and not isinstance(exchange, Exchange):
            raise TypeError(f"exchange is {exchange!r}, expected an Exchange or its address")
        if not isinstance(every, int) or every < 1:
            raise ValueError(f"every is {every!r}, expected a whole number of trials, 1 or more")
        if clip and (federation is None or federation.space.points is not None):
            raise ValueError(
                "clip is for a site whose range is inside its federation's: it needs a federation, "
                "and one without listed points"
            )
        self.federation = federation
        self.exchange = exchange
        self.policy = PTS() if policy is None else policy
        self.seed, self.name, self.settings = seed, name, settings
        self.every, self.clip = every, clip
        self.independent_sampler = independent_sampler or usual_sampler(seed)
        if federation is None:
            federation = Federation({"x": Float(0, 1)}, kind=self._kind())
        # Wrong arguments are refused here, and not in the first trial.
        Agent(federation, self.policy, name=name, seed=seed, settings=settings)
        self._courier: Courier | None = None
        if exchange is not None:
            self._courier = Courier(exchange, Ledger() if ledger is None else ledger)
        self._lock = threading.RLock()
        self._begin(None)

    def _begin(self, study: optuna.Study | None) -> None:
        """Know nothing but that it is this study."""
        self._study = None if study is None else (study._storage, study._study_id)
        self._common = IntersectionSearchSpace()
        self._seen: tuple[SearchSpace, SearchSpace] = {}, {}  # what is common, and what we tune
        self._identity: record.Identity | None = None
        self._mirror: Mirror | None = None
        self._search_space: SearchSpace | None = None  # that the mirror's federation is made of
        self._values: dict[int, dict[str, Any]] = {}  # to be handed out in each running trial
        self._ended: dict[int, int] = {}  # ids of trials that ran here, and no message was sent of
        self._ranges: SearchSpace = {}  # in which this objective suggests the federation's
        self._waited = False
        self._suggested: set[str] = set()  # parameters, in this process
        self._said: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for passing in ("_lock", "_study", "_common", "_identity", "_mirror", "_values"):
            del state[passing]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()
        self._begin(None)

    def __repr__(self) -> str:
        place = "no exchange" if self.exchange is None else repr(self.exchange)
        agent = "no query yet" if self._mirror is None else repr(self._mirror.agent)
        return f"FederatedSampler({place}, {agent})"

    @property
    def agent(self) -> Agent | None:
        """The study's agent, say for `explain`, told all that has finished; None before a query."""
        with self._lock:
            if self._mirror is None or self._study is None:
                return None
            storage, number = self._study
            with contextlib.suppress(StudyChanged):  # then the next query makes it anew
                self._mirror.follow(storage.get_all_trials(number, deepcopy=False))
            return self._mirror.agent

    def preview(self, study: optuna.Study) -> Message | None:
        """The message as it would be published now, without publishing it; None before a score."""
        self._raise_error_if_multi_objective(study)
        with self._lock:
            space = None if self.federation is not None else self._common_space(study, cached=False)
            if self.federation is None and not space:
                return None
            self._belong_to(study)
            known = self._identity or record.identity(study)
            if known is not None and self._epoch <= known.epoch:
                mirror = self._followed(study, space)
            else:  # an agent for now: to look must not change the study
                mirror = self._reflected(study, space, known or self._new_identity())
                mirror.follow(study._get_trials(deepcopy=False, use_cache=False))
            return mirror.agent.message() if mirror.scores else None

    def withdraw(self, study: optuna.Study) -> bool:
        """Take the study's message back from the exchange; whether there was one.

        Peers that have it may keep it. If the study goes on, it hands out another.
        """
        known = record.identity(study)
        if known is None or self._courier is None:
            return False
        federation = self.federation
        if federation is None:
            federation = None if self._mirror is None else self._mirror.agent.federation
        if federation is None:
            return False
        self.flush()
        return self._courier.ledger.withdraw(self._courier.exchange, federation, known.name)

    def flush(self, seconds: float = 5.0) -> None:
        """Wait until messages that are on their way are sent, or could not be; no longer than this.

        At the end of a program that happens by itself.
        """
        if self._courier is not None:
            self._courier.flush(seconds)
        self._pass_on_complaints()

    # What Optuna calls

    def reseed_rng(self) -> None:
        """Reseed the independent sampler; each query's randomness is that of its trial's number."""
        self.independent_sampler.reseed_rng()

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self.independent_sampler.before_trial(study, trial)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> SearchSpace:
        if self.federation is None:
            return self._common_space(study)
        theirs = self.independent_sampler.infer_relative_search_space(study, trial)
        return {name: given for name, given in theirs.items() if not self._is_ours(name)}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: SearchSpace
    ) -> dict[str, Any]:
        self._raise_error_if_multi_objective(study)
        if self.federation is None:
            return self._query(study, trial, search_space) if search_space else {}
        theirs = {name: given for name, given in search_space.items() if not self._is_ours(name)}
        params = self.independent_sampler.sample_relative(study, trial, theirs)
        ours = {name: given for name, given in search_space.items() if self._is_ours(name)}
        return params | {name: self._value(study, trial, name, ours[name]) for name in ours}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        self._raise_error_if_multi_objective(study)
        if self._is_ours(param_name):
            return self._value(study, trial, param_name, param_distribution)
        return self.independent_sampler.sample_independent(
            study, trial, param_name, param_distribution
        )

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        self.independent_sampler.after_trial(study, trial, state, values)
        with self._lock:
            self._belong_to(study)
            self._values.pop(trial.number, None)
            self._suggested.update(trial.params)
            if state is TrialState.COMPLETE and self._mirror is not None:
                self._suggested |= self._mirror.names
                self._say_if_useless(trial)
            if self._courier is not None and self._mirror is not None:
                if state in (TrialState.COMPLETE, TrialState.PRUNED):
                    self._ended[trial.number] = trial._trial_id
                    self._courier.send(lambda: self._due(study))
                self._courier.fetch(self._mirror.agent.federation)
        self._pass_on_complaints()

    # A query

    def _is_ours(self, name: str) -> bool:
        return self.federation is not None and name in self.federation.space.parameters

    def _value(
        self, study: optuna.Study, trial: FrozenTrial, name: str, distribution: BaseDistribution
    ) -> Any:
        """The value of one of the federation's parameters; the first in a trial is the query."""
        assert self.federation is not None
        parameter = self.federation.space.parameters[name]
        sentence = difference(name, distribution, parameter, clip=self.clip)
        if sentence is not None:
            raise FederationMismatch(sentence)
        with self._lock:
            self._belong_to(study)
            self._ranges[name] = distribution
            if trial.number not in self._values:
                self._values[trial.number] = self._query(study, trial)
            return fitted(self._values[trial.number][name], distribution)

    def _common_space(self, study: optuna.Study, *, cached: bool = True) -> SearchSpace:
        """The parameters that all complete trials have in common, and fedbo an axis for."""
        with self._lock:
            self._belong_to(study)
            common = self._common.calculate(study, use_cache=cached)
            if common != self._seen[0]:
                space = {name: given for name, given in common.items() if not given.single()}
                words = Translation(space)
                for sentence in words.refused:
                    self._say("refused", f"{sentence}; it is sampled independently", UserWarning)
                self._seen = common, {name: space[name] for name in words.parameters}
            return dict(self._seen[1])

    def _query(
        self, study: optuna.Study, trial: FrozenTrial, search_space: SearchSpace | None = None
    ) -> dict[str, Any]:
        """What the agent asks for in this trial."""
        with self._lock:
            mirror = self._followed(study, search_space, trial.number, cached=True)
            self._hear(study, mirror, trial.number)
            origin = mirror.ask(trial.number)
            record.write(study, trial, origin)
        self._pass_on_complaints()
        return mirror.words.outward(origin.params)

    def _hear(self, study: optuna.Study, mirror: Mirror, asking: int) -> None:
        """Receive what has arrived; the study's first query waits a moment for it."""
        if self._courier is None:
            return
        federation = mirror.agent.federation
        if not self._waited:
            self._waited = True
            self._courier.fetch(federation)
            self._courier.wait_for_first(_FIRST_NEWS)
        messages = self._courier.messages(federation)
        for sentence in mirror.hear(messages):
            self._say("message", f"a message was left out: {sentence}", ExchangeWarning)
        name = mirror.agent.name
        mine = max((m.sequence for m in messages if m.sender == name), default=0)
        if mine > mirror.scores:  # another worker's, maybe, of a trial that has ended meanwhile
            with contextlib.suppress(StudyChanged):
                mirror.follow(study._get_trials(deepcopy=False, use_cache=False), asking)
        if mine > mirror.scores:
            self._say(
                "namesake",
                f"{self.exchange} has a message of {name!r} that this study did not make: another "
                "study has that name, or had it. Peers hear that one, and not this, until this one "
                "has more scores: give it another name, or take the other's message back",
                ExchangeWarning,
            )

    # A message

    def _due(self, study: optuna.Study) -> Message | None:
        """The message to publish now that trials have ended; None if it is not time for one.

        The courier calls it, in his own thread: Optuna stores how a trial ended only after it has
        told the sampler, and no message may know more than the study does. In threads several end
        at once, and only the last has an errand; so all of them are waited for. One that ends
        meanwhile has an errand of its own.
        """
        with self._lock:
            ended = self._ended.copy() if self._belongs_to(study) else {}
        for _ in range(_LOOKS):
            if all(study._storage.get_trial(i).state.is_finished() for i in ended.values()):
                break
            time.sleep(_PAUSE)
        with self._lock:
            if not self._belongs_to(study):
                return None  # another study has the sampler
            trials = study._get_trials(deepcopy=False, use_cache=False)
            if not self._completes(trials, ended):
                return None
            known = record.identity(study)
            if known != self._identity:  # two workers introduced an agent, and the other's counts
                self._identity, self._mirror = known, None
            mirror = self._followed(study, self._search_space)
            return mirror.agent.message() if mirror.scores else None

    def _completes(self, trials: Sequence[FrozenTrial], ended: Collection[int]) -> bool:
        """Whether one of the trials that ended here is the last of ``every`` in the study.

        All workers count alike, in the order in which trials ended; so one of them publishes.
        A trial that is not stored yet counts the next time.
        """
        scored = [t for t in trials if t.state in (TrialState.COMPLETE, TrialState.PRUNED)]
        scored.sort(key=lambda t: (t.datetime_complete or datetime.min, t.number))
        last_ones = {t.number for t in scored[self.every - 1 :: self.every]}
        for trial in trials:
            if trial.number in ended and trial.state.is_finished():
                self._ended.pop(trial.number, None)
        return not last_ones.isdisjoint(ended)

    # The agent

    def _belong_to(self, study: optuna.Study) -> None:
        if not self._belongs_to(study):
            self._begin(study)

    def _belongs_to(self, study: optuna.Study) -> bool:
        storage, number = self._study or (None, None)
        return storage is study._storage and number == study._study_id

    def _followed(
        self,
        study: optuna.Study,
        search_space: SearchSpace | None,
        asking: int | None = None,
        *,
        cached: bool = False,
    ) -> Mirror:
        """The mirror, up to date with the study but for the trial that is ``asking``.

        What Optuna has ``cached`` is as old as the beginning of the trial: right for a query.
        """
        self._belong_to(study)
        trials = study._get_trials(deepcopy=False, use_cache=cached)
        mirror = self._mirror if search_space == self._search_space else None
        if mirror is not None and self.clip and mirror.within != self._within(trials):
            mirror = None
        if mirror is not None:
            try:
                mirror.follow(trials, asking)
            except StudyChanged:
                mirror = None
        if mirror is None:
            if self._identity is None:
                self._identity = self._introduced(study)
            within = self._within(trials)
            mirror = self._reflected(study, search_space, self._identity, within)
            mirror.follow(trials, asking)
            self._mirror, self._search_space = mirror, search_space
        if mirror.useless is not None:
            self._say_if_useless(mirror.useless)
        return mirror

    def _within(self, trials: Sequence[FrozenTrial]) -> dict[str, Parameter]:
        """The ranges that are narrower than the federation's, as far as they are known.

        They are what the objective suggested last: in this process, or in the study's last trial.
        """
        if self.federation is None or not self.clip:
            return {}
        space = self.federation.space
        last = next((trial.distributions for trial in reversed(trials) if trial.params), {})
        known = {name: given for name, given in last.items() if name in space.parameters}
        narrower = {}
        for name, given in (known | self._ranges).items():
            clips = difference(name, given, space.parameters[name]) is not None
            fits = difference(name, given, space.parameters[name], clip=True) is None
            if clips and fits and not given.single():
                narrower[name] = parameter_of(name, given)
        return narrower

    def _reflected(
        self,
        study: optuna.Study,
        search_space: SearchSpace | None,
        identity: record.Identity,
        within: dict[str, Parameter] | None = None,
    ) -> Mirror:
        """A new agent, in the federation that is given or in one made of the search space."""
        words = Translation(search_space or {})
        direction: Direction = "maximize" if study.direction.name == "MAXIMIZE" else "minimize"
        federation = self.federation
        if federation is None:
            space = Space(words.parameters, direction=direction)
            federation = Federation(space, kind=self._kind())
        elif federation.space.direction != direction:
            raise FederationMismatch(
                f"the study is to {direction} and its federation to {federation.space.direction}: "
                f"create a study with direction={federation.space.direction!r}, under another name "
                "if this one is in a storage, and turn the sign of the objective if need be"
            )
        # One secret for all federations of a study; in each of them other noise.
        secret = identity.entropy.encode() + federation.fingerprint
        agent = Agent(
            federation,
            self.policy,
            name=identity.name,
            seed=int.from_bytes(hashlib.sha256(secret).digest()[:16]),
            settings=self.settings,
            within=within,
        )
        return Mirror(agent, words, within or {})

    def _kind(self) -> Kind:
        """What messages are of, in a federation that is made for the policy."""
        kinds: tuple[Kind, ...] = getattr(self.policy, "kinds", ("weights",))
        return kinds[0]

    def _new_identity(self) -> record.Identity:
        """Who a study's agent would be. With a seed and a name, its secret is made of both."""
        name = f"agent-{secrets.token_hex(4)}" if self.name is None else self.name
        entropy = secrets.token_hex(16)
        if self.seed is not None:
            entropy = hashlib.sha256(f"{int(self.seed)} {self.name or ''}".encode()).hexdigest()[
                :32
            ]
        if self.federation is None:
            return record.Identity(name=name, entropy=entropy)
        fingerprint = str(self.federation.fingerprint)
        return record.Identity(
            name=name, entropy=entropy, federation=fingerprint, epoch=self._epoch
        )

    def _introduced(self, study: optuna.Study) -> record.Identity:
        """Who the study's agent is, from now on if not before."""
        known = record.introduce(study, self._new_identity())
        if self.name is not None and known.name != self.name:
            sentence = f"peers know this study as {known.name!r}, and {self.name!r} is not used"
            self._say("name", f"{sentence}: a study keeps its name", UserWarning)
        if self.federation is not None and self._epoch > known.epoch:
            known = record.advance(study, str(self.federation.fingerprint), self._epoch)
        return known

    @property
    def _epoch(self) -> int:
        return 0 if self.federation is None else self.federation.epoch

    # What people should know

    def _say_if_useless(self, trial: FrozenTrial) -> None:
        """That a trial has a value of which the agent can make nothing, or not all."""
        if self.federation is None:
            return  # its space is what trials have in common: some differ, and that is as it is
        space = self.federation.space
        try:
            place(trial, space, Translation({}), self._suggested)
        except ValueError as problem:
            self._say(
                "useless",
                f"trial {trial.number} has a value, but the federation cannot learn from it: "
                f"{problem}. Suggest all the federation's parameters, or make a federation of "
                "those that are suggested; the study's other trials like this one are left out "
                "without a word",
                UserWarning,
            )
            return
        missing = [name for name in space.names if name not in trial.params]
        if missing:
            self._say(
                "missing",
                f"trial {trial.number} did not suggest {missing[0]!r}: its score counts where that "
                "was asked for. That is right for a parameter that has no part in some trials",
                UserWarning,
            )

    def _pass_on_complaints(self) -> None:
        for sentence in [] if self._courier is None else self._courier.complaints():
            warnings.warn(sentence, ExchangeWarning, stacklevel=3)

    def _say(self, kind: str, sentence: str, category: type[Warning]) -> None:
        """A warning, once of each kind."""
        if kind not in self._said:
            self._said.add(kind)
            warnings.warn(sentence, category, stacklevel=3)


def _loaded(path: str | os.PathLike[str]) -> Federation:
    try:
        return Federation.load(path)
    except OSError as error:
        raise type(error)(
            f"the federation file {os.fspath(path)!r} cannot be read ({error.strerror}): give one "
            "that fedbo federation new or Federation.save wrote"
        ) from None
