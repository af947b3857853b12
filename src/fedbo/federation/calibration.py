"""How much noise the releases of a privacy plan need: all of it follows from the plan.

==============  ================================================================================
symbol          meaning
==============  ================================================================================
epsilon, delta  the promise, see `fedbo.privacy.accounting`
z               noise multiplier: standard deviation of Gaussian noise, divided by the largest
                change (L2) that one member can cause
mu              μ = 1/z
c               weight of the second moments: the sums change by at most √(1 + c²)
e               how many coordinates have second moments
==============  ================================================================================

Half of ε pays for the votes, with discrete Laplace noise; the other half, and δ, for the sums, with
discrete Gaussian noise. Who makes a release and who receives it compute both here.

Reference: Balle and Wang (Improving the Gaussian mechanism, 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from fedbo.federation.plan import Plan
from fedbo.message.release import Release

#: The unit of the sums.
STEP = 2.0**-20

_DISCRETE = 9  # what the accountant subtracts from the variance of discrete noise
_MANY = 300  # members from which the second moments of all coordinates are worth their noise
_PRECISION = 1e-13  # of σ and ε, relative
_ROUNDING = 1e-9  # by which σ may differ on another processor, relative; more than enough


def votes_scale(plan: Plan) -> Fraction:
    """Return the scale of the noise of the votes, in votes."""
    return 2 * plan.releases / Fraction(plan.epsilon)


def sums_variance(plan: Plan, c: float) -> Fraction:
    """Return the variance of the noise of the sums, in steps²."""
    sigma2 = plan.releases * Fraction(gaussian_sigma(plan.epsilon / 2, plan.delta)) ** 2
    return sigma2 * (1 + Fraction(c) ** 2) / Fraction(STEP) ** 2 + _DISCRETE


def sums_deviation(plan: Plan, c: float) -> float:
    """Return the standard deviation of the noise of the sums."""
    return math.sqrt(sums_variance(plan, c)) * STEP


def mean_noise(plan: Plan, members: int) -> float:
    """Return s, the standard deviation of the noise in each coordinate of the mean."""
    c, _ = second_moments_of(members, 1)
    return sums_deviation(plan, c) / members


def second_moments_of(members: int, d: int) -> tuple[float, int]:
    """Return c and e, for a number of members with shapes of d coordinates."""
    return (1.0, d) if members >= _MANY else (0.5, min(6, d))


def noise_fault(plan: Plan, release: Release) -> str | None:
    """Say how the noise of a release differs from what its plan asks for; None if it does not.

    Less noise breaks the promise to members. More would spend their budget on a release that says
    less than was agreed.
    """
    c, e = second_moments_of(release.members, release.coordinates)
    if (release.weight, release.squared) != (c, e):
        return (
            f"its second moments have weight {release.weight:g} and {release.squared} coordinates, "
            f"expected {c:g} and {e} with {release.members:,} members"
        )
    for name, stated, planned in (
        ("votes_scale", release.votes_scale, float(votes_scale(plan))),
        ("sums_deviation", release.sums_deviation, sums_deviation(plan, c)),
    ):
        if not math.isclose(stated, planned, rel_tol=_ROUNDING):
            word = "less" if stated < planned else "more"
            return (
                f"{name} is {stated:g}, expected {planned:g}: it has {word} noise than the plan "
                "asks for"
            )
    return None


# Gaussian noise


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the smallest δ of Gaussian releases at ε ≥ 0, exactly.

    >>> round(gaussian_delta(1 / 2.575, 1.0), 5)
    0.001
    """
    from scipy.special import log_ndtr  # takes long to load: a hub of messages never needs it

    if mu == 0 or math.isinf(epsilon):
        return 0.0
    # Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), without e^ε, which may overflow
    first = log_ndtr(mu / 2 - epsilon / mu)
    second = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return float(-np.exp(first) * np.expm1(min(second - first, 0.0)))


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Return the smallest multiplier z of Gaussian noise for (ε, δ), 0 < δ < 1 (Balle and Wang).

    >>> round(gaussian_sigma(1.0, 1e-3), 3), round(gaussian_sigma(1.0, 1e-5), 3)
    (2.575, 3.731)
    """
    logs = -math.log(delta)
    # Concentrated differential privacy gives a z that is certainly large enough:
    # √ρ = √(log 1/δ + ε) − √(log 1/δ), z² = 1 / 2ρ
    enough = (math.sqrt(logs + epsilon) + math.sqrt(logs)) / (math.sqrt(2) * epsilon)
    return smallest(lambda z: gaussian_delta(1.0 / z, epsilon) <= delta, enough)


def smallest(is_safe: Callable[[float], bool], enough: float) -> float:
    """Return the smallest safe value, from above: what is returned was found to be safe."""
    low, high = 0.0, enough
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        if is_safe(middle):
            high = middle
        else:
            low = middle
    return high
