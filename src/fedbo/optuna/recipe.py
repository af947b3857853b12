"""How a sampler makes the agent of a study: in which federation, with which name and secret."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

import optuna

from fedbo.agent import Agent
from fedbo.agent.settings import Settings
from fedbo.federation import Federation, FederationMismatch
from fedbo.message import Kind
from fedbo.optuna import record
from fedbo.optuna.distributions import SearchSpace, Translation, difference, parameter_of
from fedbo.optuna.mirror import Mirror
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
        """Refuse wrong arguments now instead of in the first trial."""
        if self.clip and (self.federation is None or self.federation.space.points is not None):
            raise ValueError(
                "clip=True is for a site whose range is inside that of its federation: it needs a "
                "federation, and one without listed points"
            )
        federation = self.federation or Federation({"x": Float(0, 1)}, kind=self._kind)
        Agent(federation, self.policy, name=self.name, seed=self.seed, settings=self.settings)

    def mirror(
        self,
        study: optuna.Study,
        search_space: SearchSpace,
        identity: record.Identity,
        within: dict[str, Parameter],
    ) -> Mirror:
        """Make a new agent, which keeps to the ranges ``within`` the federation's.

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

    def introduce(self, study: optuna.Study, notices: Notices) -> record.Identity:
        """Return the identity of the study's agent, and store it if there was none."""
        known = record.introduce(study, self.new_identity())
        if self.name is not None and known.name != self.name:
            notices.name_is_kept(known.name, self.name)
        if self.federation is not None and self.federation.epoch > known.epoch:
            known = record.advance(study, str(self.federation.fingerprint), self.federation.epoch)
        return known

    def new_identity(self) -> record.Identity:
        """Return the identity of an agent for a new study; a seed and a name decide its secret."""
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
        """Return those ranges that are inside the federation's and narrower than it."""
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

    def _federation(self, study: optuna.Study, words: Translation) -> Federation:
        """The one that was given, or one made from the parameters of the study."""
        direction: Direction = "maximize" if study.direction.name == "MAXIMIZE" else "minimize"
        if self.federation is None:
            return Federation(Space(words.parameters, direction=direction), kind=self._kind)
        agreed = self.federation.space.direction
        if agreed != direction:
            raise FederationMismatch(
                f"the direction of the study is {direction} and that of its federation {agreed}: "
                f"create a study with direction={agreed!r}, and change the sign of the objective "
                "if necessary. A study that is stored keeps its direction; give the new one "
                "another name"
            )
        return self.federation

    @property
    def _kind(self) -> Kind:
        """The kind of message that the policy can use."""
        kinds: tuple[Kind, ...] = getattr(self.policy, "kinds", ("weights",))
        return kinds[0]
