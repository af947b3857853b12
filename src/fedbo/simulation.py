"""Whole federations in one process: agents, their black boxes, and the messages between them.

`simulate` returns a `fedbo.table.Table` with one row for each trial:

=====================================  ===========================================================
column                                 meaning
=====================================  ===========================================================
``agent``                              the agent's name
``iteration``                          0 for the first trials, then from 1
``trial``, ``source``, ``peer``, ``t`` of the trial; ``peer`` is "" and ``t`` is 0 if it has none
``param_…``                            one column for each parameter
``score``, ``best``                    in the objective's units; the best of all trials so far
``simple_regret``                      the smallest regret of all trials so far
``cumulative_regret``                  the sum of regrets over the policy's queries in this run
``messages``                           number of messages that the agent has and has not used
``parameters_received``, ``…_sent``    numbers in all messages so far
``bytes_received``, ``bytes_sent``     size of all messages so far
=====================================  ===========================================================

A trial's regret is the difference between the best score that can be reached and its own score
without noise; NaN if one of them is not known. A failed trial has a score of NaN and no regret.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from fedbo.agent.agent import Agent
from fedbo.agent.trial import Trial
from fedbo.errors import FederationMismatch
from fedbo.federation.federation import Federation
from fedbo.message import Heard, Message, Release
from fedbo.privacy.budget import one_each
from fedbo.privacy.noise import SECRET, Simulated, Source
from fedbo.privacy.release import release
from fedbo.space.axis import Value
from fedbo.table import Cell, Table

TRAFFIC = ("parameters_received", "parameters_sent", "bytes_received", "bytes_sent")
_FAILURES = 100  # failed initial points after which an agent begins its iterations anyway


class Party(msgspec.Struct, kw_only=True):
    """An agent and its black box.

    Args:
        agent: The agent.
        objective: Returns the score of params, or None for a failed trial. A party without an
            objective (the default) only hands out messages.
        truth: The objective without its noise; default: the objective itself.
        optimum: The best value of ``truth``. Without it (the default), regrets are NaN.
    """

    agent: Agent
    objective: Callable[[dict[str, Value]], float | None] | None = None
    truth: Callable[[dict[str, Value]], float] | None = None
    optimum: float | None = None


def simulate(
    parties: Sequence[Party],
    iterations: int,
    *,
    every: int | None = 0,
    seed: int | None = None,
) -> Table:
    """Run a federation: first trials, then ``iterations`` queries of each active party.

    In a round of messages, every agent that has scores hands out one, and every active party
    receives those of all others. A party is active if it has an objective. If the federation has a
    privacy plan, a round makes one private release of all contributions, as long as there are
    releases left, and every active party receives that.

    An active party first makes as many trials as it wants initial points. If its policy ``begins``,
    as the default does, it hears the messages of the first round before them, too: those of parties
    that have scores already.

    Args:
        parties: The parties; their agents have the same federation and different names.
        iterations: Number of queries of each active party, after the first trials.
        every: Rounds take place before iterations 1, 1 + k, 1 + 2k, … if ``every`` is k > 0, once
            before iteration 1 if it is 0 (default), and never if it is None.
        seed: Seed of the noise of private releases; the agents have seeds of their own.

    >>> from fedbo import Federation, Float
    >>> agent = Agent(Federation({"x": Float(0, 1)}), seed=0)
    >>> party = Party(agent=agent, objective=lambda params: -abs(params["x"] - 0.3), optimum=0)
    >>> table = simulate([party], 10)
    >>> table.height, bool(table["simple_regret"][-1] < 0.1)
    (13, True)
    """
    _check(parties)
    agents = [party.agent for party in parties]
    releases = _Releases(agents[0].federation, seed)
    active = [_Run(party) for party in parties if party.objective is not None]

    def exchange(iteration: int, hearing: Sequence[_Run]) -> None:
        handed_out = releases.heard(iteration, Agent.messages(agents))
        for run in hearing:
            run.agent.receive(handed_out)

    newcomers = [run for run in active if run.agent.starting and run.agent.policy.begins]
    if newcomers and iterations and _is_due(1, every):
        exchange(1, newcomers)
    rows = [row for run in active for row in run.start()]
    for iteration in range(1, iterations + 1):
        if _is_due(iteration, every):
            exchange(iteration, active)
        rows += [run.step(iteration) for run in active]
    return Table.from_rows(_columns(agents[0]), rows)


class _Releases:
    """What a trusted party makes of the messages of a round, if the federation has such a party."""

    def __init__(self, federation: Federation, seed: int | None) -> None:
        self._federation = federation
        self._made: dict[int, Release] = {}  # by iteration
        self._source: Source = SECRET
        if seed is not None:
            entropy = np.random.SeedSequence(seed, spawn_key=tuple(b"releases"))
            self._source = Simulated(np.random.default_rng(entropy))

    def heard(self, iteration: int, messages: list[Message]) -> Sequence[Heard]:
        """Return what agents hear of these messages: all of them, or the round's one release."""
        plan, made = self._federation.privacy, self._made
        if plan is None:
            return messages
        if iteration not in made:  # else newcomers have heard it already
            counted = one_each(self._federation, messages)
            if not counted or len(made) == plan.releases:
                return []
            number, source = len(made) + 1, self._source
            made[iteration] = release(self._federation, counted, sequence=number, source=source)
        return [made[iteration]]


