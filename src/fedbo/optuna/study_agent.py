"""The agent of one study: how a sampler makes it, and how it follows the study."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.search_space import IntersectionSearchSpace
from optuna.trial import FrozenTrial, TrialState

from fedbo.agent import Agent
from fedbo.agent.settings import Settings
from fedbo.federation import Federation, FederationMismatch
from fedbo.message import Kind, Message
from fedbo.optuna import private, record
from fedbo.optuna.distributions import SearchSpace, Translation, difference, parameter_of
from fedbo.optuna.mirror import Mirror, StudyChanged, locate
from fedbo.optuna.notices import Notices
from fedbo.policy import Policy
from fedbo.space import Direction, Float, Parameter, Space


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The arguments of a `FederatedSampler` that its agents are made with."""

    federation: Federation | None
    policy: Policy
    settings: Settings | None
    seed: int | None
    name: str | None
    clip: bool

    def __post_init__(self) -> None:
        """Refuse wrong arguments here, not in the first trial."""
        if self.clip and (self.federation is None or self.federation.space.points is not None):
            raise ValueError(
                "clip=True is for a site whose range is inside that of its federation: it needs a "
                "federation, and one without listed points"
            )
        federation = self.federation or Federation({"x": Float(0, 1)}, kind=self._kind)
        Agent(federation, self.policy, name=self.name, seed=self.seed, settings=self.settings)

    @property
    def _kind(self) -> Kind:
        """The kind of message that the policy can use."""
        kinds: tuple[Kind, ...] = getattr(self.policy, "kinds", ("weights",))
        return kinds[0]

    def mirror(
        self,
        study: optuna.Study,
        search_space: SearchSpace,
        identity: record.Identity,
        within: dict[str, Parameter],
    ) -> Mirror:
        """Make a new agent, whose queries stay in the narrower ranges ``within``.

        Without a federation, one is made from the search space.
        """
        words = Translation(search_space)
        federation = self._federation(study, words)
        # A study has one secret for all its federations, and different noise in each of them.
        secret = identity.entropy.encode() + federation.fingerprint
        agent = Agent(
            federation,
            self.policy,
            name=identity.name,
            seed=int.from_bytes(hashlib.sha256(secret).digest()[:16]),
            settings=self.settings,
            within=within,
        )
        return Mirror(agent, words)

    def _federation(self, study: optuna.Study, words: Translation) -> Federation:
        direction: Direction = "maximize" if study.direction.name == "MAXIMIZE" else "minimize"
        if self.federation is None:
            return Federation(Space(words.parameters, direction=direction), kind=self._kind)
        agreed = self.federation.space.direction
        if agreed != direction:
            raise FederationMismatch(
                f"the study has direction {direction}, but its federation has {agreed}: create a "
                f"study with direction={agreed!r}, and change the sign of the objective if "
                "necessary. A stored study keeps its direction, so give the new one another name"
            )
        return self.federation

    def new_identity(self) -> record.Identity:
        """Return the identity of an agent for a new study."""
        entropy = secrets.token_hex(16)
        if self.seed is not None:
            text = f"{int(self.seed)} {self.name or ''}"
            entropy = hashlib.sha256(text.encode()).hexdigest()[:32]
        return record.Identity(
            name=f"agent-{secrets.token_hex(4)}" if self.name is None else self.name,
            entropy=entropy,
            federation="" if self.federation is None else str(self.federation.fingerprint),
            epoch=0 if self.federation is None else self.federation.epoch,
        )

    def narrower(self, ranges: SearchSpace) -> dict[str, Parameter]:
        """Return the ranges that are narrower than the federation's, if clipping is allowed."""
        if self.federation is None or not self.clip:
            return {}
        theirs = self.federation.space.parameters
        return {
            name: parameter_of(name, given)
            for name, given in ranges.items()
            if name in theirs
            and not given.single()
            and difference(name, given, theirs[name]) is not None
            and difference(name, given, theirs[name], clip=True) is None
        }


