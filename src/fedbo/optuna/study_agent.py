"""The agent of one study, kept up to date with it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import optuna
from optuna.search_space import IntersectionSearchSpace
from optuna.trial import FrozenTrial, TrialState

from fedbo.agent import Agent
from fedbo.message import Message
from fedbo.optuna import private, record
from fedbo.optuna.distributions import SearchSpace, Translation
from fedbo.optuna.mirror import Mirror, locate
from fedbo.optuna.notices import Notices
from fedbo.optuna.recipe import Recipe
from fedbo.optuna.scores import StudyChanged
from fedbo.space import Parameter


class StudyAgent:
    """Knows one study: its identity, the parameters that its trials share, its agent.

    Several threads may use it, but only one at a time.
    """

    def __init__(self, study: optuna.Study, recipe: Recipe) -> None:
        self.study = study
        self.notices = Notices()
        self.mirror: Mirror | None = None  # until the first query
        self.queries: dict[int, dict[str, Any]] = {}  # by the numbers of the running trials
        self.ranges: SearchSpace = {}  # in which the objective suggests the federation's parameters
        self._recipe = recipe
        self._common = _CommonSpace()
        self._identity: record.Identity | None = None
        self._made_from: tuple[SearchSpace, record.Identity, dict[str, Parameter]] | None = None
        self._suggested: set[str] = set()  # parameters, by trials that ended in this process

    @property
    def agent(self) -> Agent | None:
        """The agent, told everything that has finished; None before the first query."""
        if self.mirror is None:
            return None
        with contextlib.suppress(StudyChanged):  # the next query builds it anew
            self.mirror.follow(private.get_trials(self.study))
        return self.mirror.agent

    def common_space(self, *, cached: bool = True) -> SearchSpace:
        """Return the parameters that all complete trials share and that fedbo can tune."""
        return self._common.calculate(self.study, self.notices, cached=cached)

    def follow(
        self, search_space: SearchSpace, asking: int | None = None, *, cached: bool = False
    ) -> Mirror:
        """Bring the agent up to date with the study, except for the trial that is ``asking``.

        ``search_space`` is what is tuned if there is no federation. If ``cached``, trials may be as
        old as the beginning of the running trial.
        """
        trials = private.get_trials(self.study, cached=cached)
        if self._identity is None:
            self._identity = self._recipe.introduce(self.study, self.notices)
        made_from = search_space, self._identity, self._within(trials)
        mirror = self.mirror if made_from == self._made_from else None
        if mirror is not None:
            try:
                mirror.follow(trials, asking)
            except StudyChanged:
                mirror = None
        if mirror is None:
            mirror = self._recipe.mirror(self.study, *made_from)
            mirror.follow(trials, asking)
            self.mirror, self._made_from = mirror, made_from
        if mirror.useless is not None:
            self._warn_if_useless(mirror.useless)
        return mirror

    def end(self, trial: FrozenTrial, state: TrialState) -> None:
        """Note that a trial has ended, and warn if the agent cannot learn from it."""
        self.queries.pop(trial.number, None)
        self._suggested.update(trial.params)
        if state is TrialState.COMPLETE and self.mirror is not None:
            self._suggested |= self.mirror.names
            self._warn_if_useless(trial)

    def message(self) -> Message | None:
        """Return the message to publish; None before there is a score."""
        assert self._made_from is not None
        self._identity = record.identity(self.study)  # another worker's may count instead
        mirror = self.follow(self._made_from[0])
        return mirror.agent.message() if mirror.scores else None

    def preview(self) -> Message | None:
        """Return the message that would be published now, without changing the study."""
        is_free = self._recipe.federation is None
        search_space = self.common_space(cached=False) if is_free else {}
        if is_free and not search_space:
            return None
        known = self._identity or record.identity(self.study)
        new = self._recipe.new_identity()
        if known is not None and new.epoch <= known.epoch:
            mirror = self.follow(search_space)
        else:
            mirror = self._recipe.mirror(self.study, search_space, known or new, {})
            mirror.follow(private.get_trials(self.study))
        return mirror.agent.message() if mirror.scores else None

    def _within(self, trials: Sequence[FrozenTrial]) -> dict[str, Parameter]:
        """The narrower ranges of the objective: in this process, or else in the last trial."""
        last = next((trial.distributions for trial in reversed(trials) if trial.params), {})
        return self._recipe.narrower(last | self.ranges)

    def _warn_if_useless(self, trial: FrozenTrial) -> None:
        """Warn if the agent cannot learn from a trial with a value, or only in part."""
        if self._recipe.federation is None:
            return  # its space is what trials share: it is normal that some have more
        space = self._recipe.federation.space
        try:
            locate(trial, space, Translation({}), self._suggested)
        except ValueError as problem:
            self.notices.cannot_learn(trial, problem)
            return
        missing = [name for name in space.names if name not in trial.params]
        if missing:
            self.notices.counts_where_asked(trial, missing[0])


class _CommonSpace:
    """The parameters that all complete trials share and that fedbo can tune."""

    def __init__(self) -> None:
        self._intersection = IntersectionSearchSpace()
        self._shared: SearchSpace = {}
        self._tuned: SearchSpace = {}

    def calculate(self, study: optuna.Study, notices: Notices, *, cached: bool) -> SearchSpace:
        shared = self._intersection.calculate(study, use_cache=cached)
        if shared != self._shared:
            words = Translation({n: given for n, given in shared.items() if not given.single()})
            for reason in words.refused:
                notices.cannot_tune(reason)
            self._shared, self._tuned = shared, {name: shared[name] for name in words.parameters}
        return dict(self._tuned)
