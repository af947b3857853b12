"""Climb from many starts at once: BFGS inside a box, one row for each start.

=========  ======================================================  ===========
symbol     meaning                                                 shape
=========  ======================================================  ===========
z          position of each climber, in units of ``scale``          (R, d)
v, g       value and gradient there                                (R,), (R, d)
H          each climber's estimate of the inverse of −Hessian      (R, d, d)
a          fraction of the quasi-Newton step that is tried         (R,)
=========  ======================================================  ===========

Every turn evaluates all climbers that still move in one call. A climber whose step did not pay off
tries a shorter one in the next turn. A turn costs about 100 µs plus the evaluation; a general
optimiser spends 50 µs on each evaluation of each start.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedbo.model.kernel import Array

Mask = NDArray[np.bool_]
Objective = Callable[[Array, NDArray[np.intp]], tuple[Array, Array]]

_ARMIJO = 1e-4  # fraction of the expected gain that a step must deliver
_SHORTER = 0.3  # factor on a step that did not pay off
_SHORTEST = 1e-3  # smallest a
_DOUBT = 4.0  # H is reset only if the gradient predicts this many times ``gain``
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
    """Return local maximisers (R, d) reached from ``starts``, and their values (R,).

    A climber stops when it expects its next step to gain less than ``gain``.

    Args:
        objective: Takes points (r, d) and the rows (r,) of ``starts`` where their climbers began.
            Returns values (r,) and gradients (r, d).
        starts: Where to begin, (R, d).
        lower: Lower bounds, broadcast against ``starts``. A variable with equal bounds stays fixed.
        upper: Upper bounds, broadcast against ``starts``.
        scale: Natural unit of each variable, (d,) or (R, d). No step is longer than one unit.
        turns: Largest number of turns.
        gain: Smallest expected gain of a step.
        first: Length of the first step, in units of ``scale``.
        restarts: How often a climber resets its estimate of the curvature before it stops.
        hope: A climber gives up if it is behind the best one by more than ``hope`` times the
            expected gain of its next step. Omit it if climbers follow different functions.

    >>> def hill(X, rows):
    ...     return -((X - 0.3) ** 2).sum(axis=1), -2 * (X - 0.3)
    >>> one = np.ones(1)
    >>> X, V = ascend(hill, np.zeros((2, 1)), 0 * one, one, scale=one, turns=20, gain=1e-12)
    >>> np.round(X, 6).tolist()
    [[0.3], [0.3]]
    """
    shape = np.broadcast_shapes(starts.shape, np.shape(lower), np.shape(upper))
    low, high = np.broadcast_to(lower / scale, shape), np.broadcast_to(upper / scale, shape)
    rows, units = np.arange(len(starts)), scale
    v, g = objective(starts, rows)
    tops, values = starts / scale, v.copy()
    z, g = tops.copy(), g * scale
    H, a = _steepest(g, first), np.ones(len(starts))
    fresh = np.ones(len(starts), dtype=bool)  # H has not seen a step yet
    left = np.full(len(starts), restarts)
    best = -np.inf
    for _ in range(turns):
        free = ((z > low) | (g > 0)) & ((z < high) | (g < 0))
        uphill = g * free
        step = np.matmul(H, uphill[:, :, None])[:, :, 0] * free
        step *= (a / np.maximum(_norm(step), 1.0))[:, None]
        expected = _dot(step, uphill)
        best = max(best, np.maximum.reduce(v))
        behind = v + hope * expected < best
        stuck = (expected <= gain * a) | (a < _SHORTEST) | behind
        if np.count_nonzero(stuck):
            tops[rows], values[rows] = z, v
            keep = ~stuck
            if restarts:
                steep = _norm(uphill)
                reset = stuck & ~behind & ~fresh & (left > 0) & (first * steep > _DOUBT * gain)
                H[reset], fresh[reset], a[reset] = _steepest(uphill[reset], first), True, 1.0
                step[reset] = (first / steep[reset])[:, None] * uphill[reset]
                left[reset] -= 1
                keep |= reset
            if not np.count_nonzero(keep):
                break
            rows, z, v, g, H, a = rows[keep], z[keep], v[keep], g[keep], H[keep], a[keep]
            fresh, left, low, high = fresh[keep], left[keep], low[keep], high[keep]
            step, uphill = step[keep], uphill[keep]
            units = units[keep] if units.ndim > 1 else units
        trial = np.minimum(np.maximum(z + step, low), high)
        v_new, g_new = objective(trial * units, rows)
        g_new = g_new * units
        moved = trial - z
        paid = v_new - v >= _ARMIJO * _dot(moved, uphill)
        fall = (g - g_new) * (moved != 0)  # a variable held by a bound does not change H
        learnt = _learn(H, moved, fall, fresh)
        if np.count_nonzero(paid) == len(paid):
            z, v, g, H = trial, v_new, g_new, learnt
            a.fill(1.0)
        else:
            z, g = np.where(paid[:, None], trial, z), np.where(paid[:, None], g_new, g)
            v, H = np.where(paid, v_new, v), np.where(paid[:, None, None], learnt, H)
            a = np.where(paid, 1.0, _SHORTER * a)
        if np.count_nonzero(fresh):
            fresh &= ~paid | ~moved.any(axis=1)
    tops[rows], values[rows] = z, v
    return np.clip(tops * scale, lower, upper), values


def _steepest(G: Array, first: float) -> Array:
    return np.asarray((first / (_norm(G) + _TINY))[:, None, None] * np.eye(G.shape[1]))


def _dot(A: Array, B: Array) -> Array:
    """Return the product of each row of A with that of B; `sum` itself would take twice as long."""
    return np.asarray(np.add.reduce(A * B, axis=1))


def _norm(A: Array) -> Array:
    return np.sqrt(_dot(A, A))


def _learn(H: Array, s: Array, y: Array, fresh: Mask) -> Array:
    """Return the BFGS update of H for steps s with falls y of the gradient, where sᵀy > 0."""
    sy, yy = _dot(s, y), _dot(y, y)
    curved = sy > np.maximum(1e-10 * yy, _TINY)
    rho = curved / np.where(curved, sy, 1.0)
    first = fresh & curved
    if np.count_nonzero(first):  # the usual first scaling of H to the observed curvature
        H = H.copy()
        H[first] = (sy[first] / yy[first])[:, None, None] * np.eye(H.shape[1])
    Hy = np.matmul(H, y[:, :, None])[:, :, 0]
    half = (0.5 * rho * (1.0 + rho * _dot(y, Hy)))[:, None] * s - rho[:, None] * Hy
    change: Array = s[:, :, None] * half[:, None, :]
    return H + change + change.transpose(0, 2, 1)
