"""An agent's trials once more, without its peers: solo Thompson sampling on draws of its belief.

======  =====================================================================  ============
symbol  meaning                                                                shape
======  =====================================================================  ============
S       draws: functions that agree with all scores of the agent, up to noise  scalar
h       trials that are replayed, at most `LONGEST`                            scalar
y       scores to be maximised, in the user's units                            (n,)
z       the same in the agent's standard units                                 (n,)
f_s     a draw in standard units, and of its mean, which is uncertain too      function
f_t     a draw from what replay s believes before its query t                  function
v       noise-free scores f_s(x), in the user's units                          (S, h)
======  =====================================================================  ============

What solo agents would have found cannot be known, for nobody has evaluated the objective where they
would have looked. So the objective is drawn: the agent's own belief, given all that it was told,
says what it may be elsewhere. On each draw a solo agent with the same settings starts from the same
initial points and goes its own way, seeing only what it asked for itself; it fits its
hyper-parameters, as the agent did, but rarely, and climbs from fewer points.

Both sides are then judged by v, the values of f_s where they queried: the noise of a score is only
what misleads. The largest of many noisy scores is too large, the more so the more noise a model
believes in, so that told scores on one side and made-up ones on the other could not be compared.

How good it is was measured on functions drawn from a GP with another kernel, where real solo agents
can be run: 88 federations of D = 2 and 40 of D = 4, half with good peers and half with useless
ones, half with noise, five real solo runs each. Of these runs 93 % and 92 % lay in the interval of
trials saved for 90 %, which is 21 and 28 trials wide. Its median was 0.2 ± 0.5 trials below that of
real runs (D = 2) and 2.9 ± 1.1 above (D = 4). On the true function a replayed agent needs as many
trials as a real one (D = 2: 0.2 ± 0.9 more), so the drawn functions may be somewhat too hard. In no
federation with useless peers was the whole interval above 0. All of this was measured with FTS and
30 to 40 trials, before low scores were compressed; how it fares in long runs is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedbo.agent.settings import Settings
from fedbo.model.ascend import ascend
from fedbo.model.gp import GP, Draw, Hyper
from fedbo.model.kernel import Array
from fedbo.model.surrogate import SurrogateSettings
from fedbo.policy.base import Beta, beta_at
from fedbo.space import Space

Standard = Callable[[Array], Array]

LONGEST = 200  # trials: a longer replay would take minutes
_STARTS = 3  # climbs for each draw
_SCREENED = 512  # points looked at before
_GROWTH = 1.5  # of the observations, until hyper-parameters are fitted again
_MEAN_SPREAD = 1.0  # standard units: what is believed of the objective's mean before any score


def replay(
    X: Array,
    y: Array,
    shared: NDArray[np.bool_],
    *,
    initial: Sequence[Array],
    space: Space,
    settings: Settings,
    standard: Standard,
    beta: Beta,
    draws: int,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Best v so far, (S, h) each, of the agent and of a solo agent on ``draws`` functions f_s.

    ``X`` (n, D) and ``y`` (n,) are the agent's observations, in order. Those that are ``shared``
    were not its policy's choice: the solo agents make them too. Where the first ones were its
    policy's, solo agents take the points of ``initial``.
    """
    truths = _truths(X, y, standard, settings.surrogate, draws, rng)
    solos = [_Solo(settings, X.shape[1], standard, rng) for _ in truths]
    more, t, h = list(initial), 0, min(len(X), LONGEST)
    for k in range(h):
        if shared[k]:
            for solo in solos:
                solo.tell(X[k], y[k])
            continue
        if more:
            places: Sequence[Array] = [more.pop(0)] * len(solos)
        else:
            t += 1
            f_t = [solo.draw(beta_at(beta, t)) for solo in solos]
            places = _argmaxima(f_t, space, solos, settings.repeats != "allow")
        for solo, truth, x in zip(solos, truths, places, strict=True):
            solo.tell(x, truth.score(x, rng))
    together = np.array([truth(X[:h]) for truth in truths])
    alone = np.array([f(np.array(solo.X)) for f, solo in zip(truths, solos, strict=True)])
    return np.maximum.accumulate(together, axis=1), np.maximum.accumulate(alone, axis=1)


