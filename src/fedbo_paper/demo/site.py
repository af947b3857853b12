"""One site of the demo, a process of its own: it joins, tunes its black box, leaves a message.

The demo starts it with a `Start` as its argument and its own state folder (``FEDBO_STATE``). Then
each line of standard input is a `Turn`, and each line of standard output a `Report`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from itertools import chain

import msgspec

from fedbo.agent import Agent
from fedbo.agent.trial import Trial
from fedbo.exchange import Ledger, Progress
from fedbo.exchange.hub.exchange import HubExchange
from fedbo.exchange.hub.member import enrol
from fedbo.identity import KeyPair
from fedbo.space.axis import Value
from fedbo_paper.demo.demo import Demo, Mode

Objective = Callable[[dict[str, Value]], float]


class Start(msgspec.Struct, frozen=True):
    """What a site is told at its start: the demo, and its own number from 0."""

    demo: Demo
    site: int


class Turn(msgspec.Struct, frozen=True):
    """It is the site's turn to arrive in a repeat; the invitation is to its federation."""

    repeat: int
    hub: str
    invitation: str


class Tried(msgspec.Struct, frozen=True, tag=True):
    """A trial was run; ``trial`` counts from 1 in each mode and repeat."""

    repeat: int
    mode: Mode
    trial: int
    params: dict[str, Value]
    score: float
    source: str


class Left(msgspec.Struct, frozen=True, tag=True):
    """The site left its message of ``nbytes``, and is done with the repeat."""

    repeat: int
    received: int
    nbytes: int


Report = Tried | Left


class Site:
    """A site with its own black box."""

    def __init__(self, start: Start) -> None:
        self.demo, self.number, self.name = start.demo, start.site, start.demo.sites[start.site]
        self.objective: Objective = start.demo.images()[start.site]
        # Both are in the state folder of this site, and made when they are first needed.
        self.keys, self.ledger = KeyPair.load(), Ledger()

    def together(self, turn: Turn) -> Iterator[Report]:
        """Join the federation, tune with the messages that are there, and leave one."""
        membership = enrol(turn.hub, turn.invitation, self.name, self.keys)
        exchange = HubExchange(membership.place)
        federation = exchange.member().federation()
        agent = Agent(federation, name=self.name, seed=self._seed(turn), keys=self.keys)
        received = agent.receive(exchange.fetch(federation))
        for trial in tune(agent, self.objective, self.demo.trials):
            yield _tried(turn, "together", trial)
        message = agent.message()
        best = None if agent.best is None else agent.best.score
        progress = Progress(len(agent.trials), best=best)  # which a site shows only if it wants
        self.ledger.publish(exchange, message, progress=progress)
        yield Left(turn.repeat, received, len(message.encode()))

    def alone(self, turn: Turn) -> Iterator[Report]:
        """Tune without peers: the same policy is expected improvement then."""
        federation = self.demo.federation(turn.repeat)
        agent = Agent(federation, name=self.name, seed=self._seed(turn))
        for trial in tune(agent, self.objective, self.demo.trials):
            yield _tried(turn, "alone", trial)

    def _seed(self, turn: Turn) -> int:
        """The seed makes the demo repeatable. Where messages must stay private, give none."""
        return self.demo.agent_seed(turn.repeat, self.number)


def tune(agent: Agent, objective: Objective, trials: int) -> Iterator[Trial]:
    """Run trials: the agent asks for params, the black box is evaluated, the agent learns."""
    for _ in range(trials):
        trial = agent.ask()
        yield agent.tell(trial, objective(trial.params))


def _tried(turn: Turn, mode: Mode, trial: Trial) -> Tried:
    assert trial.score is not None
    return Tried(turn.repeat, mode, trial.number + 1, trial.params, trial.score, trial.source)


def main() -> None:
    """Take part whenever it is this site's turn, until there are no more turns."""
    with os.fdopen(os.dup(1), "wb", buffering=0) as reports:
        os.dup2(2, 1)  # what libraries print is no report
        site = Site(msgspec.json.decode(sys.argv[1], type=Start))
        for line in sys.stdin.buffer:
            turn = msgspec.json.decode(line, type=Turn)
            for report in chain(site.alone(turn), site.together(turn)):
                reports.write(msgspec.json.encode(report) + b"\n")


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # the demo is over
        os._exit(1)
