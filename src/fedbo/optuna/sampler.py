"""A sampler for Optuna that asks the agent of a federation.

What happens in a trial:

1. The objective suggests its first parameter. The study's agent is told what has finished and what
   other workers are running (`StudyAgent`).
2. The agent receives the messages that peers have published (`Mail`), and is asked for a query. The
   trial stores where the query came from (`Asked`).
3. The objective gets the values one by one. When the trial is stored, a message about what the
   study now knows is published. A thread does so (`Courier`), and no trial waits for it.

All that must last is in the study, and the agent is rebuilt from it when necessary.

All parameters are chosen together, but `sample_independent` returns those of a federation one by
one. Only there does a sampler see the distribution that the objective suggests, so it can refuse a
wrong one before anything is evaluated.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from fedbo import caller
from fedbo.agent.agent import Agent
from fedbo.agent.settings import Settings
from fedbo.errors import FederationMismatch
from fedbo.exchange import Exchange, ExchangeWarning, Ledger, exchange_at
from fedbo.federation.federation import Federation
from fedbo.message import Message
from fedbo.optuna import private
from fedbo.optuna.distributions import SearchSpace, advice, middle, misfit
from fedbo.optuna.mail import Courier, Mail
from fedbo.optuna.study import SCORED, Options, StudyAgent, show_asked, write_asked
from fedbo.policy import Policy, TipsThenPool
from fedbo.space import Float
from fedbo.space.axis import Value
from fedbo.trust import Keyring

_NO_FEDERATION = (
    "there is an exchange, but no federation: sites that exchange messages agree on a federation "
    "file first. To make one from a study: fedbo federation new federation.toml --from-study "
    "STORAGE STUDY. Then FederatedSampler('federation.toml', exchange). At a hub, fedbo join has "
    "stored its file"
)


_WAIT = 5.0  # seconds for what is being sent
_TRIES, _WAIT_FOR_OTHERS = 8, 0.05  # to differ from other workers; seconds for each


class FederatedSampler(BaseSampler):
    """Tunes the parameters of a study together, helped by messages of peers.

    Args:
        federation: A `fedbo.Federation` or the path of its file. Without one, the study is alone,
            and the sampler tunes the parameters that all its trials share.
        exchange: A `fedbo.exchange.Exchange` or its address, such as a folder or a hub. Without
            one, the study neither sends nor receives messages.
        policy: How the agent chooses its queries. Default: `fedbo.TipsThenPool`.
        seed: Decides everything random in a new study. Anyone who knows it knows the noise in the
            study's messages. Default: drawn.
        name: The name of the study among peers, which it keeps. Default: the one that the study
            has, or drawn for a new study.
        settings: The settings of the agent. Default: those of `fedbo.Agent`.
        every: The number of scores after which the study publishes a message. Each one reveals a
            little more. Default: publish when it is worth it, which is when a trial is the best so
            far, or when there are twice as many scores as in the last message. In a federation
            with a privacy plan: publish after each ``least_trials`` scores.
        clip: Whether to accept an objective with narrower ranges than the federation's, and clip
            queries to them. Default: False.
        independent_sampler: Samples what the model does not: parameters that only some trials
            suggest, choices of the study's own if there are such parameters, and all of its own
            in the first trial. Default: Optuna's `TPESampler`, but the middle of each range in the
            first trial.
        constraints_func: Returns the constraints of a trial that has ended, of which none is above
            0 if the trial is feasible. With Optuna 5, ``trial.set_constraint`` is the better way.
        ledger: The log of all messages that are sent. Default: the user's log.

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
        every: int | None = None,
        clip: bool = False,
        independent_sampler: BaseSampler | None = None,
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        if isinstance(federation, str | os.PathLike):
            federation = Federation.load(federation)
        if isinstance(exchange, str | os.PathLike):
            exchange = exchange_at(exchange)
        if exchange is not None and not isinstance(exchange, Exchange):
            raise TypeError(f"exchange is {exchange!r}, expected an Exchange or its address")
        if every is not None and (not isinstance(every, int) or every < 1):
            raise ValueError(
                f"every is {every!r}, expected a whole number of trials, 1 or more, or None"
            )
        self.federation, self.exchange, self.name = federation, exchange, name
        self._every = every
        self._options = Options(
            federation=federation,
            policy=TipsThenPool() if policy is None else policy,
            settings=settings,
            seed=seed,
            name=name,
            clip=clip,
        )
        _check_options(self._options)
        usual = TPESampler(seed=None if seed is None else int(seed) % 2**32)
        self.independent_sampler = independent_sampler or usual
        self._begins_in_the_middle = federation is not None and independent_sampler is None
        if exchange is not None and federation is None:
            raise ValueError(_NO_FEDERATION)
        self._constraints_func = constraints_func
        self._ledger = ledger
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._current: StudyAgent | None = None
        self._mail: Mail | None = None

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_lock", "_current", "_mail")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    @property
    def agent(self) -> Agent | None:
        """The agent of the last study, told everything that has finished; None before a query.

        For a study that was loaded, see `agent_of`.
        """
        with self._lock:
            return None if self._current is None else self._current.agent

    def agent_of(self, study: optuna.Study) -> Agent | None:
        """Return the study's agent, told everything that has finished; None before its first query.

        The study is not changed.
        """
        _check_one_objective(study)
        with self._lock:
            return self._study_agent(study).agent

    def preview(self, study: optuna.Study) -> Message | None:
        """Return the message that would be published now; None before there is a score.

        The study is not changed.
        """
        _check_one_objective(study)
        with self._lock:
            agent = self._study_agent(study)
            if self._mail is not None and self._mail.standing is None:
                agent.speak_as(self._mail.sender())
            return agent.preview()

    def withdraw(self, study: optuna.Study) -> bool:
        """Withdraw the study's message from the exchange; return whether there was one.

        Peers forget it when they look at the exchange again. What they learnt from it stays in
        their trials. If the study goes on, it publishes another.

        Raises:
            ExchangeError: If another study has sent the message, or withdrawing failed.
            KeyRefused: If the study's private key is not on this machine.
        """
        with self._lock:
            self._study_agent(study)
        return self._mail is not None and self._mail.withdraw(_WAIT)

    def flush(self, seconds: float = _WAIT) -> None:
        """Send what the study knows, and wait for that; a program does so when it ends.

        Args:
            seconds: The longest time to wait.
        """
        if self._mail is not None:
            self._mail.flush(seconds)
        self._pass_on_complaints()

    # What Optuna calls

    def reseed_rng(self) -> None:
        """Reseed the independent sampler; the agent's randomness depends on the trial's number."""
        self.independent_sampler.reseed_rng()

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self.independent_sampler.before_trial(study, trial)
        with self._lock:
            agent = self._study_agent(study)
        if self._mail is not None and len(study.directions) == 1:
            agent.introduce()
            self._mail.begin()
            self._pass_on_complaints()

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> SearchSpace:
        with self._lock:
            own = self._study_agent(study).beside()
        if self.federation is None:
            return own
        theirs = self.independent_sampler.infer_relative_search_space(study, trial)
        return own | {name: range_ for name, range_ in theirs.items() if not self._is_ours(name)}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: SearchSpace
    ) -> dict[str, Any]:
        _check_one_objective(study)
        if self.federation is None:
            return self._query(study, trial, search_space) if search_space else {}
        with self._lock:
            own = self._study_agent(study).beside()
        ours = {name: search_space[name] for name in search_space if self._is_ours(name)}
        theirs = {n: range_ for n, range_ in search_space.items() if n not in ours and n not in own}
        params = self.independent_sampler.sample_relative(study, trial, theirs)
        params |= {name: self._value(study, trial, name, ours[name]) for name in ours}
        query = self._asked(study, trial) if own else {}
        wanted = [name for name in own if name in search_space and name in query]
        return params | {name: _fitted(query[name], own[name]) for name in wanted}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        _check_one_objective(study)
        if self._is_ours(param_name):
            return self._value(study, trial, param_name, param_distribution)
        if self._begins_in_the_middle and trial.number == 0:
            value = middle(param_name, param_distribution)  # beside a tip of peers
            if value is not None:
                return _fitted(value, param_distribution)
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
        try:
            if self._constraints_func is not None and state in SCORED:
                private.set_constraints(study, trial, self._constraints_func(trial))
        finally:
            with self._lock:
                self._study_agent(study).end(trial, state)
        if self._mail is not None:
            with self._lock:
                self._mail.end(trial, state)
        self._pass_on_complaints()

    # A query

    def _is_ours(self, name: str) -> bool:
        return self.federation is not None and name in self.federation.space.parameters

    def _value(
        self, study: optuna.Study, trial: FrozenTrial, name: str, distribution: BaseDistribution
    ) -> Any:
        """Return the value of a federation's parameter; the first one in a trial makes a query."""
        assert self.federation is not None
        parameter = self.federation.space.parameters[name]
        with self._lock:
            agent = self._study_agent(study)
            if agent.ranges.get(name) != distribution:
                if misfit(distribution, parameter, clip=self._options.clip):
                    raise FederationMismatch(advice(name, distribution, parameter))
                agent.ranges[name] = distribution
            return _fitted(self._asked(study, trial)[name], distribution)

    def _asked(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Any]:
        """Return the query of a trial, which is made once."""
        with self._lock:
            agent = self._study_agent(study)
            if trial.number not in agent.queries:
                agent.queries[trial.number] = self._query(study, trial, agent.beside())
            return agent.queries[trial.number]

    def _query(
        self, study: optuna.Study, trial: FrozenTrial, search_space: SearchSpace
    ) -> dict[str, Any]:
        with self._lock:
            agent = self._study_agent(study)
            mirror = agent.follow(search_space, trial.number, cached=True)
            if self._mail is not None:
                self._mail.receive(mirror)
            for _ in range(_TRIES):
                asked = mirror.ask(trial.number)
                write_asked(study, trial, asked)
                # Another worker may have asked meanwhile. Both see that, and the later one waits.
                others = mirror.collisions(trial.number, private.get_trials(study))
                if not others:
                    break
                time.sleep(_WAIT_FOR_OTHERS * sum(other < trial.number for other in others))
                mirror = agent.follow(search_space, trial.number)
        show_asked(study, trial, asked)
        return asked.params

    def _study_agent(self, study: optuna.Study) -> StudyAgent:
        """Return the agent of a study; only that of the last study is remembered."""
        if self._current is None or not private.is_same_study(self._current.study, study):
            agent = self._current = StudyAgent(study, self._options)
            if self.exchange is not None and self.federation is not None:
                courier = Courier(self.exchange, self._ledger or Ledger())
                keyring = self.exchange.keyring or Keyring.user()
                args = agent, courier, self.federation, keyring, self._lock
                self._mail = Mail(*args, every=self._every)
        self._current.study = study  # the same study, but each object has its own cache
        return self._current

    def _pass_on_complaints(self) -> None:
        for sentence in [] if self._mail is None else self._mail.courier.complaints():
            caller.warn(sentence, ExchangeWarning)


def _fitted(value: Value, distribution: BaseDistribution) -> Any:
    """Clip a federation's value to the range of the objective, or return the equal choice."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.to_external_repr(distribution.to_internal_repr(value))
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    assert isinstance(value, int | float)
    return min(max(value, distribution.low), distribution.high)


def _check_one_objective(study: optuna.Study) -> None:
    if len(study.directions) > 1:
        raise ValueError(
            f"study {study.study_name!r} has {len(study.directions)} objectives, but "
            "FederatedSampler tunes one: create a study with one direction"
        )


def _check_options(options: Options) -> None:
    """Refuse wrong arguments here, not in the first trial."""
    federation, seed, settings = options.federation, options.seed, options.settings
    if options.clip and (federation is None or federation.space.points is not None):
        raise ValueError(
            "clip=True is for a site whose range is inside that of its federation: it needs a "
            "federation, and one without listed points"
        )
    if not isinstance(options.policy, Policy):
        raise TypeError(f"policy is {options.policy!r}, expected a policy such as fedbo.FTS()")
    federation = federation or Federation({"x": Float(0, 1)}, kind=options.policy.kinds[0])
    Agent(federation, options.policy, name=options.name, seed=seed, settings=settings)
