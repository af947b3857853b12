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
the mean, the others differ from it as members do. Where most members vote is where to look first:
the tips of the draws are the points of the three most voted cells where the mean is highest.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from fedbo.federation.calibration import (
    STEP,
    second_moments_of,
    sums_deviation,
    sums_variance,
    votes_scale,
)
from fedbo.federation.federation import Federation
from fedbo.message import Message
from fedbo.message.message import Contribution
from fedbo.message.release import DRAWS, Release
from fedbo.message.signed import COUNTER_LIMITS
from fedbo.privacy.accounting import Gaussian, Laplace
from fedbo.privacy.contribution import lifted, second_moments, to_shape, unit
from fedbo.privacy.noise import SECRET, Source, discrete_gaussian, discrete_laplace
from fedbo.space.axis import Array

if TYPE_CHECKING:
    from fedbo.federation.shared import Shared
    from fedbo.message.inbox import Held

#: The unit of the votes is 1/64: with a finer grid, Laplace and Gaussian noise together cost less.
STEPS = 64
#: Number of cells that a release recommends.
FIRST = 3

_BELOW = 1.0 - 2.0**-40  # so that rounding errors of v cannot make it longer than √(1 + c²)
_CLAIM = 10  # times the usual number of trials


def mechanisms(published: Release) -> tuple[Laplace, Gaussian]:
    """Return what the accountant needs to know of a release."""
    largest = math.sqrt(1.0 + published.weight**2)  # what one member can change the sum by
    return (
        Laplace(published.votes_scale, steps=STEPS),
        Gaussian(published.sums_deviation / largest, steps=int(largest / STEP)),
    )


def release(
    federation: Federation,
    contributions: Sequence[Message | None],
    *,
    trials: int | None = None,
    sequence: int = 1,
    source: Source = SECRET,
) -> Release:
    """Sum up contributions, add noise, and return what may be published.

    Nothing is recorded here, and no budget is kept: `fedbo.privacy.next_release` does that, and is
    what a real release needs.

    Args:
        federation: What the members agree on, with its privacy plan.
        contributions: One contribution of each member; None for a member whose contribution is
            empty. The length of this list is public.
        trials: The number of trials of all members together, which is public; by default those
            that the contributions name.
        sequence: The number of this release, from 1; a later one replaces it.
        source: The source of randomness; the system's secret one by default. Any other is for
            tests: whoever can predict the noise can remove it.
    """
    return noisy(federation, composed(federation, contributions, trials, sequence), source)


