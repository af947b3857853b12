"""The samples of one agent."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray


class Samples(msgspec.Struct, frozen=True, eq=False):
    """One agent's samples: features X (n, d) and labels y (n,).

    >>> samples = Samples(X=np.array([[0.5, 1.0], [2.0, 3.0]]), y=np.array([0, 1]))
    >>> len(samples), samples.X.dtype.name, samples.y.dtype.name
    (2, 'float64', 'int64')
    """

    X: NDArray[np.float64]
    y: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.X.ndim != 2 or self.y.shape != (len(self.X),):
            raise ValueError(
                f"X has shape {self.X.shape} and y {self.y.shape}, expected (n, d) and (n,)"
            )
        if (self.X.dtype.name, self.y.dtype.name) != ("float64", "int64"):
            raise ValueError(
                f"X is {self.X.dtype} and y {self.y.dtype}, expected float64 and int64"
            )
        if not np.isfinite(self.X).all():
            raise ValueError("X holds NaN or infinity, expected finite numbers only")

    def __len__(self) -> int:
        return len(self.y)


def by_owner(
    X: NDArray[np.floating], y: NDArray[np.integer], owner: NDArray[np.integer]
) -> tuple[Samples, ...]:
    """Split stacked samples by owner, in the order of the owners' numbers.

    >>> first, second = by_owner(np.eye(3), np.array([5, 6, 7]), np.array([2, 1, 2]))
    >>> first.y.tolist(), second.y.tolist()
    ([6], [5, 7])
    """
    return tuple(
        Samples(X=X[owner == n].astype(np.float64), y=y[owner == n].astype(np.int64))
        for n in np.unique(owner)
    )
