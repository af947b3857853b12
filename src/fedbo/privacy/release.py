"""A private release: the noisy votes, mean and spread of many members, published once.

======  =========================================================================  =======
symbol  meaning                                                                    shape
======  =========================================================================  =======
N       number of members, which is public                                         scalar
y, v    shape of a member, and the same with its second moments; `contribution`    (d,) (n,)
σ       standard deviation of the Gaussian noise for a sensitivity of 1            scalar
s       √(1 + c²) σ / N, the noise of each coordinate of the mean                  scalar
m       mean of the shapes, shrunk by what the noise adds to its length            (d,)
V       their covariance, as far as it rises above the noise                       (d, d)
z       coordinates of a function of the features, see `Basis`                     (k,)
======  =========================================================================  =======

**Neighbours.** Two federations are neighbours if the contribution of one member is replaced by an
empty one: no vote and v = 0. Who is a member, N and the numbers of trials are public. Then the
histogram of the votes changes by 1 in one place, and Σ v_n by at most √(1 + c²). Half of ε pays for
the votes, with discrete Laplace noise of scale 2/ε; the other half, and δ, for the sum, with
discrete Gaussian noise.

**Integers.** The last bits of floating-point noise give away what it was added to. So the sum is
one of integers: each v_n is rounded towards 0 to multiples of `STEP`, which never makes it longer,
and both kinds of noise are exact samples over the integers, from the system's secret randomness.

**What a target makes of it.** It knows the noise. The mean is shrunk as James and Stein do; of the
covariance only the eigenvalues above the noise are kept, and what is missing to the length 1 of all
shapes is spread evenly. 64 draws then stand for peers: half of them are uncertain only about
the mean, the others differ from it as members do. Where most members vote is where to look first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import msgspec
import numpy as np

from fedbo.federation import Federation
from fedbo.message import Message
from fedbo.message.message import Header
from fedbo.model.kernel import Array
from fedbo.privacy.accounting import Gaussian, Laplace, gaussian_sigma
from fedbo.privacy.contribution import Contribution, lifted, second_moments, to_shape, unit
from fedbo.privacy.noise import SECRET, Source, discrete_gaussian, discrete_laplace

#: The unit of the sums.
STEP = 2.0**-20
#: The unit of the votes is 1/64: with a finer grid, Laplace and Gaussian noise together cost less.
STEPS = 64
#: Number of draws that a target takes for peers.
DRAWS = 64
#: Number of cells that a newcomer tries first.
FIRST = 2

_DISCRETE = 9  # what the accountant subtracts from the variance of discrete noise
_BELOW = 1.0 - 2.0**-40  # so that rounding errors of v cannot make it longer than √(1 + c²)
_MANY = 300  # members from which the second moments of all coordinates are worth their noise


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """What a trusted party publishes of its members' contributions. It describes itself.

    Args:
        epsilon: ε that this release costs each member, at most.
        delta: δ of the same guarantee.
        members: N, the number of members.
        trials: Number of trials of all members together.
        votes: For each cell the number of votes, in 64ths, with noise.
        votes_scale: Scale of the discrete Laplace noise, in votes.
        sums: Σ v_n in multiples of `STEP`, with noise.
        sums_deviation: Standard deviation of the discrete Gaussian noise, in the same unit as v.
        weight: c.
        squared: e, the number of coordinates with second moments.
    """

    epsilon: float
    delta: float
    members: int
    trials: int
    votes: tuple[int, ...]
    votes_scale: float
    sums: tuple[int, ...]
    sums_deviation: float
    weight: float
    squared: int

    @property
    def coordinates(self) -> int:
        """The number d of coordinates."""
        return len(self.sums) - self.squared * (self.squared + 1) // 2

    @property
    def mechanisms(self) -> tuple[Laplace, Gaussian]:
        """What the accountant needs to know of this release."""
        largest = math.sqrt(1.0 + self.weight**2)  # what one member can change the sum by
        return (
            Laplace(self.votes_scale, steps=STEPS),
            Gaussian(self.sums_deviation / largest, steps=int(largest / STEP)),
        )


def release(
    federation: Federation,
    contributions: Sequence[Contribution | None],
    *,
    epsilon: float,
    delta: float,
    trials: int,
    source: Source = SECRET,
) -> Release:
    """Sum up contributions, add noise, and return what may be published.

    Args:
        federation: What the members agree on.
        contributions: The contribution of each member; None for a member that has none. The length
            of this list is public.
        epsilon: ε, above 0.
        delta: δ, above 0 and below 1.
        trials: The number of trials of all members together, which is public.
        source: The source of randomness; the system's secret one by default. Any other is for
            tests: whoever can predict the noise can remove it.
    """
    if not contributions:
        raise ValueError("there are no contributions: a release needs at least one member")
    if not 0.0 < epsilon < math.inf or not 0.0 < delta < 1.0:
        raise ValueError(
            f"epsilon is {epsilon} and delta is {delta}, expected epsilon above 0, not infinite, "
            "and delta between 0 and 1"
        )
    d, cells = len(to_shape(federation)), len(federation.cells)
    c, e = (1.0, d) if len(contributions) >= _MANY else (0.5, min(6, d))
    votes = np.zeros(cells, dtype=np.int64)
    sums = np.zeros(d + e * (e + 1) // 2, dtype=np.int64)
    for given in contributions:
        if given is not None:
            votes[_checked_cell(given.cell, cells)] += 1
            v = lifted(unit(_checked_shape(given.y, d)), c, e)
            sums += np.trunc(v * (_BELOW / STEP)).astype(np.int64)
    scale = Fraction(2) / Fraction(epsilon)
    sensitivity2 = (1 + Fraction(c) ** 2) / Fraction(STEP) ** 2  # squared, in steps
    sigma2 = Fraction(gaussian_sigma(epsilon / 2, delta)) ** 2 * sensitivity2 + _DISCRETE
    votes = votes * STEPS + discrete_laplace(scale * STEPS, cells, source=source)
    sums += discrete_gaussian(sigma2, len(sums), source=source)
    return Release(
        epsilon=epsilon,
        delta=delta,
        members=len(contributions),
        trials=trials,
        votes=tuple(votes.tolist()),
        votes_scale=float(scale),
        sums=tuple(sums.tolist()),
        sums_deviation=math.sqrt(sigma2) * STEP,
        weight=c,
        squared=e,
    )


def _checked_cell(cell: int, cells: int) -> int:
    # True as an index would vote for all cells at once
    whole = isinstance(cell, int | np.integer) and not isinstance(cell, bool)
    if not whole or not 0 <= cell < cells:
        raise ValueError(f"a contribution votes for cell {cell}, expected 0 to {cells - 1}")
    return cell


def _checked_shape(y: Array, d: int) -> Array:
    """Return y as an array of 64-bit numbers, because `_BELOW` is made for their rounding errors.

    Masked arrays lose their masks, which could hide what is not finite.
    """
    given = np.asarray(y)
    if given.shape != (d,) or given.dtype.kind not in "fiu":
        raise ValueError(
            f"a contribution has shape {given.shape} and type {given.dtype}, expected {d} finite "
            "numbers"
        )
    with np.errstate(over="ignore"):  # what is too large becomes infinite
        numbers = given.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError(f"a contribution has infinite numbers or NaN, expected {d} finite numbers")
    return numbers


# What a target makes of a release


def first_cells(published: Release) -> list[int]:
    """Return the cells with the most votes, the best first: a newcomer's first trials.

    Args:
        published: The release.
    """
    order = np.argsort(-np.array(published.votes), kind="stable")
    return [int(cell) for cell in order[:FIRST]]


def mean_and_spread(published: Release) -> tuple[Array, float, Array]:
    """Return the mean m (d,), its variance in each direction, and the covariance V (d, d).

    Args:
        published: The release.
    """
    d, e, N = published.coordinates, published.squared, published.members
    s = published.sums_deviation / N
    mean = np.array(published.sums[:d]) * STEP / N
    shrunk = max(0.0, 1.0 - d * s**2 / max(float(mean @ mean), 1e-300))
    m = shrunk * mean
    m /= max(1.0, float(np.linalg.norm(m)))
    A = second_moments(np.array(published.sums[d:]) * STEP / (N * published.weight), e)
    lam, Q = np.linalg.eigh(A - np.outer(m[:e], m[:e]))
    edge = np.sqrt(2.0 * e) * s / published.weight  # the largest eigenvalue of noise alone
    lam = np.where(lam > edge, lam - edge**2 / np.maximum(lam, 1e-300), 0.0)
    V = np.zeros((d, d))
    V[:e, :e] = (Q * lam) @ Q.T
    rest = max(0.0, 1.0 - float(m @ m) - float(lam.sum()))
    return m, shrunk * s**2, V + rest / d * np.eye(d)


def draws(federation: Federation, published: Release, rng: np.random.Generator) -> Array:
    """Return z (64, k) of functions that stand for peers, each with variance 1 over the space.

    Args:
        federation: What the members agree on.
        published: The release.
        rng: Draws them.
    """
    factors, basis = to_shape(federation), federation.basis
    d = len(factors)
    m, variance, V = mean_and_spread(published)
    Y = m + np.sqrt(variance) * rng.standard_normal((DRAWS, d))
    lam, Q = np.linalg.eigh(V)
    half = DRAWS // 2
    Y[half:] += (rng.standard_normal((half, d)) * np.sqrt(np.maximum(lam, 0.0))) @ Q.T
    Z = np.zeros((DRAWS, len(basis)))
    Z[:, :d] = Y / factors
    size = np.sqrt((Z * Z) @ basis.lam)
    return Z / np.maximum(size, 1e-12)[:, None]


def as_messages(
    federation: Federation, published: Release, rng: np.random.Generator
) -> list[Message]:
    """Return the draws as messages of the federation's kind, which any policy can use.

    Args:
        federation: What the members agree on; its kind is "summary" or "weights".
        published: The release.
        rng: Draws them.
    """
    Z, k = draws(federation, published, rng), len(federation.basis)
    unknown = np.diag((np.arange(k) >= published.coordinates).astype(float))
    found = []
    for i, z in enumerate(Z):
        header: Header = {
            "fingerprint": federation.fingerprint,
            "epoch": federation.epoch,
            "sender": f"release-{i:02}",
            "sequence": 1,
            "t_n": max(1, published.trials // published.members),
        }
        if federation.is_summarised:
            found.append(Message.of_summary(z, unknown, 0 if federation.votes else None, **header))
        else:
            found.append(Message.of_weights(federation.basis.vectors @ z, **header))
    return found
