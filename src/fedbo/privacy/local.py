"""Local privacy: a vote that protects its sender from whoever collects it.

=======  =======================================================================  ==========
symbol   meaning                                                                  shape
=======  =======================================================================  ==========
n        number of cells                                                          scalar
N        number of members that sent bits                                         scalar
p        ½, the chance that the bit of the cell that was voted for is 1           scalar
q        1 / (e^ε + 1), the chance that any other bit is 1                        scalar
B        the bits that were collected                                             (N, n)
h        histogram of the votes                                                   (n,)
=======  =======================================================================  ==========

This is optimised unary encoding (Wang, Blocki, Li and Jha, Locally differentially private protocols
for frequency estimation, 2017). A vote for cell j is a row of n bits of which only bit j is 1; each
bit is then drawn anew with the chances above, and only the result leaves the member. Nobody has to
be trusted, and the price is high: in a release of a trusted party, the error of a count does not
grow with N; here it grows like √N.

**What it costs** depends on what must not be told apart:

- Two votes for different cells. Two bits have other chances, and the ratio of the probabilities of
  a result is at most p (1 − q) / (q (1 − p)) = (1 − q) / q, so the cost is ε. This is local privacy
  as it is usually defined, and what ε means here.
- A vote and an empty contribution, of which all bits are 0 before they are drawn anew: the
  neighbours of `accounting`. Only one bit has another chance. The ratio is at most p / q, or
  (1 − q) / (1 − p) the other way round, which is smaller; so the cost is log((e^ε + 1) / 2), which
  is less than ε: 0.62 for ε = 1, and 3.33 for ε = 4.

The ledger gets the first, which bounds both. A second vote costs as much again, also if it is the
same: the bits are drawn anew, and averages of them show the vote. A member sends its bits once.

**Integers.** Floating-point numbers decide nothing. q is rounded up to a multiple of 2⁻⁶⁴, so that
ε is never exceeded, and every bit is a comparison of a uniform random integer with an integer. One
integer is drawn for each bit, whatever the vote is.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbo.model.kernel import Array
from fedbo.privacy.accounting import Pure
from fedbo.privacy.noise import SECRET, Source

_UNITS = 2**64  # of q
_MOST = 100.0  # an ε beyond which q is one unit anyway
_CONTEXT = Context(prec=80)
# Both exceed the errors of 80 digits. The first makes q larger, which lowers the cost by more than
# the second adds to it.
_UNITS_MARGIN, _COST_MARGIN = Decimal("1e-50"), Decimal("1e-75")


class LocalCost(NamedTuple):
    """What one local vote costs, rounded up. Neither exceeds the ε that was asked for.

    Args:
        replaced: ε if votes for two different cells must not be told apart.
        emptied: ε if a vote and an empty contribution must not be told apart.
    """

    replaced: float
    emptied: float

    @property
    def mechanism(self) -> Pure:
        """What the ledger records: a bound for both."""
        return Pure(self.replaced)


class Estimate(NamedTuple):
    """The histogram of the votes, as far as it can be known.

    Args:
        votes: The estimated number of votes for each cell, (n,). It is unbiased, so it may be
            negative.
        errors: The standard errors of these numbers, (n,).
    """

    votes: Array
    errors: Array


def false_chance(epsilon: float) -> Fraction:
    """Return q: the chance that the bit of a cell that was not voted for is 1.

    Args:
        epsilon: ε of the vote, positive and finite.

    >>> round(float(false_chance(1.0)), 6)
    0.268941
    """
    if not 0.0 < epsilon < math.inf:
        raise ValueError(f"epsilon is {epsilon}; it must be positive and finite")
    with localcontext(_CONTEXT):
        units = _UNITS / (Decimal(min(epsilon, _MOST)).exp() + 1) + _UNITS_MARGIN
        q = Fraction(int(units.to_integral_value(ROUND_CEILING)), _UNITS)
    if q >= Fraction(1, 2):
        raise ValueError(f"epsilon is {epsilon}; it is so small that the bits would say nothing")
    return q


def local_cost(epsilon: float) -> LocalCost:
    """Return what a vote really costs, as q is rounded.

    Args:
        epsilon: ε of the vote, as it was asked for.

    >>> local_cost(4.0).mechanism
    Pure(epsilon=4.0)
    >>> round(local_cost(4.0).emptied, 2)
    3.33
    """
    q = false_chance(epsilon)
    return LocalCost(_log((1 - q) / q), _log(1 / (2 * q)))


def local_vote(
    cell: int | None, cells: int, epsilon: float, *, source: Source = SECRET
) -> NDArray[np.bool_]:
    """Return the bits (n,) that a member hands out instead of its vote.

    Args:
        cell: The cell that the member votes for; None for a member that has no vote, and hides
            this.
        cells: The number n of cells.
        epsilon: ε of the vote; `local_cost` says what it really costs.
        source: The source of randomness; the system's secret one by default. Any other is for
            tests: whoever can predict it can read the vote.

    >>> local_vote(3, 8, 4.0).shape
    (8,)
    """
    if not _is_whole(cells) or cells < 1:
        raise ValueError(f"cells is {cells!r}, expected a whole number of cells, 1 or more")
    if cell is not None and not (_is_whole(cell) and 0 <= cell < cells):
        raise ValueError(f"cell is {cell!r}, expected None or a whole number, 0 to {cells - 1}")
    if not isinstance(source, Source):
        raise TypeError(
            f"source is {source!r}; it must be a fedbo.privacy.noise.Source: leave it out for "
            "secret randomness, or give Simulated(seed) in a simulation"
        )
    q = false_chance(epsilon)
    other = q.numerator * (_UNITS // q.denominator)
    limits = [_UNITS // 2 if j == cell else other for j in range(cells)]
    return np.array([source.randbelow(_UNITS) < limit for limit in limits])


def estimate_votes(bits: ArrayLike, epsilon: float) -> Estimate:
    """Estimate the histogram of the votes from the bits of all members.

    The estimate is (Σ B − N q) / (½ − q). Its variance for given votes is
    (h / 4 + (N − h) q (1 − q)) / (½ − q)², where h is replaced by its estimate, between 0 and N.

    Args:
        bits: B (N, n), one row for each member, also for those that had no vote.
        epsilon: ε that all of them have used.

    >>> from fedbo.privacy.noise import Simulated
    >>> source = Simulated(0)
    >>> bits = [local_vote(2, 4, 3.0, source=source) for _ in range(1000)]
    >>> votes, errors = estimate_votes(bits, 3.0)
    >>> int(votes.argmax()), bool((abs(votes - [0, 0, 1000, 0]) < 4 * errors).all())
    (2, True)
    """
    B = np.asarray(bits)
    if B.ndim != 2 or not B.size:
        raise ValueError(f"bits has shape {B.shape}, expected a row of bits for each member")
    if not np.isin(B, (0, 1)).all():
        raise ValueError(f"bits has the values {np.unique(B)[:5].tolist()}, expected only 0 and 1")
    N, q = len(B), float(false_chance(epsilon))
    h = (B.sum(axis=0, dtype=np.int64) - N * q) / (0.5 - q)
    inside = np.clip(h, 0.0, N)
    variance = (inside / 4 + (N - inside) * q * (1 - q)) / (0.5 - q) ** 2
    return Estimate(h, np.sqrt(variance))


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _log(ratio: Fraction) -> float:
    """Return the logarithm, rounded up to a floating-point number."""
    with localcontext(_CONTEXT):
        exact = (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln() + _COST_MARGIN
        nearest = float(exact)
        return nearest if Decimal(nearest) >= exact else math.nextafter(nearest, math.inf)