class _Truth:
    """What the objective may be: a draw in standard units, and the way back to scores."""

    def __init__(self, f: Draw, mean: float, noise: float, z: Array, y: Array) -> None:
        self.f, self.mean, self.noise = f, mean, noise
        order = np.argsort(z)
        self.z, self.y = z[order], y[order]

    def __call__(self, X: Array, noise: float = 0.0) -> Array:
        """v at the rows of X, or scores if there is ``noise`` in standard units."""
        return _unstandard(self.mean + self.f(X) + noise, self.z, self.y)

    def score(self, x: Array, rng: np.random.Generator) -> float:
        """A score at x, as noisy as the agent believes its scores to be."""
        return float(self(x[None], self.noise * rng.standard_normal())[0])


def _unstandard(z: Array, zs: Array, ys: Array) -> Array:
    """The scores that z stand for, from what told scores ys became; both zs and ys rise.

    Beyond the ends it goes on as it came from the middle.
    """
    scores = np.interp(z, zs, ys)
    middle = len(zs) // 2
    for end, beyond in ((-1, z > zs[-1]), (0, z < zs[0])):
        if zs[end] != zs[middle]:
            rise = (ys[end] - ys[middle]) / (zs[end] - zs[middle])
            scores = np.where(beyond, ys[end] + rise * (z - zs[end]), scores)
    return scores


def _truths(
    X: Array,
    y: Array,
    standard: Standard,
    settings: SurrogateSettings,
    draws: int,
    rng: np.random.Generator,
) -> list[_Truth]:
    """Draws from what the agent believes, given all its scores."""
    z, fit = standard(y), settings.fit
    hyper = fit.default(X.shape[1]) if len(X) < settings.refit_every else fit(X, z, rng)
    gp = GP(hyper, X)
    ones = np.ones(len(X))
    precision = float(ones @ gp.solve(ones)) + _MEAN_SPREAD**-2
    centre = float(ones @ gp.solve(z)) / precision
    truths = []
    for mean in centre + rng.standard_normal(draws) / np.sqrt(precision):
        gp.set_scores(z - mean)
        f = gp.sample(rng)
        assert isinstance(f, Draw)
        truths.append(_Truth(f, float(mean), float(np.sqrt(hyper.noise_variance)), z, y))
    return truths


class _Solo:
    """One solo agent: what it was told, and what it believes."""

    def __init__(
        self, settings: Settings, dimensions: int, standard: Standard, rng: np.random.Generator
    ) -> None:
        self.dimensions = dimensions
        self.X: list[Array] = []
        self.y: list[float] = []
        self.settings, self.standard, self.rng = settings.surrogate, standard, rng
        self._hyper: Hyper | None = None
        self._fitted = 0
        self._gp: GP | None = None

    def tell(self, x: Array, score: float) -> None:
        self.X.append(x)
        self.y.append(float(score))

    def best(self, n: int) -> Array:
        """Its best points, up to n."""
        return self.points()[np.argsort(self.y)[::-1][:n]]

    def points(self) -> Array:
        """All its points, (t, D)."""
        return np.array(self.X).reshape(-1, self.dimensions)

    def draw(self, beta: float) -> Draw:
        """f_t."""
        X, z = self.points(), self.standard(np.array(self.y))
        new = len(X) - self._fitted
        if new >= max(self.settings.refit_every, int((_GROWTH - 1.0) * self._fitted)):
            self._hyper = self.settings.fit(X, z, self.rng, self._hyper)
            self._fitted, self._gp = len(X), None
        if self._gp is None:
            self._gp = GP(self._hyper or self.settings.fit.default(X.shape[1]), X)
        self._gp.add(X[len(self._gp) :])
        self._gp.set_scores(z)
        f_t = self._gp.sample(self.rng, beta)
        assert isinstance(f_t, Draw)
        return f_t


