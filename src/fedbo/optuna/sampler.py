"""A sampler for Optuna that asks an agent of a federation.

The way of a trial. The objective suggests its first parameter, and the sampler brings its agent up
to date with the study (`Mirror`): what has finished is told, what other workers run is pending.
Messages of peers that have arrived meanwhile are received. The agent is asked, the trial remembers
where its query came from (`record`), and the objective gets its values one by one. When it is done,
the agent is told, and its message given to the `Courier`, who never keeps a trial waiting.

All that must last is in the study. The agent is made of it again whenever need be.

With a federation its parameters are handed out by `sample_independent`, though they are chosen
together: only there does a sampler see the distribution that the objective suggests, and can refuse
one that is not the federation's before anything is evaluated. In `sample_relative`, Optuna would
take a narrower range for the same, and speak for itself where kinds differ.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import warnings
from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.trial import FrozenTrial, TrialState

from fedbo.agent import Agent
from fedbo.exchange import Exchange, ExchangeWarning, Releases, exchange_at
from fedbo.federation import Federation, FederationMismatch
from fedbo.message import Kind, Message
from fedbo.optuna import record
from fedbo.optuna.courier import Courier
from fedbo.optuna.distributions import Translation, difference, fitted
from fedbo.optuna.mirror import Mirror, StudyChanged, fault
from fedbo.policy import PTS, Policy
from fedbo.settings import Settings
from fedbo.space import Direction, Float, Space

SearchSpace = dict[str, BaseDistribution]

_FIRST_NEWS = 0.5  # seconds that the first query waits for peers' messages, once


class FederatedSampler(BaseSampler):
    """Tunes a study's parameters together, helped by the messages of peers.

    ``federation`` is a `fedbo.Federation` or the path of its file. Without one the sampler tunes
    the parameters that all trials have in common, and with an exchange it meets the studies whose
    parameters are the same. ``exchange`` is a `fedbo.exchange.Exchange` or its address, such as a
    folder; without one nobody hears of this study.

    Whenever the number of scores reaches a multiple of ``every``, a message is published.
    ``clip`` accepts an objective whose range is inside the federation's, and clips what is asked
    for to it. ``independent_sampler`` samples all other parameters, at random unless given.
    ``releases`` is the log of what is handed out. ``seed`` and ``name`` are those of the study's
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
        releases: Releases | None = None,
    ) -> None:
        if isinstance(federation, str | os.PathLike):
            federation = Federation.load(federation)
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
        self.independent_sampler = independent_sampler or _random(seed)
        if federation is None:
            federation = Federation({"x": Float(0, 1)}, kind=self._kind())
        # Wrong arguments are refused here, and not in the first trial.
        Agent(federation, self.policy, name=name, seed=seed, settings=settings)
        self._courier: Courier | None = None
        if exchange is not None:
            self._courier = Courier(exchange, Releases() if releases is None else releases)
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
        self._counted: int | None = None  # scores when a message was last thought of
        self._waited = False
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

    @property
    def agent(self) -> Agent | None:
        """The study's agent as it stands, say for `explain`; None before the first query."""
        return None if self._mirror is None else self._mirror.agent

    def preview(self, study: optuna.Study) -> Message | None:
        """The message as it would be published now, without publishing it; None before a score."""
        self._raise_error_if_multi_objective(study)
        with self._lock:
            space = None if self.federation is not None else self._common_space(study, cached=False)
            if self.federation is None and not space:
                return None
            mirror = self._followed(study, space)
            return mirror.agent.message() if mirror.scores else None

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
            if state is TrialState.COMPLETE:
                self._say_if_useless(trial)
            if state in (TrialState.COMPLETE, TrialState.PRUNED):
                self._publish(study, trial, state, values[0] if values else None)
            if self._courier is not None and self._mirror is not None:
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
            self._hear(mirror)
            origin = mirror.ask(trial.number)
            record.write(study, trial, origin)
        self._pass_on_complaints()
        return mirror.words.outward(origin.params)

    def _hear(self, mirror: Mirror) -> None:
        """Receive what has arrived; the study's first query waits a moment for it."""
        if self._courier is None:
            return
        federation = mirror.agent.federation
        if not self._waited:
            self._waited = True
            self._courier.fetch(federation)
            self._courier.wait_for_first(_FIRST_NEWS)
        for sentence in mirror.hear(self._courier.letters(federation)):
            self._say("message", f"a message was left out: {sentence}", ExchangeWarning)

    # A message

    def _publish(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, value: float | None
    ) -> None:
        """Tell the agent of this trial, and give its message to the courier if it is time to."""
        if self._courier is None or (self.federation is None and self._search_space is None):
            return
        mirror = self._followed(study, self._search_space, trial.number)
        before = mirror.scores if self._counted is None else self._counted
        mirror.settle(trial, state, value)
        self._counted = mirror.scores
        if self._counted // self.every == before // self.every:
            return
        known = record.identity(study)
        if known != self._identity:  # two workers gave the study an agent, and the other's counts
            self._identity, self._mirror = known, None
            mirror = self._followed(study, self._search_space, trial.number)
            mirror.settle(trial, state, value)
        try:
            self._courier.send(mirror.agent.message())
        except ValueError as error:
            self._say("unfit", f"nothing was published: {error}", ExchangeWarning)

    # The agent

    def _belong_to(self, study: optuna.Study) -> None:
        storage, number = self._study or (None, None)
        if storage is not study._storage or number != study._study_id:
            self._begin(study)

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
        if mirror is not None:
            try:
                mirror.follow(trials, asking)
            except StudyChanged:
                mirror = None
        if mirror is None:
            mirror = self._reflected(study, search_space)
            mirror.follow(trials, asking)
            self._mirror, self._search_space = mirror, search_space
        if mirror.useless is not None:
            self._say_if_useless(mirror.useless)
        return mirror

    def _reflected(self, study: optuna.Study, search_space: SearchSpace | None) -> Mirror:
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
                f"create the study with direction={federation.space.direction!r}, and turn the "
                "sign of the objective if need be"
            )
        if self._identity is None:
            self._identity = self._introduced(study, federation)
        # One secret for all federations of a study; in each of them other noise.
        secret = self._identity.entropy.encode() + federation.fingerprint
        seed = int.from_bytes(hashlib.sha256(secret).digest()[:16])
        name, settings = self._identity.name, self.settings
        return Mirror(
            Agent(federation, self.policy, name=name, seed=seed, settings=settings), words
        )

    def _kind(self) -> Kind:
        """What messages are of, in a federation that is made for the policy."""
        kinds: tuple[Kind, ...] = getattr(self.policy, "kinds", ("weights",))
        return kinds[0]

    def _introduced(self, study: optuna.Study, federation: Federation) -> record.Identity:
        """Who the study's agent is, from now on if not before."""
        name = f"agent-{secrets.token_hex(4)}" if self.name is None else self.name
        entropy = secrets.randbits(128) if self.seed is None else int(self.seed)
        fingerprint = str(federation.fingerprint)
        mine = record.Identity(name=name, entropy=f"{entropy:x}", federation=fingerprint)
        known = record.introduce(study, mine)
        if self.name is not None and known.name != self.name:
            sentence = f"peers know this study as {known.name!r}, and {self.name!r} is not used"
            self._say("name", f"{sentence}: a study keeps its name", UserWarning)
        return known

    # What people should know

    def _say_if_useless(self, trial: FrozenTrial) -> None:
        """That a trial has a value of which the agent can make nothing."""
        if self.federation is None:
            return  # its space is what trials have in common: some differ, and that is as it is
        problem = fault(trial, self.federation.space, Translation({}))
        if problem is not None:
            self._say(
                "useless",
                f"trial {trial.number} has a value, but the federation cannot learn from it: "
                f"{problem}. Suggest all the federation's parameters in every trial, or make a "
                "federation of those that are suggested; the study's other trials like this one "
                "are left out without a word",
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


def _random(seed: int | None) -> BaseSampler:
    return RandomSampler() if seed is None else _SeededRandomSampler(int(seed))


class _SeededRandomSampler(RandomSampler):
    """Random values that depend on the seed, the trial and the parameter alone.

    So neither two workers with one seed nor one that is resumed suggest the same values again.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    def reseed_rng(self) -> None:
        pass

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        key = hashlib.sha256(f"{self._seed} {trial.number} {param_name}".encode()).digest()
        once = RandomSampler(seed=int.from_bytes(key[:4]))
        return once.sample_independent(study, trial, param_name, param_distribution)
