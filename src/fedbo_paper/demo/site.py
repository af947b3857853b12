"""The sites of one repeat, in the order in which they arrive: each joins, tunes, leaves a message.

Each site has a state folder of its own, with its keys, its membership and its log.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbo.agent import Agent
from fedbo.exchange import Ledger
from fedbo.exchange.hub.exchange import HubExchange
from fedbo.exchange.hub.member import enrol
from fedbo.state import VARIABLE as STATE
from fedbo.trust import KeyPair
from fedbo_paper.demo.demo import MODES, Demo
from fedbo_paper.problems.digits import Images


class Repeat(NamedTuple):
    """What came of a repeat: scores (2, N, T), messages received, bytes of the largest message."""

    number: int
    scores: NDArray[np.float64]
    received: int
    nbytes: int


def play(demo: Demo, repeat: int, hub: str, invitation: str, folder: Path) -> Repeat:
    """Let the sites of a repeat arrive at the hub, one after the other."""
    images = demo.images()
    scores = np.empty((len(MODES), demo.agents, demo.trials))
    received, nbytes = 0, 0
    for site in demo.order(repeat):
        own = f"{repeat}-{demo.sites[site]}"
        os.environ |= {STATE: str(folder / own), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        # The seed makes the demo repeatable. Where messages must stay private, give none.
        name, seed = demo.sites[site], demo.agent_seed(repeat, site)
        alone = Agent(demo.federation(repeat), name=name, seed=seed)
        scores[MODES.index("alone"), site] = _tuned(alone, images[site], demo.trials)

        keys = KeyPair.load()
        exchange = HubExchange(enrol(hub, invitation, name, keys=keys).place)
        federation = exchange.member().federation()
        agent = Agent(federation, name=name, seed=seed, keys=keys)
        received += agent.receive(exchange.fetch(federation))
        scores[MODES.index("together"), site] = _tuned(agent, images[site], demo.trials)
        message = agent.message()
        Ledger().publish(exchange, message)
        nbytes = max(nbytes, message.nbytes)
    return Repeat(repeat, scores, received, nbytes)


def _tuned(agent: Agent, images: Images, trials: int) -> list[float]:
    """Run trials: the agent asks for params, the black box is evaluated, the agent learns."""
    scores = []
    for _ in range(trials):
        trial = agent.ask()
        scores.append(images(trial.params))
        agent.tell(trial, scores[-1])
    return scores
