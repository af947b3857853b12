"""What is played: ten sites arrive at a hub one after the other, and each tunes its own SVM.

A site *together* starts with the messages of all sites that came before it, tunes, and leaves a
message of its own. Its first trials are tips: points that those messages recommend. To compare, it
tunes *alone* too: from its own initial points, with the same seed and the same policy, which
without peers is expected improvement. The first site to arrive does the same in both modes.

Everything is repeated. Each repeat is a federation of its own, with other random numbers and
another order of arrival; the sites keep their images. In N repeats, each of N sites arrives once
at each place of the order.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec
import numpy as np

from fedbo.agent.settings import Settings
from fedbo.federation import Federation
from fedbo_paper.problems import digits

Mode = Literal["alone", "together"]
MODES: tuple[Mode, ...] = get_args(Mode)
N_INITIAL = Settings().n_initial


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a demo.

    Args:
        agents: Number of sites, each with one agent.
        trials: Trials of an agent in each mode and repeat, the initial points included.
        repeats: Number of repeats.
        seed: Seed of everything random: the sites' images, the order of arrival and all queries.

    >>> Demo(agents=1)
    Traceback (most recent call last):
    ValueError: agents is 1, expected 2 to 24
    """

    agents: int = 10
    trials: int = 20
    repeats: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        _check("agents", self.agents, 2, digits.MOST)
        _check("trials", self.trials, N_INITIAL + 1, 1000, f": {N_INITIAL} are initial points")
        _check("repeats", self.repeats, 1, 1000)
        _check("seed", self.seed, 0, 2**32 - 1)

    @property
    def sites(self) -> list[str]:
        """The names of the sites."""
        return [f"site-{n}" for n in range(1, self.agents + 1)]

    def images(self) -> list[digits.Images]:
        """Return the images of each site, its black box."""
        return digits.deal(self.agents, self.seed)

    def order(self, repeat: int) -> list[int]:
        """Return the sites of a repeat, from 0, in the order in which they arrive.

        >>> demo = Demo(agents=3, repeats=3)
        >>> [demo.order(repeat) for repeat in range(3)]
        [[2, 0, 1], [0, 1, 2], [1, 2, 0]]
        """
        block, turn = divmod(repeat, self.agents)
        circle = np.random.default_rng((self.seed, block)).permutation(self.agents)
        order: list[int] = np.roll(circle, -turn).tolist()
        return order

    def federation(self, repeat: int) -> Federation:
        """Return what the sites agree on in a repeat."""
        return Federation(digits.SPACE, seed=self._seed(repeat, self.agents))

    def agent_seed(self, repeat: int, site: int) -> int:
        """Return the seed of a site's agents in a repeat."""
        return self._seed(repeat, site)

    def _seed(self, *key: int) -> int:
        return int(np.random.SeedSequence((self.seed, *key)).generate_state(1)[0])


def _check(what: str, value: int, low: int, high: int, why: str = "") -> None:
    if not low <= value <= high:
        raise ValueError(f"{what} is {value}, expected {low} to {high}{why}")
