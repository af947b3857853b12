"""Trials saved by collaborating: a comparison of an agent with replayed solo agents.

======  =====================================================================  ========
symbol  meaning                                                                shape
======  =====================================================================  ========
v, u    best values so far of the agent and of the solo agent on each of S     (S, h)
        functions, in standard units
a       the worse of the two first values, v_1 and u_1                         (S,)
b       the better of the two last values, v_h and u_h                         (S,)
saved   Σ_t (v_t − u_t) / (b − a): how many trials the solo agent is behind    (S,)
======  =====================================================================  ========

The area between two curves is the same in both directions. So ``saved`` is the number of trials by
which the solo agent is later to reach a value, on average over all values from a to b; what it has
not reached after h trials counts as if it were the next one. Every figure of a `Saving` comes from
this difference: after how many trials it was how large, and in how many replays it was above 0.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedbo.insight.replay import LONGEST
from fedbo.model.kernel import Array
from fedbo.model.surrogate import Standardised
from fedbo.table import Table

_BAND = (0.05, 0.5, 0.95)  # quantiles over the draws; each is the value of one draw
_STOPS = (1, 5, 10, 20)  # what is saved is shown after these trials and the last one
_TINY = 1e-12


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """The trials that collaborating saved, estimated from replays. Failed trials do not count.

    Args:
        draws: Number of replays.
        trials: Number of the agent's trials that were replayed, from the first.
        low: 5 % quantile of the trials saved; a negative number is a loss.
        median: Median of the trials saved.
        high: 95 % quantile of the trials saved.
        ahead: In how many replays the agent is ahead at the end; a tie is one half.
        first: The first value of solo agents (median), in the user's units.
        curves: Best scores after 1, 2, … trials, of the agent and of solo agents (with quantiles),
            in the user's units.
        gains: After some numbers of trials: the best scores, the share of replays in which the
            agent was ahead, and the trials saved so far (median).
    """

    draws: int
    trials: int
    low: float
    median: float
    high: float
    ahead: float
    first: float
    curves: Table
    gains: Table

    @property
    def amount(self) -> str:
        low, median, high = (
            f"{trials:.1f}".replace("-", "−") for trials in (self.low, self.median, self.high)
        )
        return f"about {median} trials saved (90 %: {low} to {high})"

    def __str__(self) -> str:
        return f"{self.amount.capitalize()}. {self._meaning()}"

    def _meaning(self) -> str:
        at_end = self.ahead / self.draws
        if self.low > 0:
            later = ", though alone it might be as far by now" if at_end < 0.5 else ""
            return f"Collaborating paid{later}."
        if self.high < 0:
            later = ", though it is ahead by now" if at_end > 0.5 else ""
            return f"Collaborating cost trials{later}: alone, the agent would have been faster."
        # With more trials, the median grows in proportion to the interval (docs/lab/explain.md).
        margin = self.median - self.low if self.median > 0 else self.high - self.median
        needed = self.trials * margin / max(abs(self.median), _TINY)
        if needed > LONGEST:
            rest = f"even {LONGEST} trials would not tell"
        else:
            more = max(1, math.ceil(needed) - self.trials)
            rest = f"it takes about {round(more, -1 if more > 20 else 0)} more trials to tell"
        return f"It may have made no difference: at this rate, {rest}."


def compare(
    best: Array, together: Array, alone: Array, scores: Standardised, sign: float = 1.0
) -> Saving:
    """Compute the trials saved from best values so far, all to be maximised.

    Args:
        best: The agent's best scores so far, as told, (n,).
        together: v, its best values so far on each of S functions, (S, h).
        alone: u, the best values so far of a solo agent on each function, (S, h).
        scores: What turns standard units into those of ``best``.
        sign: -1 if scores are minimised in the user's units (default 1).

    >>> from fedbo.model.surrogate import Raw
    >>> together = np.array([[0.0, 1.0, 1.0, 1.0, 1.0]])
    >>> alone = np.array([[0.0, 0.0, 0.5, 0.9, 1.0]])
    >>> compare(together[0], together, alone, Raw(together[0])).median
    1.6
    """
    draws, h = together.shape
    gaps = together - alone
    worst = np.minimum(together[:, 0], alone[:, 0])
    heights = np.maximum(together[:, -1], alone[:, -1]) - worst
    saved = np.cumsum(gaps, axis=1) / np.maximum(heights, _TINY)[:, None]
    low, median, high = _quantiles(saved)
    ahead = (0.5 + 0.5 * np.sign(gaps)).mean(axis=0)

    gain_low, gain, gain_high = _quantiles(scores.unwarp(together) - scores.unwarp(alone))
    trials = np.arange(1, h + 1)
    solo, *ends = (sign * np.minimum(best[:h] - g, best[-1]) for g in (gain, gain_high, gain_low))
    both = {"agent": sign * best[:h], "alone": solo}
    curves = both | {"low": np.minimum(*ends), "high": np.maximum(*ends)}
    gains = both | {"ahead": ahead, "saved": median}
    stops = np.isin(trials, (*_STOPS, h))
    return Saving(
        draws=draws,
        trials=h,
        low=float(low[-1]),
        median=float(median[-1]),
        high=float(high[-1]),
        ahead=float(ahead[-1] * draws),
        first=float(sign * np.median(scores.unwarp(alone[:, 0]))),
        curves=Table({"trials": trials} | curves),
        gains=Table({"trials": trials[stops]} | {k: v[stops] for k, v in gains.items()}),
    )


def _quantiles(values: NDArray[np.number]) -> NDArray[np.number]:
    band: NDArray[np.number] = np.quantile(values, _BAND, axis=0, method="inverted_cdf")
    return band
