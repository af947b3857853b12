"""Where a sampled function is largest: x_t = argmax f_t(x), or argmax φ(x)ᵀω_n (Algorithm 1).

The search has two steps. *Screen*: evaluate the function on a Sobol set in float32. *Refine*: climb
in float64 from the best points that lie at least a length scale apart. Without this distance, all
of them would lie around one maximum. A climb does not change dimensions with levels, so the best
results are moved to other levels and refined again. Of listed points, all are screened in float32,
and the best of them are compared in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np

from fedbo.model.ascend import Mask, ascend
from fedbo.model.function import SampledFunction, Search, Tabled, single
from fedbo.model.kernel import Array
from fedbo.model.leave_one_out import Rows


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

_DEFAULT = Search()
_ROUNDS, _PARENTS, _CHILDREN, _LEVELS = 2, 5, 100, 8  # if some dimensions have levels
_FEWEST, _MOST = 9, 15  # exponents of two: 512 to 32,768 points, unless the function wants fewer
_QUICK_SCREENED, _QUICK = 512, Search(starts=3, gain=1e-4)  # for each of many functions
_COMPARED = 512  # listed points computed in float64
_CLOSEST, _FARTHEST = 0.05, 0.6  # length scales between a point and the cloud around it


def argmax(
    function: SampledFunction,
    domain: Domain,
    near: Array | None = None,
    taken: Taken | None = None,
) -> Array:
    """Return the point x (D,) of the domain where ``function`` is largest.

    Args:
        function: The function to maximise.
        domain: Where to look.
        near: More points (n, D) to screen, such as the best trials: peaks there may be narrow.
        taken: Says which of the points (n, D) to avoid. A taken point is returned only if the
            search has found no other.

    >>> from fedbo.model.features import Features
    >>> from fedbo.space import Float, Space
    >>> f = Features(1, 50, length_scales=0.2, seed=3).function(np.ones(50))
    >>> x = argmax(f, Space({"a": Float(0, 1)}))
    >>> bool(f(x[None])[0] >= f(np.linspace(0, 1, 1001)[:, None]).max() - 1e-9)
    True
    """
    if domain.points is not None:
        return _best_listed(function, domain.points, taken)
    size = _screening_size(function.length_scales)
    size = min(size, getattr(function, "screened", size))
    search: Search = getattr(function, "search", _DEFAULT)
    starts = _starts(function, domain, near, size, search)
    tops, values = _climb(function, domain, starts, search)
    for _ in range(0 if domain.free.all() else _ROUNDS):
        more = _climb(function, domain, _other_levels(function, domain, tops, values), search)
        tops, values = (np.concatenate(pair) for pair in zip((tops, values), more, strict=True))
    return _best_row(tops, values, taken)


def argmax_each(
    functions: Sequence[SampledFunction],
    domain: Domain,
    near: Sequence[Array],
    taken: Sequence[Taken | None],
) -> Array:
    """Return a point for each of S functions where it is (almost) largest, (S, D).

    This search is quicker than `argmax`: it screens fewer points, climbs from fewer, and does not
    try other levels.

    Args:
        functions: The functions to maximise, defined on the whole cube.
        domain: Where to look.
        near: For each function, the ``near`` of `argmax`.
        taken: For each function, the ``taken`` of `argmax`.

    >>> from fedbo.model.features import Features
    >>> from fedbo.space import Float, Space
    >>> f, space = Features(1, 50, seed=3).function(np.ones(50)), Space({"a": Float(0, 1)})
    >>> argmax_each([f, f], space, [np.empty((0, 1))] * 2, [None, None]).shape
    (2, 1)
    """
    if domain.points is not None:
        X, X32 = domain.points, single(domain.points)
        return np.array([_best_row(X, f(X32), t) for f, t in zip(functions, taken, strict=True)])
    starts = [
        _starts(f, domain, best, _QUICK_SCREENED, _QUICK)
        for f, best in zip(functions, near, strict=True)
    ]
    owner = np.repeat(np.arange(len(functions)), [len(X) for X in starts])
    scales = np.array([f.length_scales for f in functions])[owner]

    def each(X: Array, rows: Rows) -> tuple[Array, Array]:
        ends = np.searchsorted(owner[rows], np.arange(len(functions) + 1))
        values, gradients = np.empty(len(X)), np.empty_like(X)
        for f, i, j in zip(functions, ends, ends[1:], strict=False):
            if i < j:
                values[i:j], gradients[i:j] = f.value_and_gradient(X[i:j])
        return values, gradients

    X, scale = np.concatenate(starts), np.minimum(scales, 1.0)
    bounds = _bounds(domain, X)
    tops, values = ascend(each, X, *bounds, scale=scale, turns=20, gain=_QUICK.gain, restarts=0)
    mine = [owner == i for i in range(len(functions))]
    return np.array([_best_row(tops[i], values[i], t) for i, t in zip(mine, taken, strict=True)])


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
