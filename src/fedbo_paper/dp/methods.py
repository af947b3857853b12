"""The methods that are compared: each is a few settings.

A `Method` says how the agents of a federation are built (`federation`, `settings`, `policy`), what
every agent receives before each round (`handed_out`), and what this costs (`epsilon`). Together
with the seed of a run it decides all numbers of the run. **To add a method**, subclass `Method`,
replace what differs, and add an entry to `comparison.CURVES`; the table, the figure and the stored
runs follow.

Each round of DP-FTS-DE is a Gaussian mechanism with Poisson subsampling, and a run composes all its
rounds (`server` has the argument). The publication takes δ = 29^−1.1, below 1/N for its 29 agents,
and composes by integer orders of Rényi differential privacy; here privacy loss distributions are
composed, which gives a smaller ε for the same runs.

What the publication does not say was taken from its authors' code where that is public:

- Messages draw on the initial points too; length scale 0.01 and noise variance 1e-6, scores as they
  are. f_t is drawn from 100 fresh features, with a noise variance of at least 1e-5.
- TS and FTS start with 10 points of the whole box, FTS-DE with 10 points of the agent's own region.
  Here every method can start either way; the uniform numbers behind the points are the same.
- The authors' FTS is FTS-DE with a single region: its queries follow the mean of all messages, not
  one peer at random, as FTS was published. Both are here (`FTS`, and `Served` with ``parts=1``).

What is different here: functions are maximised by the library's search (theirs tries 1,000 random
points and climbs from 20 others), and there are 60 rounds (their loop hands out 61 aggregates, the
last of which nobody uses).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np

from fedbo.agent import Agent, Settings
from fedbo.federation import Federation
from fedbo.message import Message
from fedbo.message.message import Weights as SentWeights
from fedbo.message.release import Release
from fedbo.policy import EI, TS, Policy, TipsThenPool
from fedbo.privacy import (
    Mechanism,
    Plan,
    Simulated,
    epsilon,
    mechanisms,
    release,
)
from fedbo.space import Float
from fedbo.space.axis import Array
from fedbo_paper.dp.policy import FollowPeer, FollowServer
from fedbo_paper.dp.server import Mean, PrivateMean, Regions, Weights
from fedbo_paper.preset import PAPER, paper_federation
from fedbo_paper.problems.problems import Tasks

M = 100
#: Initial points of each agent.
INITIAL = 10
#: The δ of the publication.
DELTA = 29.0**-1.1
_DRAW_FEATURES = 100
_NOISE_FLOOR = 1e-5


class SubsampledGaussian(msgspec.Struct, frozen=True):
    """Rounds of Gaussian noise, each for a random part of the members that stays secret.

    Args:
        multiplier: z, standard deviation over L2 sensitivity.
        rate: q, the probability that a round includes a member, independently of all others.
        rounds: T, the number of rounds.
    """

    multiplier: float
    rate: float
    rounds: int

    @property
    def pure(self) -> float:
        return 0.0

    @property
    def mu(self) -> float:
        return math.sqrt(self.rounds) / self.multiplier  # as if each round included everybody

    def distribution(self, library: Any, interval: float) -> Any:
        return library.pld.privacy_loss_distribution.from_gaussian_mechanism(
            self.multiplier,
            value_discretization_interval=interval,
            sampling_prob=self.rate,
            neighboring_relation=library.NeighboringRelation.REPLACE_SPECIAL,
        ).self_compose(self.rounds)


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """A way to run a federation, with the settings that all methods of the publication share.

    Args:
        name: Name in tables and files.
        starts: Parts of each dimension in the regions of the initial points: 2 halves, 1 is the
            whole box. The points of agent n lie in region n mod P.
    """

    name: str
    starts: int = 2

    def federation(self, tasks: Tasks, seed: int) -> Federation:
        """Return what the agents agree on."""
        return paper_federation(tasks.space, features=M, seed=seed % 2**63)

    def settings(self) -> Settings:
        """Return how an agent models its scores and maximises."""
        surrogate = PAPER.surrogate
        fit = msgspec.structs.replace(surrogate.fit, noise_floor=_NOISE_FLOOR)
        return msgspec.structs.replace(
            PAPER,
            n_initial=INITIAL,
            surrogate=msgspec.structs.replace(surrogate, fit=fit),
            draw_features=_DRAW_FEATURES,
            direct=False,
            initial_in_messages=True,
        )

    @abstractmethod
    def policy(self) -> Policy:
        """Return how an agent chooses its queries."""

    def handed_out(
        self, t: int, agents: Sequence[Agent], federation: Federation, rng: np.random.Generator
    ) -> Sequence[Message | Release]:
        """Return what every agent receives before round t = 1, 2, …: nothing by default.

        ``rng`` is the one of whoever hands it out, and the same in all rounds of a run.
        """
        return ()

    def mechanisms(self, rounds: int) -> Sequence[Mechanism] | None:
        """Return the mechanisms of a run: none if nothing leaves an agent, None without privacy."""
        return ()

    @cache  # noqa: B019  (methods are few, and frozen)
    def epsilon(self, rounds: int, delta: float = DELTA) -> float:
        """Return ε of a run: what it reveals about one agent's taking part.

        Raises:
            ModuleNotFoundError: The package dp-accounting is not installed.
        """
        steps = self.mechanisms(rounds)
        if steps is None:
            return math.inf
        return epsilon(steps, delta) if steps else 0.0


class Alone(Method, frozen=True, kw_only=True, tag="TS"):
    """TS: agents alone, by Thompson sampling."""

    def policy(self) -> Policy:
        return TS()


class FTS(Method, frozen=True, kw_only=True, tag="FTS"):
    """FTS as published: a query follows the message of one peer, drawn at random."""

    def policy(self) -> Policy:
        return FollowPeer()

    def handed_out(
        self, t: int, agents: Sequence[Agent], federation: Federation, rng: np.random.Generator
    ) -> Sequence[Message]:
        return Agent.messages(agents)

    def mechanisms(self, rounds: int) -> Sequence[Mechanism] | None:
        return None


class Served(Method, frozen=True, kw_only=True, tag="served"):
    """FTS-DE and DP-FTS-DE: a server hands out one aggregate for each region.

    Args:
        parts: Parts of each dimension in the server's regions.
        weights: How agents weigh in each region.
        aggregate: `Mean` without privacy, or `PrivateMean`.

    >>> Served(name="DP-FTS-DE", aggregate=PrivateMean(z=2.0)).aggregate
    PrivateMean(q=0.35, S=22.0, z=2.0)
    """

    parts: int = 2
    weights: Weights = Weights()
    aggregate: Mean | PrivateMean = Mean()

    def policy(self) -> Policy:
        return FollowServer(self.parts)

    def handed_out(
        self, t: int, agents: Sequence[Agent], federation: Federation, rng: np.random.Generator
    ) -> Sequence[Message]:
        messages = Agent.messages(agents)
        omega = np.array([_omega(message) for message in messages])
        regions = Regions(federation.space.dimensions, self.parts)
        W = self.weights(t, regions.assigned(len(agents)), regions.count)
        return [
            Message.of_weights(
                aggregate,
                fingerprint=federation.fingerprint,
                sender=f"region-{p}",
                sequence=t,
                t_n=sum(message.t_n for message in messages),
            )
            for p, aggregate in enumerate(self.aggregate(omega, W, rng))
        ]

    def mechanisms(self, rounds: int) -> Sequence[Mechanism] | None:
        if not isinstance(self.aggregate, PrivateMean):
            return None
        z, q = self.aggregate.z, self.aggregate.q
        return (SubsampledGaussian(multiplier=z, rate=q, rounds=rounds),)


# The library's own way


class Defaults(Method, frozen=True, kw_only=True):
    """A method with the library's settings in place of the paper's."""

    def federation(self, tasks: Tasks, seed: int) -> Federation:
        return Federation(tasks.space, seed=seed % 2**63)

    def settings(self) -> Settings:
        return Settings()


class ExpectedImprovement(Defaults, frozen=True, kw_only=True, tag="EI"):
    """EI: agents alone, by the library's expected improvement."""

    def policy(self) -> Policy:
        return EI()


