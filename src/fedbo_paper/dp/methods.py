"""The methods that are compared: each is a few settings.

A `Method` says how the agents of a federation are built (`federation`, `settings`, `policy`), what
every agent receives before each round (`relay`), and which privacy mechanisms it uses (`cost`
computes their ε). Together with the seed of a run it decides all numbers of the run. **To add a
method**, subclass `Method`, replace what differs, and add an entry to `comparison.CURVES`; the
table, the figure and the stored runs follow.

What the publication does not say was taken from its authors' code where that is public:

- Messages draw on the initial points too; length scale 0.01 and noise variance 1e-6, scores as they
  are. f_t is drawn from 100 fresh features, with a noise variance of at least 1e-5.
- TS and FTS start with 10 points of the whole box, FTS-DE with 10 points of the agent's own region.
  Here every method can start either way; the uniform numbers behind the points are the same.
- The authors' FTS is FTS-DE with a single region: its queries follow the mean of all messages, not
  one peer at random, as FTS was published. Both are here (`FTS`, and `Served` with ``parts=1``).

What is different here: functions are maximised by the library's search (theirs tries 1,000 random
points and climbs from 20 others), a full search for hyper-parameters is made when observations have
grown by a quarter and a local one otherwise, every 5 queries, and there are 60 rounds (their loop
hands out 61 aggregates, the last of which nobody uses).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np

from fedbo.agent import Agent, Settings
from fedbo.federation import Federation
from fedbo.message import Message
from fedbo.message.release import Release
from fedbo.policy import TS, Policy
from fedbo.privacy import Mechanism, SubsampledGaussian
from fedbo_paper.dp.policy import FollowPeer, FollowServer
from fedbo_paper.dp.regions import Regions, Weights
from fedbo_paper.dp.server import Aggregate, Mean, PrivateMean
from fedbo_paper.preset import PAPER, paper_federation
from fedbo_paper.problems.problems import Tasks

M = 100
_DRAW_FEATURES = 100
_NOISE_FLOOR = 1e-5


class Relay(Protocol):
    """What travels between agents: called once before each round."""

    def __call__(self, t: int, agents: Sequence[Agent]) -> Sequence[Message | Release]:
        """Return the messages that every agent receives before round t.

        Args:
            t: Number of the round, from 1.
            agents: All agents.
        """


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
            surrogate=msgspec.structs.replace(surrogate, fit=fit),
            draw_features=_DRAW_FEATURES,
            direct=False,
            initial_in_messages=True,
        )

    @abstractmethod
    def policy(self) -> Policy:
        """Return how an agent chooses its queries."""

    @abstractmethod
    def relay(self, federation: Federation, seed: int) -> Relay:
        """Return what carries messages in a run.

        Args:
            federation: What the agents agree on.
            seed: The seed of the relay's own randomness.
        """

    def mechanisms(self, rounds: int) -> Sequence[Mechanism] | None:
        """Return what is handed out in a run, as mechanisms of `fedbo.privacy`.

        Args:
            rounds: Number of rounds of the run.

        Returns:
            The mechanisms, none of them if nothing leaves an agent, or None without privacy.
        """
        return None


class Alone(Method, frozen=True, kw_only=True, tag="TS"):
    """TS: agents alone, by Thompson sampling.

    Args:
        name: Name in tables and files.
        starts: See `Method`.
    """

    def policy(self) -> Policy:
        return TS()

    def relay(self, federation: Federation, seed: int) -> Relay:
        return hear_nothing

    def mechanisms(self, rounds: int) -> Sequence[Mechanism] | None:
        return ()


class FTS(Method, frozen=True, kw_only=True, tag="FTS"):
    """FTS as published: a query follows the message of one peer, drawn at random.

    Args:
        name: Name in tables and files.
        starts: See `Method`.
    """

    def policy(self) -> Policy:
        return FollowPeer()

    def relay(self, federation: Federation, seed: int) -> Relay:
        return _everything


class Served(Method, frozen=True, kw_only=True, tag="served"):
    """FTS-DE and DP-FTS-DE: a server hands out one aggregate for each region.

    Args:
        name: Name in tables and files.
        starts: See `Method`.
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

    def relay(self, federation: Federation, seed: int) -> Relay:
        return Server(federation, self.parts, self.weights, self.aggregate, seed)

    def mechanisms(self, rounds: int) -> Sequence[Mechanism] | None:
        if not isinstance(self.aggregate, PrivateMean):
            return None
        z, q = self.aggregate.z, self.aggregate.q
        return (SubsampledGaussian(multiplier=z, rate=q, rounds=rounds),)


class Server:
    """The trusted server: it receives all messages, and hands out one aggregate for each region.

    Args:
        federation: What the agents agree on.
        parts: Parts of each dimension.
        weights: How agents weigh in each region.
        aggregate: From messages and weights to aggregates.
        seed: Seed of the noise and of the choice of messages.
    """

    def __init__(
        self, federation: Federation, parts: int, weights: Weights, aggregate: Aggregate, seed: int
    ) -> None:
        self.federation, self.weights, self.aggregate = federation, weights, aggregate
        self.regions = Regions(federation.space.dimensions, parts)
        self._rng = np.random.default_rng(seed)

    def __call__(self, t: int, agents: Sequence[Agent]) -> Sequence[Message]:
        messages = Agent.messages(agents)
        omega = np.array([message.omega for message in messages], dtype=np.float64)
        W = self.weights(t, self.regions.assigned(len(agents)), self.regions.count)
        return [
            Message.of_weights(
                aggregate,
                fingerprint=self.federation.fingerprint,
                epoch=self.federation.epoch,
                sender=f"region-{p}",
                sequence=t,
                t_n=sum(message.t_n for message in messages),
            )
            for p, aggregate in enumerate(self.aggregate(omega, W, self._rng))
        ]


def hear_nothing(t: int, agents: Sequence[Agent]) -> Sequence[Message]:
    """The `Relay` of agents that work alone."""
    return []


def _everything(t: int, agents: Sequence[Agent]) -> Sequence[Message]:
    return Agent.messages(agents)