class _Run:
    """An active party while it runs."""

    def __init__(self, party: Party) -> None:
        self.party, self.agent = party, party.agent
        self.sign = self.agent.federation.space.sign
        self.best = self.simple_regret = math.nan
        self.cumulative_regret = math.nan if party.optimum is None else 0.0
        for trial in self.agent.trials:
            self._count(trial)

    def start(self) -> Iterator[list[Cell]]:
        failures = 0
        while failures < _FAILURES and self.agent.starting:
            yield self.step(0)
            failures += self.agent.trials[-1].state == "failed"

    def step(self, iteration: int) -> list[Cell]:
        assert self.party.objective is not None
        trial = self.agent.ask()
        try:
            trial = self.agent.tell(trial, self.party.objective(dict(trial.params)))
            regret = self._count(trial)
        except Exception as error:
            raise RuntimeError(
                f"agent {self.agent.name!r} stopped the simulation in iteration {iteration} at "
                f"trial {trial.number} with {trial.params}: {type(error).__name__}: {error}"
            ) from error
        if trial.t is not None and trial.state == "complete":
            self.cumulative_regret += regret
        return self._row(iteration, trial)

    def _count(self, trial: Trial) -> float:
        """Update the best score and the simple regret; return the regret of the trial."""
        if trial.score is None:
            return math.nan
        better = np.fmax if self.sign > 0 else np.fmin  # they ignore NaN
        self.best = float(better(self.best, trial.score))
        truth, optimum = self.party.truth, self.party.optimum
        if optimum is None:
            return math.nan
        value = trial.score if truth is None else float(truth(dict(trial.params)))
        regret = self.sign * (float(optimum) - value)
        self.simple_regret = float(np.fmin(self.simple_regret, regret))
        return regret

    def _row(self, iteration: int, trial: Trial) -> list[Cell]:
        params: list[Any] = [trial.params[name] for name in self.agent.federation.space.names]
        score = math.nan if trial.score is None else trial.score
        received, sent = self.agent.account.received, self.agent.account.sent
        return [
            *(self.agent.name, iteration, trial.number),
            *(trial.source, trial.peer or "", trial.t or 0),
            *params,
            *(score, self.best, self.simple_regret, self.cumulative_regret),
            *(self.agent.inbox.left, received.parameters, sent.parameters),
            *(received.nbytes, sent.nbytes),
        ]


def _columns(agent: Agent) -> list[str]:
    return [
        *("agent", "iteration", "trial", "source", "peer", "t"),
        *(f"param_{name}" for name in agent.federation.space.names),
        *("score", "best", "simple_regret", "cumulative_regret"),
        *("messages", *TRAFFIC),
    ]


def _is_due(iteration: int, every: int | None) -> bool:
    if every is None:
        return False
    return (iteration - 1) % every == 0 if every else iteration == 1


def _check(parties: Sequence[Party]) -> None:
    if not any(party.objective is not None for party in parties):
        raise ValueError(f"none of the {len(parties)} parties has an objective, expected one")
    first, names = parties[0].agent, set()
    for party in parties:
        name, federation = party.agent.name, party.agent.federation
        if name in names:
            raise ValueError(f"two agents are called {name!r}, expected different names")
        names.add(name)
        difference = first.federation.difference(federation)
        if difference is not None:
            agents = f"agents {first.name!r} and {name!r}"
            raise FederationMismatch(f"{agents} are of different federations: {difference}")
