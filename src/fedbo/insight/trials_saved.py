"""Trials saved by collaborating: a comparison of an agent with replayed solo agents.

On each function of a replay, both sides have to reach a *level*: 95 % of the way from the solo
agent's best initial point to the best value that the agent found. (The best value itself may be due
to a last, negligible improvement.) Trials saved are the trials that the solo agent needs to reach
the level minus the trials that the agent needed.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedbo.model.kernel import Array
from fedbo.table import Table

_WAY = 0.95  # of the way to the agent's best value: the level
_BAND = (0.05, 0.5, 0.95)  # quantiles over the draws; each is the value of one draw
_STOPS = (5, 10, 20)  # best scores are compared after these trials and the last one


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """The trials that collaborating saved, estimated from replays.

    Failed trials are not counted. All scores are in the user's units.

    Args:
        draws: Number of replays.
        trials: Number of the agent's trials that were replayed, from the first.
        low: 5 % quantile of the trials saved; a negative number is a loss.
        median: Median of the trials saved.
        high: 95 % quantile of the trials saved.
        at_least: Whether low, median and high are lower bounds: some solo agent missed the level.
        agent: How many trials the agent needed to reach the level (median).
        alone: How many trials a solo agent needed (median).
        curves: Best scores after 1, 2, … trials, of the agent and of solo agents (with quantiles).
        gains: After some numbers of trials, how much better the agent was.
    """

    draws: int
    trials: int
    low: int
    median: int
    high: int
    at_least: tuple[bool, bool, bool]
    agent: int
    alone: int
    curves: Table
    gains: Table

    def __str__(self) -> str:
        low, median, high = (
            ("at least " if more else "") + str(trials).replace("-", "−")
            for trials, more in zip((self.low, self.median, self.high), self.at_least, strict=True)
        )
        amount = median.capitalize() if self.at_least[1] else f"About {median}"
        many = "" if abs(self.median) == 1 else "s"
        interval = low if low == high else f"{low} to {high}"
        return f"{amount} trial{many} saved (90 %: {interval}). {self._meaning()}"

    def _meaning(self) -> str:
        if self.low > 0:
            return "Collaborating paid."
        if self.high < 0:
            return "Collaborating cost trials: alone, the agent would have been faster."
        if self.median < 0:
            return "Alone, the agent might have been faster, but the interval contains 0."
        return "The interval contains 0: it may have made no difference."


def compare(best: Array, together: Array, alone: Array, start: int, sign: float = 1.0) -> Saving:
    """Compute the trials saved from best values so far, all to be maximised.

    Args:
        best: The agent's best scores so far, as told, (n,).
        together: Its best values so far on each of S functions, (S, h).
        alone: Best values so far of a solo agent on each function, (S, h).
        start: Number of the solo agents' initial points.
        sign: -1 if scores are minimised in the user's units (default 1).

    >>> together = np.array([[0.0, 1.0, 1.0, 1.0, 1.0]])
    >>> alone = np.array([[0.0, 0.0, 0.5, 0.9, 1.0]])
    >>> saved = compare(together[0], together, alone, start=1)
    >>> saved.agent, saved.alone, saved.median
    (2, 5, 3)
    """
    draws, h = together.shape
    end, first = together[:, -1], np.minimum(alone[:, min(start, h) - 1], together[:, -1])
    level = (first + _WAY * (end - first))[:, None]
    needed = (together >= level).argmax(axis=1) + 1
    missed = alone[:, -1] < level[:, 0]
    needed_alone = np.where(missed, h + 1, (alone >= level).argmax(axis=1) + 1)
    saved = needed_alone - needed
    low, median, high = _quantiles(saved).tolist()
    more = [bool(missed[saved <= quantile].any()) for quantile in (low, median, high)]

    gain_low, gain, gain_high = _quantiles(together - alone)
    best, trials = sign * best[:h], np.arange(1, h + 1)
    ends = (best - sign * gain_high, best - sign * gain_low)
    both = {"agent": best, "alone": best - sign * gain}
    curves = both | {"low": np.minimum(*ends), "high": np.maximum(*ends)}
    gains = both | {"gain": gain, "low": gain_low, "high": gain_high}
    stops = np.isin(trials, (*_STOPS, h))
    return Saving(
        draws=draws,
        trials=h,
        low=low,
        median=median,
        high=high,
        at_least=(more[0], more[1], more[2]),  # a longer replay might give more
        agent=int(_quantiles(needed)[1]),
        alone=int(_quantiles(needed_alone)[1]),
        curves=Table({"trials": trials} | curves),
        gains=Table({"trials": trials[stops]} | {k: v[stops] for k, v in gains.items()}),
    )


def _quantiles(values: NDArray[np.number]) -> NDArray[np.number]:
    band: NDArray[np.number] = np.quantile(values, _BAND, axis=0, method="inverted_cdf")
    return band