class Released(Defaults, frozen=True, kw_only=True, tag="released"):
    """One private release before round 1, and `TipsThenPool`.

    After its initial points each member contributes once. Every agent hears the same 64 draws from
    the release, as if they were peers. No other message ever travels, so the release is all that a
    run costs. Agents start in their regions, like all others, so a member knows a quarter of the
    box: a harder start than points in the whole box. Half of ε pays for votes, which tell newcomers
    where to begin. Nobody here is a newcomer, so they are paid for and not used.

    `ExpectedImprovement` has the same settings and hears nothing. With ``is_empty`` members
    contribute nothing, and agents hear the noise alone: this shows what the machinery does by
    itself, since any message changes how `TipsThenPool` searches.

    Args:
        most: ε of the release, an upper bound: the accountant finds a little less.
        is_empty: Whether members contribute nothing, so that the release is noise alone.

    >>> method = Released(name="one-release")
    >>> [type(mechanism).__name__ for mechanism in method.mechanisms(rounds=60)]
    ['Laplace', 'Gaussian']
    """

    most: float = 2.0
    is_empty: bool = False

    @property
    def plan(self) -> Plan:
        """The privacy plan of the federation."""
        return Plan(epsilon=self.most, delta=DELTA)

    def federation(self, tasks: Tasks, seed: int) -> Federation:
        return Federation(tasks.space, seed=seed % 2**63, privacy=self.plan)

    def policy(self) -> Policy:
        return TipsThenPool()

    def handed_out(
        self, t: int, agents: Sequence[Agent], federation: Federation, rng: np.random.Generator
    ) -> Sequence[Release]:
        if t > 1:
            return ()
        contributions = [None if self.is_empty else agent.message() for agent in agents]
        trials = sum(len(agent.trials) for agent in agents)
        # The noise is seeded, so that a run can be repeated. Such noise protects nobody: a real
        # release takes the system's secret randomness, which is the default.
        source = Simulated(int(rng.integers(2**32)))
        return [release(federation, contributions, trials=trials, source=source)]

    def mechanisms(self, rounds: int) -> Sequence[Mechanism] | None:
        if self.is_empty:
            return ()
        # What a release costs depends neither on its space nor on what is in it.
        line = Federation({"x": Float(0, 1)}, privacy=self.plan)
        return mechanisms(release(line, [None], source=Simulated(0)))


def _omega(message: Message) -> Array:
    """Return the draw in a message of a `paper_federation`."""
    assert isinstance(message.body, SentWeights)
    return message.body.omega.astype(np.float64)
