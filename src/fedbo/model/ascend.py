"""Climb from many starts at once: BFGS inside a box, one row a start.

=========  ======================================================  ===========
symbol     meaning                                                 shape
=========  ======================================================  ===========
z          where each climber stands, in units of ``scale``        (R, d)
v, g       value and gradient there                                (R,), (R, d)
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
_DOUBT = 4.0  # how many times ``gain`` the gradient has to promise for H to be forgotten
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
    restarts: int = 3,
    hope: float = 1e12,
) -> tuple[Array, Array]:
    """Local maximisers reached from ``starts`` (R, d) in the box, and their values (R,).

    ``objective`` gives values (r,) and gradients (r, d) for points (r, d). ``scale`` (d,) is a
    natural unit of each variable: the first step is ``first`` of it, and no step is longer than
    one. A climber rests when its next step promises less than ``gain``; but what it learnt of the
    curvature can mislead it, so it may forget that ``restarts`` times, and go on by the gradient.
    One that lies further behind the best than ``hope`` times what it is promised stops on its way.
    ``lower`` and ``upper`` broadcast against ``starts``; a variable whose bounds are equal stays
    where it is.

    >>> def hill(X):
    ...     return -((X - 0.3) ** 2).sum(axis=1), -2 * (X - 0.3)
    >>> one = np.ones(1)
    >>> X, V = ascend(hill, np.zeros((2, 1)), 0 * one, one, scale=one, turns=20, gain=1e-12)
    >>> np.round(X, 6).tolist()
    [[0.3], [0.3]]
    """
    shape = np.broadcast_shapes(starts.shape, np.shape(lower), np.shape(upper))
    low, high = np.broadcast_to(lower / scale, shape), np.broadcast_to(upper / scale, shape)
    v, g = objective(starts)
    tops, values = starts / scale, v.copy()
    z, g, rows = tops.copy(), g * scale, np.arange(len(starts))
    H, a = _steepest(g, first), np.ones(len(starts))
    fresh = np.ones(len(starts), dtype=bool)  # H has not seen a step yet
    left = np.full(len(starts), restarts)
    best = -np.inf
    for _ in range(turns):
        free = ((z > low) | (g > 0)) & ((z < high) | (g < 0))
        uphill = g * free
        step = np.matmul(H, uphill[:, :, None])[:, :, 0] * free
        step *= (a / np.maximum(_norm(step), 1.0))[:, None]
        promised = (step * uphill).sum(axis=1)
        behind = v + hope * promised < max(best, v.max())
        stuck = (promised <= gain * a) | (a < _SHORTEST) | behind
        if stuck.any():
            tops[rows], values[rows], best = z, v, max(best, v.max())
            steep = _norm(uphill)
            forget = stuck & ~behind & ~fresh & (left > 0) & (first * steep > _DOUBT * gain)
            H[forget], fresh[forget], a[forget] = _steepest(uphill[forget], first), True, 1.0
            step[forget] = (first / steep[forget])[:, None] * uphill[forget]
            left[forget] -= 1
            keep = ~stuck | forget
            if not keep.any():
                break
            rows, z, v, g, H, a = rows[keep], z[keep], v[keep], g[keep], H[keep], a[keep]
            fresh, left, low, high = fresh[keep], left[keep], low[keep], high[keep]
            step, uphill = step[keep], uphill[keep]
        trial = np.minimum(np.maximum(z + step, low), high)
        v_new, g_new = objective(trial * scale)
        g_new = g_new * scale
        moved = trial - z
        paid = v_new - v >= _ARMIJO * (moved * uphill).sum(axis=1)
        fall = (g - g_new) * (moved != 0)  # a variable held by a bound has no say in H
        learnt = _learn(H, moved, fall, fresh)
        if paid.all():
            z, v, g, H = trial, v_new, g_new, learnt
            a.fill(1.0)
        else:
            z, g = np.where(paid[:, None], trial, z), np.where(paid[:, None], g_new, g)
            v, H = np.where(paid, v_new, v), np.where(paid[:, None, None], learnt, H)
            a = np.where(paid, 1.0, _SHORTER * a)
        fresh &= ~paid | ~moved.any(axis=1)
    tops[rows], values[rows] = z, v
    return np.clip(tops * scale, lower, upper), values


def _steepest(G: Array, first: float) -> Array:
    """H that makes a step of length ``first`` along each gradient."""
    return np.asarray((first / (_norm(G) + _TINY))[:, None, None] * np.eye(G.shape[1]))


def _norm(A: Array) -> Array:
    """Lengths of the rows of A."""
    lengths: Array = np.sqrt((A * A).sum(axis=1))
    return lengths


def _learn(H: Array, s: Array, y: Array, fresh: Mask) -> Array:
    """The BFGS update of H for steps s and falls y of the gradient; rows of no curvature stay."""
    sy = (s * y).sum(axis=1)
    yy = (y * y).sum(axis=1)
    curved = sy > np.maximum(1e-10 * yy, _TINY)
    rho = curved / np.where(curved, sy, 1.0)
    first = fresh & curved
    if first.any():  # the usual first scaling of H to the curvature just seen
        H = H.copy()
        H[first] = (sy[first] / yy[first])[:, None, None] * np.eye(H.shape[1])
    Hy = np.matmul(H, y[:, :, None])[:, :, 0]
    half = (0.5 * rho * (1.0 + rho * (y * Hy).sum(axis=1)))[:, None] * s - rho[:, None] * Hy
    change: Array = s[:, :, None] * half[:, None, :]
    return H + change + change.transpose(0, 2, 1)