def composed(
    federation: Federation,
    contributions: Sequence[Message | None],
    trials: int | None,
    sequence: int,
) -> Release:
    """Check contributions and sum them up: a `release` without its noise, which must not leave."""
    if not contributions:
        raise ValueError("there are no contributions: a release needs at least one member")
    from fedbo.federation.shared import Shared  # a hub needs it for releases only

    plan, shared = federation.require_plan(), Shared.of(federation)
    d = shared.shape_coordinates
    c, e = second_moments_of(len(contributions), d)
    votes = np.zeros(len(shared.cells), dtype=np.int64)
    sums = np.zeros(d + e * (e + 1) // 2, dtype=np.int64)
    present = [message for message in contributions if message is not None]
    for message in present:
        shared.check(message)
        assert isinstance(message.body, Contribution)  # in a federation with a plan
        votes[message.body.cell] += STEPS
        v = lifted(unit(message.body.y.astype(np.float64)), c, e)
        sums += np.trunc(v * (_BELOW / STEP)).astype(np.int64)
    if trials is None:  # no claim counts for more than ten usual ones
        counts = np.array([message.t_n for message in present] or [0])
        most = min(_CLAIM * np.median(counts), COUNTER_LIMITS["t_n"] // len(counts))
        trials = int(np.minimum(counts, most).sum())
    return Release(
        fingerprint=federation.fingerprint,
        sender=plan.by,
        sequence=sequence,
        basis=shared.digest,
        epsilon=plan.epsilon,
        delta=plan.delta,
        releases=plan.releases,
        members=len(contributions),
        trials=trials,
        votes=tuple(votes.tolist()),
        votes_scale=float(votes_scale(plan)),
        sums=tuple(sums.tolist()),
        sums_deviation=sums_deviation(plan, c),
        weight=c,
        squared=e,
    )


def noisy(federation: Federation, quiet: Release, source: Source) -> Release:
    """Return what `composed` returned with its noise, which may leave."""
    plan = federation.require_plan()
    scale, variance = votes_scale(plan) * STEPS, sums_variance(plan, quiet.weight)
    votes = quiet.votes + discrete_laplace(scale, len(quiet.votes), source=source)
    sums = quiet.sums + discrete_gaussian(variance, len(quiet.sums), source=source)
    return replace(quiet, votes=tuple(votes.tolist()), sums=tuple(sums.tolist()))


# What a target makes of a release


def voted_points(shared: Shared, published: Release) -> Array:
    """Return where the noisy mean is highest in each of the most voted cells, (3, D)."""
    m, _, _ = mean_and_spread(published)
    points = shared.points
    psi = shared.basis.coordinates(points)[:, : len(m)]
    values, cells = psi @ (m / to_shape(shared)), shared.nearest_cells(points)
    most = np.argsort(-np.array(published.votes), kind="stable")[:FIRST]
    return np.array([points[np.where(cells == cell, values, -np.inf).argmax()] for cell in most])


def mean_and_spread(published: Release) -> tuple[Array, float, Array]:
    """Return the mean m (d,), its variance in each direction, and the covariance V (d, d)."""
    d, e, N = published.coordinates, published.squared, published.members
    s = published.sums_deviation / N
    mean = np.array(published.sums[:d]) * STEP / N
    shrunk = max(0.0, 1.0 - d * s**2 / max(float(mean @ mean), 1e-300))
    m = shrunk * mean
    m /= max(1.0, float(np.linalg.norm(m)))
    A = second_moments(np.array(published.sums[d:]) * STEP / (N * published.weight), e)
    lam, Q = np.linalg.eigh(A - np.outer(m[:e], m[:e]))
    edge = np.sqrt(2.0 * e) * s / published.weight  # the largest eigenvalue of noise alone
    lam = np.where(lam > edge, lam - edge**2 / np.maximum(lam, edge), 0.0)
    V = np.zeros((d, d))
    V[:e, :e] = (Q * lam) @ Q.T
    rest = max(0.0, 1.0 - float(m @ m) - float(lam.sum()))
    return m, shrunk * s**2, V + rest / d * np.eye(d)


def draws(shared: Shared, published: Release, rng: np.random.Generator) -> Array:
    """Return z (64, k) of functions that stand for peers, each with variance 1 over the space."""
    factors, basis = to_shape(shared), shared.basis
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


def held_draws(shared: Shared, published: Release) -> list[Held]:
    """Return what an inbox holds of the draws, in the form that the federation's kind has there.

    The tip of each draw is the one of `voted_points` that it likes best. The draws are the same for
    everyone who holds the release.
    """
    from fedbo.message.inbox import Held  # only agents have an inbox

    federation, basis = shared.federation, shared.basis
    digest = hashlib.sha256(published.content).digest()
    Z = draws(shared, published, np.random.default_rng(list(digest)))
    voted = voted_points(shared, published)
    tips = voted[(basis.coordinates(voted) @ Z.T).argmax(axis=0)]
    R = np.eye(len(basis))[: published.coordinates]  # all that a draw is certain of
    if not federation.is_compact:
        B = basis.vectors
        Z, R = Z @ B.T, R @ B.T
    numbers, known = Z.astype(np.float32), R.astype(np.float32)
    t_n = max(1, published.trials // published.members)
    return [
        Held(
            name,
            published.sequence,
            t_n,
            z if federation.kind == "weights" else (z, known),
            0.0 if federation.kind == "belief" else math.nan,
            tip,
        )
        for name, z, tip in zip(published.names, numbers, tips, strict=True)
    ]