class StudyAgent:
    """The agent of one study, and what is known about that study. One thread at a time uses it."""

    def __init__(self, study: optuna.Study, recipe: Recipe) -> None:
        self.study = study
        self.notices = Notices()
        self.mirror: Mirror | None = None  # until the first query, or the first look
        self.queries: dict[int, dict[str, Any]] = {}  # by the numbers of the running trials
        self.ranges: SearchSpace = {}  # that the objective gave for the federation's parameters
        self._recipe = recipe
        self._intersection = IntersectionSearchSpace()
        self._shared: SearchSpace = {}  # the parameters that all complete trials share
        self._tuned: SearchSpace = {}  # those of them that fedbo can tune
        self._identity: record.Identity | None = None
        self._made_from: tuple[SearchSpace, record.Identity, dict[str, Parameter]] | None = None
        self._suggested: set[str] = set()  # the parameters of trials that ended in this process

    @property
    def agent(self) -> Agent | None:
        """The agent, told everything that has finished; None before the study's first query."""
        if self.mirror is None:
            mirror = self.look() if record.identity(self.study) is not None else None
            return None if mirror is None else mirror.agent
        with contextlib.suppress(StudyChanged):  # the next query builds it anew
            self.mirror.follow(private.get_trials(self.study))
        return self.mirror.agent

    def common_space(self, *, cached: bool = True) -> SearchSpace:
        """Return the parameters that all complete trials share and that fedbo can tune."""
        shared = self._intersection.calculate(self.study, use_cache=cached)
        if shared != self._shared:
            words = Translation({n: given for n, given in shared.items() if not given.single()})
            for reason in words.refused:
                self.notices.warn("cannot tune", reason=reason)
            self._shared, self._tuned = shared, {name: shared[name] for name in words.parameters}
        return dict(self._tuned)

    def follow(
        self, search_space: SearchSpace, asking: int | None = None, *, cached: bool = False
    ) -> Mirror:
        """Bring the agent up to date with the study, except for the trial that is ``asking``.

        ``search_space`` is what is tuned if there is no federation. If ``cached``, trials may be as
        old as the beginning of the running trial.
        """
        trials = private.get_trials(self.study, cached=cached)
        if self._identity is None:
            self._identity = record.introduce(self.study, self._recipe.new_identity())
            name = self._recipe.name
            if name is not None and name != self._identity.name:
                self.notices.warn("name is kept", known=self._identity.name, given=name)
        return self._followed(search_space, self._identity, trials, asking)

    def look(self) -> Mirror | None:
        """Return the agent with all that the study knows, without changing the study.

        None if there is no federation, and no parameter that all complete trials share.
        """
        is_free = self._recipe.federation is None
        search_space = self.common_space(cached=False) if is_free else {}
        if is_free and not search_space:
            return None
        trials = private.get_trials(self.study)
        known = self._identity or record.identity(self.study)
        if known is not None:
            return self._followed(search_space, known, trials)
        within = self._narrower(trials)
        mirror = self._recipe.mirror(self.study, search_space, self._recipe.new_identity(), within)
        mirror.follow(trials)
        return mirror

    def _narrower(self, trials: Sequence[FrozenTrial]) -> dict[str, Parameter]:
        """Return the narrower ranges of the objective: in this process, or in the last trial."""
        last = next((trial.distributions for trial in reversed(trials) if trial.params), {})
        return self._recipe.narrower(last | self.ranges)

    def _followed(
        self,
        search_space: SearchSpace,
        identity: record.Identity,
        trials: Sequence[FrozenTrial],
        asking: int | None = None,
    ) -> Mirror:
        """Tell the agent of these trials. It is built anew if it is not made from the same."""
        made_from = search_space, identity, self._narrower(trials)
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
        mirror = self.look()
        return mirror.agent.message() if mirror is not None and mirror.scores else None

    def _warn_if_useless(self, trial: FrozenTrial) -> None:
        """Warn if the agent can learn nothing from a trial with a value, or only a part."""
        if self._recipe.federation is None:
            return  # its space is what trials share: it is normal that some have more
        space = self._recipe.federation.space
        try:
            locate(trial, space, Translation({}), self._suggested)
        except ValueError as problem:
            self.notices.warn("cannot learn", number=trial.number, reason=problem)
            return
        missing = [name for name in space.names if name not in trial.params]
        if missing:
            self.notices.warn("counts where asked", number=trial.number, name=missing[0])
