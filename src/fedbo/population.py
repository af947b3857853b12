"""Populations: agents of which nothing is kept but their messages, a million if need be.

======  ====================================================================  ============
symbol  meaning                                                               shape
======  ====================================================================  ============
N       number of agents                                                      scalar
X, y    points of the unit cube and scores of n agents with t trials each     (n, t, D), (n, t)
levels  means of the compact messages, in steps of their scales               (N, k)
scales  these steps                                                           (N,)
counts  how many trials are in each public cell, as messages count them       (N, c)
t_n     number of trials                                                      (N,)
sizes   standard deviation of ψᵀ(levels) over the space                       (N,)
tips    for each agent, 1 if it names a tip, and the number of the tip as     (N, 1 + b)
        bytes
======  ====================================================================  ============

A `Population` is made from histories, in batches, so that memory is needed for one batch and for
all messages: about 120 bytes an agent. The messages are those that `fedbo.Agent` would hand out,
with noise of their own, and are handed to agents as ordinary messages. Only the tips differ. An
agent fits a GP, and names its trial with the highest mean. Here the mean is that of the regression
in the shared features, which the message is made from anyway.

A target need not hear everybody: no policy compares more than `MOST` peers. Which of them it hears
is decided by a function such as `uniform` or `alike`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbo.federation import Federation
from fedbo.message import Message
from fedbo.model.kernel import one_thread
from fedbo.model.summaries import Summaries
from fedbo.model.summary import quantise, saturated
from fedbo.model.surrogate import standardised

#: Messages that a target hears at most, as from a hub.
MOST = 1024

_TOGETHER = 1024  # agents computed at a time, so that their features stay in the cache
_BLOCK = 65_536  # messages compared at a time
_COLUMNS = ("levels", "scales", "counts", "t_n", "sizes", "tips")

Rows = NDArray[np.intp]


class Population:
    """The compact messages of many agents. Make one with `from_histories`.

    Args:
        federation: What the agents agree on; its kind is "compact".
        columns: The arrays levels, scales, counts, t_n, sizes and tips, one row for each agent.
    """

    def __init__(self, federation: Federation, columns: Sequence[NDArray[Any]]) -> None:
        self.federation = federation
        self.levels, self.scales, self.counts, self.t_n, self.sizes, self.tips = columns

    @classmethod
    def from_histories(
        cls,
        federation: Federation,
        histories: Iterable[tuple[NDArray[Any], NDArray[Any]]],
        *,
        seed: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Population:
        """Make the messages of agents from their trials, batch by batch.

        Args:
            federation: What the agents agree on; its kind must be "compact".
            histories: Batches of X (n, t, D) in the unit cube, and y (n, t) in the objective's
                units. The agents of a batch have equally many trials. A generator keeps memory
                small. If X is float32, features are computed in float32, in half the time.
            seed: Seed of the noise in the messages.
            progress: Called after each batch, with the number of agents so far.

        >>> from fedbo import Float
        >>> federation = Federation({"x": Float(0, 1)})
        >>> X = np.random.default_rng(0).random((5000, 10, 1))
        >>> histories = [(X, -np.abs(X[:, :, 0] - 0.3))]
        >>> population = Population.from_histories(federation, histories, seed=0)
        >>> len(population), population.messages([4321])[0].sender
        (5000, 'agent-4321')
        """
        _check_federation(federation)
        rng, parts, done = np.random.default_rng(seed), [], 0
        phi, B = federation.phi, federation.basis.vectors
        summaries = Summaries(phi, B, federation.cell_features, federation.noise_variance)
        for X, y in histories:
            _check_batch(federation, X, y)
            with one_thread():
                parts += [
                    _messages(federation, summaries, X[i:j], y[i:j], rng)
                    for i in range(0, len(X), _TOGETHER)
                    for j in (i + _TOGETHER,)
                ]
            done += len(X)
            if progress is not None:
                progress(done)
        if not parts:
            raise ValueError("histories is empty, expected one batch of agents or more")
        return cls(federation, [np.concatenate(column) for column in zip(*parts, strict=True)])

    def __len__(self) -> int:
        return len(self.levels)

    def __repr__(self) -> str:
        return f"Population({len(self):,} agents, {self.nbytes / 1e6:.1f} MB)"

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(getattr(self, name).nbytes for name in _COLUMNS)

    def first(self, n: int) -> Population:
        """Return the population of the first n agents, without a copy.

        Args:
            n: Number of agents, 1 to N.
        """
        if not 1 <= n <= len(self):
            raise ValueError(f"n is {n}, expected 1 to {len(self)} agents")
        return Population(self.federation, [getattr(self, name)[:n] for name in _COLUMNS])

    def sender(self, row: int) -> str:
        """Return the name of an agent.

        Args:
            row: Which agent, 0 to N − 1.
        """
        return f"agent-{row}"

    def messages(self, rows: Iterable[int]) -> list[Message]:
        """Return the messages of these agents.

        Args:
            rows: Which agents, 0 to N − 1.
        """
        federation = self.federation
        return [
            Message.of_compact(
                self.levels[row],
                float(self.scales[row]),
                self.counts[row],
                self.tips[row, 1:].tobytes() if self.tips[row, 0] else b"",
                fingerprint=federation.fingerprint,
                sender=self.sender(row),
                sequence=int(self.t_n[row]),
                t_n=int(self.t_n[row]),
            )
            for row in rows
        ]

    def likeness(self, message: Message) -> NDArray[np.float32]:
        """Return the correlation over the space of each agent's mean function with another, (N,).

        Args:
            message: The message with the other function, of the same federation.
        """
        z, lam = message.nu.astype(np.float64), self.federation.basis.lam
        size = float(self.federation.basis.size(z[None])[0])
        weights = (z * lam / (size or 1.0)).astype(np.float32)
        found = np.empty(len(self), dtype=np.float32)
        with one_thread():
            for i in range(0, len(self), _BLOCK):
                found[i : i + _BLOCK] = self.levels[i : i + _BLOCK].astype(np.float32) @ weights
        found /= np.where(self.sizes > 0.0, self.sizes, 1.0)
        return found


#: Chooses the agents of a population that a target hears, at most `MOST`. It is given the target's
#: own message, None if it has no score yet, and a generator that starts anew in each round.
Hear = Callable[[Population, Message | None, np.random.Generator], Rows]


def uniform(population: Population, own: Message | None, rng: np.random.Generator) -> Rows:
    """Choose at random, the same agents in each round.

    Args:
        population: The agents to choose from.
        own: The target's message, which does not matter here.
        rng: Chooses.
    """
    n = len(population)
    return np.arange(n) if n <= MOST else np.sort(rng.choice(n, MOST, replace=False))


def alike(population: Population, own: Message | None, rng: np.random.Generator) -> Rows:
    """Choose the agents whose functions correlate most with the target's; see `likeness`.

    Args:
        population: The agents to choose from.
        own: The target's message; without one, the choice is `uniform`.
        rng: Chooses if there is no message.
    """
    if own is None or len(population) <= MOST:
        return uniform(population, own, rng)
    found = population.likeness(own)
    return np.sort(np.argpartition(found, -MOST)[-MOST:])


def _messages(
    federation: Federation,
    summaries: Summaries,
    X: NDArray[Any],
    y: NDArray[Any],
    rng: np.random.Generator,
) -> list[NDArray[Any]]:
    """Return the columns of a few agents."""
    (n, t, D), c = X.shape, len(federation.cells)
    cells = federation.nearest_cells(X.reshape(n * t, D)).reshape(n, t)
    places = cells + c * np.arange(n)[:, None]
    made = np.bincount(places.ravel(), minlength=n * c)
    counts = saturated(made)
    z = standardised(federation.space.sign * y.astype(np.float64))
    u = counts[places] / made[places]
    m, h = summaries.means(X, z, cells, u, *summaries.noise(n, t, rng))
    levels, scales = quantise(m, rng)
    sizes = federation.basis.size(levels.astype(np.float64)).astype(np.float32)
    t_n = np.full(n, t, dtype=np.int32)
    tips = np.zeros((n, 1 + federation.lattice.nbytes), dtype=np.uint8)
    if federation.tips:
        tips[:, 0] = np.ptp(z, axis=1) > 0.0
        tips[:, 1:] = federation.lattice.pack_all(X[np.arange(n), h.argmax(axis=1)])
    return [levels, scales, counts.reshape(n, c), t_n, sizes, tips]


def _check_federation(federation: Federation) -> None:
    if federation.sends != "compact":
        raise ValueError(
            f"the agents of the federation send messages of kind {federation.sends!r}, expected "
            '"compact": make the federation with kind="compact" and without a privacy plan'
        )


def _check_batch(federation: Federation, X: NDArray[Any], y: NDArray[Any]) -> None:
    D = federation.space.dimensions
    if X.ndim != 3 or X.shape[2] != D or X.shape[1] < 1 or y.shape != X.shape[:2]:
        raise ValueError(
            f"a batch has X of shape {X.shape} and y of shape {y.shape}, expected (n, t, {D}) and "
            "(n, t) with one trial or more"
        )
    if not (np.isfinite(y).all() and ((X >= 0.0) & (X <= 1.0)).all()):  # NaN is outside, too
        raise ValueError(
            f"a batch has X from {X.min():.3g} to {X.max():.3g} and y from {y.min():.3g} to "
            f"{y.max():.3g}, expected points of the unit cube and finite scores"
        )
