"""Local privacy: a vote that protects its sender even from whoever collects it.

=======  =======================================================================  ==========
symbol   meaning                                                                  shape
=======  =======================================================================  ==========
n        number of cells                                                          scalar
a        the chance that a member votes for its own cell on purpose               scalar
=======  =======================================================================  ==========

With probability a = (e^ε − 1) / (e^ε + n − 1), the vote is for the member's own cell, and else for
one of all n cells, each with the same chance (randomised response; Kairouz, Bonawitz and Ramage,
Discrete distribution estimation under local privacy, 2016). For any cell that is seen, the
probabilities of two members' votes differ by a factor of at most 1 + a n / (1 − a) = e^ε. An empty
contribution is a vote for any cell, so it costs no more to hide whether there was one.

False votes fall on all cells alike, so the cells with most votes stay where they are, only with
more noise: the error of a count grows like √N, in place of the constant error of a trusted party.
With up to 3 e^ε + 2 cells this is more accurate than unary encoding, which needs n bits.

A second vote costs as much again, and averages of many show the truth. So `fedbo.Agent` makes its
vote from a fixed number of trials and from secret numbers that stay the same: however often it is
asked, its vote is the same.

Floating-point numbers decide nothing: a is rounded down to a multiple of 2⁻⁶⁴.
"""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Context, Decimal, localcontext

from fedbo.privacy.noise import SECRET, Source

_UNITS = 2**64  # of a
_MOST = 100.0  # an ε beyond which a vote is practically open
_CONTEXT = Context(prec=80)
_MARGIN = Decimal("1e-50")  # exceeds the errors of 80 digits, and makes a smaller


def local_vote(cell: int | None, cells: int, epsilon: float, *, source: Source = SECRET) -> int:
    """Return the cell that a member votes for in place of its own.

    Args:
        cell: The member's own cell; None for a member that has none, and hides this.
        cells: The number n of cells.
        epsilon: ε of the vote, above 0.
        source: The source of randomness; the system's secret one by default. Any other is for
            tests: whoever can predict it can read the vote.

    >>> 0 <= local_vote(3, 8, 4.0) < 8
    True
    """
    if cells < 1 or (cell is not None and not 0 <= cell < cells):
        raise ValueError(f"cell is {cell!r}, expected None or a cell from 0 to {cells - 1}")
    is_own = source.randbelow(_UNITS) < _own_units(epsilon, cells)
    other = source.randbelow(cells)  # is drawn in any case, so that the time says nothing
    return cell if is_own and cell is not None else other


def _own_units(epsilon: float, cells: int) -> int:
    """Return a in units of 2⁻⁶⁴, rounded down."""
    _check(epsilon)
    with localcontext(_CONTEXT):
        power = Decimal(min(epsilon, _MOST)).exp()
        a = (power - 1) / (power + cells - 1) * _UNITS - _MARGIN
        return max(0, int(a.to_integral_value(ROUND_FLOOR)))


def _check(epsilon: float) -> None:
    if not 0.0 < epsilon < math.inf:
        raise ValueError(f"epsilon is {epsilon}, expected a number above 0, not infinite")
