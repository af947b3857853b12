"""One private release in place of sixty rounds of aggregates, and what it is judged against.

=======  ======================================================================  ======
symbol   meaning                                                                 shape
=======  ======================================================================  ======
N        members: all agents of the run                                          scalar
nu       the mean of a member's belief about the weights of the shared features  (M,)
ε, δ     what the release may cost a member                                      scalars
=======  ======================================================================  ======

After its initial points, each member contributes once: the shape of ν, and the cell of its best
point (`fedbo.Agent.message`). A trusted party publishes one release before round 1. Every agent
hears the same 64 draws from it, as if they were peers, and queries by `TipsThenPool`. No other
message ever travels, so the release is all that a run costs.

Everything here has the library's own settings: its length scale, standardised scores and noise in
features, its model of the scores, and its search for queries. So the difference to TS is one of two
things, of these settings and of the release. `ExpectedImprovement` has the settings and hears
nothing. With ``is_empty`` members contribute nothing at all, and agents hear the noise alone: this
shows what the machinery does by itself, since any message changes how `TipsThenPool` searches.

Agents start in their regions, like TS and all other curves of the figure, so that all curves begin
at the same value and differences are paired. A member then knows a quarter of the box, and its
contribution says little about the rest: a harder start than points in the whole box.

**What the votes are for.** Half of ε pays for them, and they tell newcomers where to begin. Nobody
here is a newcomer, so the votes are paid for and not used.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedbo.agent import Agent, Settings
from fedbo.federation import Federation
from fedbo.policy import EI, Policy, TipsThenPool
from fedbo.privacy import Mechanism, Plan, Release, Simulated, mechanisms, release
from fedbo.space import Float
from fedbo_paper.dp.methods import Method, Relay, hear_nothing
from fedbo_paper.problems.problems import Tasks

#: The δ of the publication.
DELTA = 29.0**-1.1


class Defaults(Method, frozen=True, kw_only=True):
    """A method with the library's settings in place of the paper's.

    Args:
        name: Name in tables and files.
        starts: See `Method`.
    """

    def federation(self, tasks: Tasks, seed: int) -> Federation:
        return Federation(tasks.space, seed=seed % 2**63)

    def settings(self) -> Settings:
        return Settings()


class ExpectedImprovement(Defaults, frozen=True, kw_only=True, tag="EI"):
    """EI: agents alone, by the library's expected improvement.

    Args:
        name: Name in tables and files.
        starts: See `Method`.
    """

    def policy(self) -> Policy:
        return EI()

    def relay(self, federation: Federation, seed: int) -> Relay:
        return hear_nothing

    def mechanisms(self, rounds: int) -> Sequence[Mechanism] | None:
        return ()


class Released(Defaults, frozen=True, kw_only=True, tag="released"):
    """One private release before round 1, and `TipsThenPool`.

    Args:
        name: Name in tables and files.
        starts: See `Method`.
        epsilon: ε of the release, an upper bound: the accountant finds a little less.
        delta: δ of the release.
        is_empty: Whether members contribute nothing, so that the release is noise alone.

    >>> method = Released(name="one-release")
    >>> [type(mechanism).__name__ for mechanism in method.mechanisms(rounds=60)]
    ['Laplace', 'Gaussian']
    """

    epsilon: float = 2.0
    delta: float = DELTA
    is_empty: bool = False

    @property
    def plan(self) -> Plan:
        """The privacy plan of the federation."""
        return Plan(epsilon=self.epsilon, delta=self.delta)

    def federation(self, tasks: Tasks, seed: int) -> Federation:
        return Federation(tasks.space, seed=seed % 2**63, privacy=self.plan)

    def policy(self) -> Policy:
        return TipsThenPool()

    def relay(self, federation: Federation, seed: int) -> Relay:
        return OneRelease(federation, self, seed)

    def mechanisms(self, rounds: int) -> Sequence[Mechanism] | None:
        if self.is_empty:
            return ()
        # What a release costs depends neither on its space nor on what is in it.
        line = Federation({"x": Float(0, 1)}, privacy=self.plan)
        return mechanisms(release(line, [None], source=Simulated(0)))


class OneRelease:
    """The trusted party: it hears every member once, before round 1.

    The noise comes from a seed, so that a run can be repeated and resumed. Such noise protects
    nobody: whoever knows the seed can remove it. A real release takes its noise from the system's
    secret randomness, which is the default of `fedbo.privacy.release`.

    Args:
        federation: What the agents agree on, with its privacy plan.
        method: Says whether members contribute anything.
        seed: Seed of the noise.
    """

    def __init__(self, federation: Federation, method: Released, seed: int) -> None:
        self.federation, self.method, self.seed = federation, method, seed

    def __call__(self, t: int, agents: Sequence[Agent]) -> Sequence[Release]:
        if t > 1:
            return []
        is_empty = self.method.is_empty
        published = release(
            self.federation,
            [None if is_empty else agent.message() for agent in agents],
            trials=sum(len(agent.trials) for agent in agents),
            source=Simulated(self.seed),
        )
        return [published]