def _argmaxima(
    draws: Sequence[Draw], space: Space, solos: Sequence[_Solo], no_repeats: bool
) -> list[Array]:
    """Where each draw is largest; on a listed domain, where its agent was not, if so wished."""
    if space.points is None:
        return _climbed(draws, space, solos)
    places = []
    for f, solo in zip(draws, solos, strict=True):
        values = f(space.points.astype(np.float32))
        if no_repeats and len(solo.X) < len(space.points):
            tried = {x.tobytes() for x in solo.X}
            values[[x.tobytes() in tried for x in space.points]] = -np.inf
        places.append(space.points[int(np.argmax(values))])
    return places


def _climbed(draws: Sequence[Draw], space: Space, solos: Sequence[_Solo]) -> list[Array]:
    """`fedbo.model.argmax` for many functions at once: screen each, then climb together."""
    screen = _screening_set(space)
    starts = []
    for s, (f, solo) in enumerate(zip(draws, solos, strict=True)):
        X = np.concatenate([solo.best(2).astype(np.float32), screen])
        X = X[_apart(X, f(X), np.minimum(f.length_scales, 0.5))]
        starts.append(np.column_stack([X, np.full(len(X), s)]))
    Z = np.concatenate(starts).astype(np.float64)  # the last column says whose climb it is
    Z[:, :-1] = space.snap(Z[:, :-1])
    fixed = np.append(~space.free, True)
    scales = np.exp(np.mean([np.log(f.length_scales) for f in draws], axis=0))
    tops, values = ascend(
        _Together(draws, np.array([solo.points() for solo in solos])),
        Z,
        np.where(fixed, Z, 0.0),
        np.where(fixed, Z, 1.0),
        scale=np.append(np.minimum(scales, 1.0), 1.0),
        turns=20,
        gain=1e-4,
        restarts=0,
    )
    places = []
    for s in range(len(draws)):
        rows = np.flatnonzero(Z[:, -1] == s)
        places.append(tops[rows[np.argmax(values[rows])], :-1])
    return places


class _Together:
    """The values and gradients of many draws, each at its own points: rows (x, s) of Z."""

    def __init__(self, draws: Sequence[Draw], X: Array) -> None:
        self.kernel = draws[0].kernel
        self.beta = draws[0].beta
        self.s, self.b, self.r = (
            np.array([getattr(f.prior, name) for f in draws]) for name in ("s", "b", "r")
        )
        self.scales = np.array([f.length_scales for f in draws])
        self.U = X / self.scales[:, None]  # observations (S, n, D), in length scales
        self.weights = np.array([f.v for f in draws])

    def __call__(self, Z: Array) -> tuple[Array, Array]:
        rows, X = Z[:, -1].astype(np.intp), Z[:, :-1]
        s, r, scales = self.s[rows], self.r[rows], self.scales[rows]
        angles = np.matmul(s, X[:, :, None])[:, :, 0] + self.b[rows]
        gaps = (X / scales)[:, None, :] - self.U[rows]
        k, slope = self.kernel.value_and_slope(np.einsum("rnd,rnd->rn", gaps, gaps))
        weights = self.weights[rows]
        values = self.beta * (np.cos(angles) * r).sum(axis=1) + (k * weights).sum(axis=1)
        waves = np.matmul((np.sin(angles) * r)[:, None, :], s)[:, 0]
        pull = np.matmul((slope * weights)[:, None, :], gaps)[:, 0] * (2.0 / scales)
        return values, np.column_stack([pull - self.beta * waves, np.zeros(len(Z))])


def _screening_set(space: Space) -> Array:
    from scipy.stats.qmc import Sobol  # slow to import, so only where it is used

    X = Sobol(space.dimensions, rng=0).random(_SCREENED)
    return space.snap(np.clip((X - 0.5) * 1.05 + 0.5, 0.0, 1.0).astype(np.float32))


def _apart(X: Array, values: Array, scales: Array) -> list[int]:
    """Rows of the best few points of X that lie at least ``scales`` from every better one."""
    U, values, rows = X / scales.astype(X.dtype), values.copy(), []
    for _ in range(_STARTS):
        rows.append(int(np.argmax(values)))
        gaps = U - U[rows[-1]]
        values[np.einsum("ij,ij->i", gaps, gaps) < 1.0] = -np.inf
        if not np.isfinite(values).any():
            break
    return rows
