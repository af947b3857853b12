"""Climb from many starts at once: BFGS inside a box, one row a start.

=========  ======================================================  ===========
symbol     meaning                                                 shape
=========  ======================================================  ===========
Z          where each climber stands, in units of ``scale``        (R, d)
V, G       value and gradient there                                (R,), (R, d)
H          each climber's estimate of the inverse of −Hessian      (R, d, d)
a          the share of the quasi-Newton step that is tried        (R,)
=========  ======================================================  ===========

Every turn evaluates all climbers that still move in one call; a climber whose step did not pay
tries a shorter one in the next turn, together with the others' new steps. A general optimiser
costs 50 µs of bookkeeping for each evaluation of each start; this costs about 100 µs for all.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedbo.model.kernel import Array

Mask = NDArray[np.bool_]
Objective = Callable[[Array], tuple[Array, Array]]

_ARMIJO = 1e-4  # the share of the promised gain that a step must deliver
_SHORTER = 0.3
_SHORTEST = 1e-3
_TINY = 1e-300


def ascend(
    objective: Objective,
    starts: Array,
    lower: Array,
    upper: Array,
    *,
    scale: Array,
    turns: int,
    gain: float,
    first: float = 0.2,
) -> tuple[Array, Array]:
    """Local maximisers reached from ``starts`` (R, d) in the box, and their values (R,).

    ``objective`` gives values (r,) and gradients (r, d) for points (r, d). ``scale`` (d,) is a
    natural unit of each variable: the first step is ``first`` of it, and no step is longer than
    one. A climber rests when its next step promises less than ``gain``. ``lower`` and ``upper``
    broadcast against ``starts``; a variable whose bounds are equal stays where it is.

    >>> def hill(X):
    ...     return -((X - 0.3) ** 2).sum(axis=1), -2 * (X - 0.3)
    >>> one = np.ones(1)
    >>> X, V = ascend(hill, np.zeros((2, 1)), 0 * one, one, scale=one, turns=20, gain=1e-12)
    >>> np.round(X, 6).tolist()
    [[0.3], [0.3]]
    """
    R, d = starts.shape
    Z = starts / scale
    low = np.broadcast_to(lower / scale, Z.shape)
    high = np.broadcast_to(upper / scale, Z.shape)
    V, G = objective(starts)
    G = G * scale
    H = (first / (_norm(G) + _TINY))[:, None, None] * np.eye(d)
    fresh = np.ones(R, dtype=bool)  # H has not seen a step yet
    a = np.ones(R)
    moving = np.arange(R)
    for _ in range(turns):
        z, g = Z[moving], G[moving]
        free = ((z > low[moving]) | (g > 0)) & ((z < high[moving]) | (g < 0))
        g = g * free
        step = (H[moving] @ g[:, :, None])[:, :, 0] * free
        step *= (a[moving] / np.maximum(_norm(step), 1.0))[:, None]
        keep = (step * g).sum(axis=1) > gain * a[moving]
        if not keep.all():
            moving, z, g, step = moving[keep], z[keep], g[keep], step[keep]
        if not len(moving):
            break
        trial = np.minimum(np.maximum(z + step, low[moving]), high[moving])
        v_new, g_new = objective(trial * scale)
        g_new = g_new * scale
        moved = trial - z
        paid = v_new - V[moving] >= _ARMIJO * (moved * g).sum(axis=1)
        better = moving[paid]
        H[better] = _learn(H[better], moved[paid], (G[moving] - g_new)[paid], fresh[better])
        Z[better], V[better], G[better] = trial[paid], v_new[paid], g_new[paid]
        fresh[better] = False
        a[better] = 1.0
        a[moving[~paid]] *= _SHORTER
        moving = moving[a[moving] > _SHORTEST]
    return Z * scale, V


def _norm(A: Array) -> Array:
    """Lengths of the rows of A."""
    lengths: Array = np.sqrt((A * A).sum(axis=1))
    return lengths


def _learn(H: Array, s: Array, y: Array, fresh: Mask) -> Array:
    """The BFGS update of H for steps s and falls y of the gradient; rows of no curvature stay."""
    sy = (s * y).sum(axis=1)
    yy = (y * y).sum(axis=1)
    curved = sy > 1e-10 * yy
    rho = curved / np.where(curved, sy, 1.0)
    first = fresh & curved
    if first.any():  # the usual first scaling of H to the curvature just seen
        H = H.copy()
        H[first] = (sy[first] / yy[first])[:, None, None] * np.eye(H.shape[1])
    Hy = (H @ y[:, :, None])[:, :, 0]
    half = (0.5 * rho * (1.0 + rho * (y * Hy).sum(axis=1)))[:, None] * s - rho[:, None] * Hy
    change: Array = s[:, :, None] * half[:, None, :]
    return H + change + change.transpose(0, 2, 1)
