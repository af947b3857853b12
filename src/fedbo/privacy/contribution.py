"""What a member contributes to a private release: a vote, and the shape of its function.

======  =======================================================================  ======
symbol  meaning                                                                  shape
======  =======================================================================  ======
z       leading coordinates of the mean of a member's belief, Bᵀν                (d,)
lam     eigenvalues of these coordinates over the space                          (d,)
y       what is contributed: √lam z (lam / lam_1)^−¼, divided by its length      (d,)
c       weight of the second moments beside the mean                             scalar
e       number of coordinates whose second moments are summed, e ≤ d             scalar
v       (y, c svec(y yᵀ)) with the first e coordinates in the second part        (n,)
======  =======================================================================  ======

√lam z are the coordinates of the function in an orthonormal basis, so their squares add up to its
variance over the space. The power −¼ lifts the finer coordinates, which would otherwise drown in
the noise of a release. svec lists the entries of a symmetric matrix once, with the off-diagonal
ones multiplied by √2, so that ‖svec(y yᵀ)‖ = ‖y‖² ≤ 1 and ‖v‖ ≤ √(1 + c²), whatever a member sends:
this is what the noise of a release is made for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedbo.space.axis import Array

if TYPE_CHECKING:
    from fedbo.federation.shared import Shared


def shape(shared: Shared, nu: Array) -> Array:
    """Return y (d,), the shape that a member contributes.

    Args:
        shared: What the members derive from their federation.
        nu: The mean of the member's belief about the weights of the features, (M,).

    >>> from fedbo import Federation, Float
    >>> from fedbo.federation.shared import Shared
    >>> y = shape(Shared.of(Federation({"x": Float(0, 1)}, features=50)), np.ones(50))
    >>> len(y), round(float(np.linalg.norm(y)), 6)
    (7, 1.0)
    """
    scale = to_shape(shared)
    return unit(scale * (shared.basis.vectors.T @ nu)[: len(scale)])


def to_shape(shared: Shared) -> Array:
    """Return the factors (d,) that turn the coordinates z into y, up to its length."""
    lam = shared.basis.lam[: shared.shape_coordinates]
    if not lam[0] > 0.0:
        raise ValueError(
            "the features do not vary over the space, which has a single point; a contribution "
            "needs two points or more"
        )
    factors: Array = np.sqrt(lam) * (lam / lam[0]) ** -0.25
    return factors


def unit(y: Array) -> Array:
    """Return y divided by its length; 0 stays 0.

    The largest coordinate becomes 1 first: squares of tiny numbers are rounded to 0 one by one, so
    that the length would come out too small, and those of huge ones overflow.
    """
    largest = float(np.abs(y).max(initial=0.0))
    if largest == 0.0:
        return y
    y = y / largest
    return y / float(np.linalg.norm(y))


def lifted(y: Array, c: float, e: int) -> Array:
    """Return v.

    >>> lifted(np.array([0.6, 0.8]), 1.0, 2).round(3).tolist()
    [0.6, 0.8, 0.36, 0.679, 0.64]
    """
    rows, columns = np.tril_indices(e)
    twice = np.where(rows == columns, 1.0, np.sqrt(2.0))
    return np.concatenate([y, c * twice * y[rows] * y[columns]])


def second_moments(part: Array, e: int) -> Array:
    """Return the matrix (e, e) whose svec is ``part``: the way back from `lifted`.

    >>> second_moments(lifted(np.array([0.6, 0.8]), 1.0, 2)[2:], 2).round(3).tolist()
    [[0.36, 0.48], [0.48, 0.64]]
    """
    rows, columns = np.tril_indices(e)
    A = np.empty((e, e))
    A[rows, columns] = A[columns, rows] = part / np.where(rows == columns, 1.0, np.sqrt(2.0))
    return A
