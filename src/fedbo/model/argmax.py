"""Where a sampled function is largest: x_t = argmax f_t(x), or argmax φ(x)ᵀω_n (Algorithm 1).

The search has two steps. *Screen*: evaluate the function on a Sobol set in float32. *Refine*: climb
in float64 from the best points that lie at least a length scale apart. Without this distance, all
of them would lie around one maximum. A climb does not change dimensions with levels, so the best
results are moved to other levels and refined again. Of listed points, all are screened in float32,
and the best of them are compared in float64.

A climb is BFGS inside a box, of all starts together (`ascend`):

=========  ======================================================  ===========
symbol     meaning                                                 shape
=========  ======================================================  ===========
z          position of each climber, in units of ``scale``          (R, d)
v, g       value and gradient there                                (R,), (R, d)
H          each climber's estimate of the inverse of −Hessian      (R, d, d)
a          fraction of the quasi-Newton step that is tried         (R,)
=========  ======================================================  ===========
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import msgspec
import numpy as np

from fedbo.model.kernel import Array, Mask, Rows, single


class SampledFunction(Protocol):
    """A deterministic function on the unit cube, drawn from somebody's belief.

    A function may say how `argmax` looks for its maximum, by an attribute ``search``, a `Search`.
    """

    length_scales: Array  # distance over which the function changes noticeably, (D,)

    def __call__(self, X: Array) -> Array:
        """Return the values at the rows of X: (n, D) -> (n,)."""

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        """Return the values (n,) and gradients (n, D) at the rows of X."""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """How `argmax` looks for a maximum in a space without listed points.

    Args:
        screened: Most points that are spread over the whole space.
        around: Points screened around each of ``near``; 0 means these points themselves.
        starts: Number of points to climb from.
        gain: A climb ends where it expects less gain than this.
        hope: A climb ends if the best one is ahead by this many times its expected gain.
        rounds: How often other levels are tried, if some dimensions have levels.
    """

    screened: int = 2**15
    around: int = 0
    starts: int = 20
    gain: float = 1e-5
    hope: float = 4.0
    rounds: int = 2


class Tabled:
    """An exact joint draw at the points of a discrete domain."""

    def __init__(self, points: Array, values: Array, length_scales: Array) -> None:
        self.points, self.values, self.length_scales = points, values, length_scales

    def __call__(self, X: Array) -> Array:
        if X is not self.points:
            raise ValueError("a draw on a discrete domain has values at that domain's points only")
        return self.values

    def value_and_gradient(self, X: Array) -> tuple[Array, Array]:
        raise ValueError("a draw on a discrete domain has no gradient")


class Domain(Protocol):
    """What `argmax` needs to know about a space."""

    @property
    def dimensions(self) -> int: ...
    @property
    def points(self) -> Array | None: ...  # the only points allowed, (n, D)
    @property
    def free(self) -> Mask: ...  # which dimensions are continuous, (D,)
    @property
    def box(self) -> tuple[Array, Array]: ...  # the lower and the upper corner, (D,) each
    def snap(self, X: Array) -> Array: ...
    def sample(self, rng: np.random.Generator, n: int) -> Array: ...


Taken = Callable[[Array], Mask]
Objective = Callable[[Array, Rows], tuple[Array, Array]]

_DEFAULT = Search()
_PARENTS, _CHILDREN, _LEVELS = 5, 100, 8  # if some dimensions have levels
_FEWEST, _MOST = 9, 15  # exponents of two: 512 to 32,768 points, unless the function wants fewer
_COMPARED = 512  # listed points computed in float64
_CLOSEST, _FARTHEST = 0.05, 0.6  # length scales between a point and the cloud around it

# of a climb
_ARMIJO = 1e-4  # fraction of the expected gain that a step must deliver
_SHORTER = 0.3  # factor on a step that did not pay off
_SHORTEST = 1e-3  # smallest a
_DOUBT = 4.0  # H is reset only if the gradient predicts this many times ``gain``
_TINY = 1e-300


def argmax(
    function: SampledFunction,
    domain: Domain,
    near: Array | None = None,
    taken: Taken | None = None,
    search: Search | None = None,
) -> Array:
    """Return the point x (D,) of the domain where ``function`` is largest.

    Args:
        function: The function to maximise.
        domain: Where to look.
        near: More points (n, D) to screen, such as the best trials: peaks there may be narrow.
        taken: Says which of the points (n, D) to avoid. A taken point is returned only if the
            search has found no other.
        search: How to look; by default as the function says.

    >>> from fedbo.model.features import Features
    >>> from fedbo.space import Float, Space
    >>> f = Features(1, 50, length_scales=0.2, seed=3).function(np.ones(50))
    >>> x = argmax(f, Space({"a": Float(0, 1)}))
    >>> bool(f(x[None])[0] >= f(np.linspace(0, 1, 1001)[:, None]).max() - 1e-9)
    True
    """
    if domain.points is not None:
        return _best_listed(function, domain.points, taken)
    search = getattr(function, "search", _DEFAULT) if search is None else search
    size = min(_screening_size(function.length_scales), search.screened)
    starts = _starts(function, domain, near, size, search)
    tops, values = _climb(function, domain, starts, search)
    for _ in range(0 if domain.free.all() else search.rounds):
        more = _climb(function, domain, _other_levels(function, domain, tops, values), search)
        tops, values = (np.concatenate(pair) for pair in zip((tops, values), more, strict=True))
    return _best_row(tops, values, taken)


def _best_row(X: Array, values: Array, taken: Taken | None) -> Array:
    if taken is not None and not (barred := taken(X)).all():
        values = np.where(barred, -np.inf, values)
    best: Array = X[int(np.argmax(values))]
    return best


def _best_listed(function: SampledFunction, X: Array, taken: Taken | None) -> Array:
    if len(X) <= _COMPARED or isinstance(function, Tabled):
        return _best_row(X, function(X), taken)
    values = function(single(X))
    if taken is not None and not (barred := taken(X)).all():
        values = np.where(barred, -np.inf, values)
    rows = np.sort(np.argpartition(-values, _COMPARED)[:_COMPARED])
    rows = rows[values[rows] > -np.inf]
    return _best_row(X[rows], function(X[rows]), None)


def _starts(
    function: SampledFunction, domain: Domain, near: Array | None, size: int, search: Search
) -> Array:
    """Return the best points of a screening set that lie apart from each other, (starts, D)."""
    low, high = map(single, domain.box)
    X = _screening_set(domain.dimensions, size)
    if low.any() or not (high == 1.0).all():
        X = low + (high - low) * X
    if near is not None and len(near):
        if search.around:
            offsets = np.minimum(function.length_scales, 1.0) * _offsets(len(low), search.around)
            near = np.clip((near[:, None] + offsets).reshape(-1, len(low)), low, high)
        X = np.concatenate([single(near), X])
    X = domain.snap(X)
    rows = _separated(X, function(X), function.length_scales, search.starts)
    return domain.snap(X[rows].astype(np.float64))


def _bounds(domain: Domain, starts: Array) -> tuple[Array, Array]:
    low, high = domain.box  # a climb does not change dimensions with levels
    return np.where(domain.free, low, starts), np.where(domain.free, high, starts)


def _climb(
    function: SampledFunction, domain: Domain, starts: Array, search: Search
) -> tuple[Array, Array]:
    def objective(X: Array, _: Rows) -> tuple[Array, Array]:
        return function.value_and_gradient(X)

    return ascend(
        objective,
        starts,
        *_bounds(domain, starts),
        scale=np.minimum(function.length_scales, 1.0),
        turns=30,
        gain=search.gain,
        restarts=0,
        hope=search.hope,
    )


def _other_levels(function: SampledFunction, domain: Domain, tops: Array, values: Array) -> Array:
    """Return good points near the best tops, each with another combination of levels."""
    D, fixed = domain.dimensions, ~domain.free
    parents = tops[np.argsort(-values)[:_PARENTS]]
    shape = (len(parents), _CHILDREN, D)
    rng = np.random.default_rng(0)
    size = rng.choice([0.02, 0.05, 0.15, 0.5], (*shape[:2], 1))
    moves = size * rng.standard_normal(shape) * (rng.random(shape) < 0.5)
    children = parents[:, None] + np.minimum(function.length_scales, 1.0) * moves
    X = domain.snap(np.clip(children.reshape(-1, D), *domain.box))
    X = X[np.argsort(-function(single(X)))]
    _, first = np.unique(X[:, fixed], axis=0, return_index=True)
    return X[np.sort(first)[:_LEVELS]]


def _screening_size(length_scales: Array) -> int:
    """Return enough points to hit every basin; a basin is about a length scale wide."""
    D = len(length_scales)
    basins = np.log2(np.maximum(1.0 / length_scales, 1.0)).sum()
    return int(2 ** np.clip(np.ceil(basins + 3.0 + 0.7 * D), _FEWEST, _MOST))


@lru_cache(maxsize=16)
def _screening_set(dimensions: int, size: int) -> Array:
    """Return a Sobol set, stretched beyond the cube and clipped: maxima often lie on its faces."""
    from scipy.stats.qmc import Sobol  # slow to import, so only where it is used

    X = Sobol(dimensions, rng=0).random(size)
    X = np.clip((X - 0.5) * 1.05 + 0.5, 0.0, 1.0).astype(np.float32)
    X.flags.writeable = False
    return X


@lru_cache(maxsize=16)
def _offsets(dimensions: int, size: int) -> Array:
    """Return offsets in random directions, short and long ones in equal measure, (size, D)."""
    moves = np.random.default_rng(0).standard_normal((size, dimensions))
    lengths = np.geomspace(_CLOSEST, _FARTHEST, size)
    return np.asarray(moves * (lengths / np.linalg.norm(moves, axis=1))[:, None])


def _separated(X: Array, values: Array, length_scales: Array, most: int) -> Rows:
    """Return the rows of the best points that lie at least a length scale from every better one."""
    keep = min(len(X), 1024)
    order = np.argpartition(-values, keep - 1)[:keep]
    order = order[np.argsort(-values[order])]
    U = X[order] / np.minimum(length_scales, 0.5).astype(np.float32)  # half the cube is far enough
    alive = np.ones(keep, dtype=bool)
    chosen = []
    for _ in range(most):
        i = int(np.argmax(alive))
        if not alive[i]:
            break
        chosen.append(i)
        gap = U - U[i]
        alive &= np.einsum("ij,ij->i", gap, gap) >= 1.0
    return order[chosen]


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

    Every turn evaluates all climbers that still move in one call. A climber whose step did not pay
    off tries a shorter one in the next turn, and stops when it expects to gain less than ``gain``.
    A turn costs about 100 µs plus the evaluation; a general optimiser spends 50 µs on each start.

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
    >>> side = np.ones(1)
    >>> X, V = ascend(hill, np.zeros((2, 1)), 0 * side, side, scale=side, turns=20, gain=1e-12)
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
