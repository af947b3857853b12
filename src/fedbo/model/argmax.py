"""Where a sampled function is largest: x_t = argmax f_t(x), or argmax φ(x)ᵀω_n (Algorithm 1).

Two steps. *Screen*: the function's values on a Sobol set in float32, one matrix product. *Refine*:
climb from the best points that lie at least a length scale apart (the plain best crowd into one
basin), all together in float64. Dimensions with levels stay where they are in a climb, so the
best tops are then shaken onto other levels and climbed from again. On a discrete domain all points
are simply tried. `scipy.optimize.direct`, which the paper used, can be chosen instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedbo.model.ascend import Mask, ascend
from fedbo.model.function import SampledFunction
from fedbo.model.kernel import Array
from fedbo.model.precision import single


class Domain(Protocol):
    """What `argmax` needs to know of a space; ``box``: two corners, None if it is all the cube."""

    @property
    def dimensions(self) -> int: ...
    @property
    def points(self) -> Array | None: ...
    @property
    def free(self) -> Mask: ...
    @property
    def box(self) -> tuple[Array, Array] | None: ...
    def snap(self, X: Array) -> Array: ...


Taken = Callable[[Array], Mask]


class Maximiser(Protocol):
    """What finds the largest value of a function: `argmax` or `argmax_direct`."""

    def __call__(
        self,
        function: SampledFunction,
        domain: Domain,
        near: Array | None = None,
        taken: Taken | None = None,
    ) -> Array: ...


_STARTS = 20
_ROUNDS, _PARENTS, _CHILDREN, _LEVELS = 2, 5, 100, 8  # where some dimensions have levels
_FEWEST, _MOST = 9, 15  # powers of two: 512 to 32,768 points, unless the function wants fewer


def argmax(
    function: SampledFunction,
    domain: Domain,
    near: Array | None = None,
    taken: Taken | None = None,
) -> Array:
    """The point x (D,) of the domain where ``function`` is largest.

    ``near`` (n, D) are points worth a look besides the screened ones, such as an agent's best
    trials: a posterior that has narrowed down to them is easy to miss. ``taken`` says which points
    (n, D) should not be the answer: it is then the best other place that a climb led to, however
    low that is, and one of those only if no climb led elsewhere.

    >>> from fedbo.model.features import Features
    >>> from fedbo.space import Float, Space
    >>> f = Features(1, 50, length_scales=0.2, seed=3).function(np.ones(50))
    >>> x = argmax(f, Space({"a": Float(0, 1)}))
    >>> bool(f(x[None])[0] >= f(np.linspace(0, 1, 1001)[:, None]).max() - 1e-9)
    True
    """
    if domain.points is not None:
        return _row(domain.points, function(domain.points), taken)
    size = _screening_size(function.length_scales)
    X = _screening_set(domain.dimensions, min(size, getattr(function, "screened", size)))
    if domain.box is not None:
        low, high = map(single, domain.box)
        X = low + (high - low) * X
    if near is not None and len(near):
        X = np.concatenate([near.astype(np.float32), X])
    X = domain.snap(X)
    starts = domain.snap(X[_separated(X, function(X), function.length_scales)].astype(np.float64))
    fixed = ~domain.free
    tops, values = _climb(function, domain, starts)
    for _ in range(_ROUNDS if fixed.any() else 0):
        more = _climb(function, domain, _other_levels(function, domain, tops, values))
        tops, values = (np.concatenate(pair) for pair in zip((tops, values), more, strict=True))
    return _row(tops, values, taken)


def argmax_direct(
    function: SampledFunction,
    domain: Domain,
    near: Array | None = None,
    taken: Taken | None = None,
) -> Array:
    """The same by DIRECT (`scipy.optimize.direct`, 1,000 evaluations), as in the paper.

    In a box it has one answer and no next best: ``taken`` changes nothing there.
    """
    from scipy.optimize import Bounds, direct

    if domain.points is not None:
        return argmax(function, domain, near, taken)

    def falls(x: Array) -> float:
        return -float(function(x[None])[0])

    bounds = Bounds(*_box(domain))
    result = direct(falls, bounds, maxfun=1000, maxiter=10_000)
    x: Array = domain.snap(np.asarray(result.x, dtype=np.float64)[None])[0]
    return x


MAXIMISERS: dict[str, Maximiser] = {"refine": argmax, "direct": argmax_direct}


def _row(X: Array, values: Array, taken: Taken | None) -> Array:
    """The row of X with the largest value, of those that are not taken, if there are any."""
    if taken is not None and not (barred := taken(X)).all():
        values = np.where(barred, -np.inf, values)
    best: Array = X[int(np.argmax(values))]
    return best


def _box(domain: Domain) -> tuple[Array, Array]:
    return domain.box or (np.zeros(domain.dimensions), np.ones(domain.dimensions))


def _climb(function: SampledFunction, domain: Domain, starts: Array) -> tuple[Array, Array]:
    """Where climbs from ``starts`` get to, and the values there; the best is a local maximum."""
    low, high = _box(domain)
    return ascend(
        function.value_and_gradient,
        starts,
        np.where(domain.free, low, starts),
        np.where(domain.free, high, starts),
        scale=np.minimum(function.length_scales, 1.0),
        turns=30,
        gain=1e-5,
        restarts=0,
        hope=4.0,
    )


def _other_levels(function: SampledFunction, domain: Domain, tops: Array, values: Array) -> Array:
    """Good points near the best tops, on levels that no climb can reach, one for each."""
    D, fixed = domain.dimensions, ~domain.free
    parents = tops[np.argsort(-values)[:_PARENTS]]
    shape = (len(parents), _CHILDREN, D)
    rng = np.random.default_rng(0)
    size = rng.choice([0.02, 0.05, 0.15, 0.5], (*shape[:2], 1))
    moves = size * rng.standard_normal(shape) * (rng.random(shape) < 0.5)
    children = parents[:, None] + np.minimum(function.length_scales, 1.0) * moves
    X = domain.snap(np.clip(children.reshape(-1, D), *_box(domain)))
    X = X[np.argsort(-function(single(X)))]
    _, first = np.unique(X[:, fixed], axis=0, return_index=True)
    return X[np.sort(first)[:_LEVELS]]


def _screening_size(length_scales: Array) -> int:
    """Enough points to put some into every basin: basins are about a length scale wide."""
    D = len(length_scales)
    basins = np.log2(np.maximum(1.0 / length_scales, 1.0)).sum()
    return int(2 ** np.clip(np.ceil(basins + 3.0 + 0.7 * D), _FEWEST, _MOST))


@lru_cache(maxsize=16)
def _screening_set(dimensions: int, size: int) -> Array:
    """A Sobol set, spread a little beyond the cube and clipped: maxima like to sit on faces."""
    from scipy.stats.qmc import Sobol  # slow to import, so only where it is used

    X = Sobol(dimensions, rng=0).random(size)
    X = np.clip((X - 0.5) * 1.05 + 0.5, 0.0, 1.0).astype(np.float32)
    X.flags.writeable = False
    return X


def _separated(X: Array, values: Array, length_scales: Array) -> NDArray[np.intp]:
    """Rows of the best points that lie at least a length scale from every better one.

    Half the cube is far enough: with longer scales too few would be left to climb from.
    """
    keep = min(len(X), 1024)
    order = np.argpartition(-values, keep - 1)[:keep]
    order = order[np.argsort(-values[order])]
    U = X[order] / np.minimum(length_scales, 0.5).astype(np.float32)
    alive = np.ones(keep, dtype=bool)
    chosen = []
    for _ in range(_STARTS):
        i = int(np.argmax(alive))
        if not alive[i]:
            break
        chosen.append(i)
        gap = U - U[i]
        alive &= np.einsum("ij,ij->i", gap, gap) >= 1.0
    return order[chosen]
