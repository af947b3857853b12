"""What releases cost: (ε, δ) of everything that was released, as an upper bound.

==============  ===============================================================================
symbol          meaning
==============  ===============================================================================
epsilon, delta  the promise: for neighbouring federations, P(S) ≤ e^ε P'(S) + δ for every set S
                of outcomes
z               noise multiplier: standard deviation of Gaussian noise, divided by the largest
                change (L2) that one member can cause
mu              μ = 1/z; releases with z_1, …, z_R are together one release with μ² = Σ 1/z_i²
scale           of Laplace noise, divided by the largest change (L1) that one member can cause
steps           how many steps of the grid of discrete noise the largest change has
==============  ===============================================================================

**Neighbours** are two federations in which one member's contribution, in all releases, is replaced
by an empty one. dp-accounting calls this REPLACE_SPECIAL, and its results are those of adding or
removing one. Who is a member, and how many there are, is not protected.

**Discrete noise.** Releases have noise over the integers (`noise`), which is not the same as noise
over the real numbers, and ``steps`` says how fine its grid is.

- Discrete Laplace noise protects less than Laplace noise of the same scale when it is composed with
  something else. With one step it is as bad as any mechanism with ε = 1 / scale: together with
  Gaussian noise for (1, 10⁻³), scale 1 costs ε = 1.958 in one step, 1.915 in 16, and 1.914 over the
  real numbers. A grid with m times as many steps protects at least as well: its noise is that of
  the coarse grid plus the difference of two independent numbers from 0 to m − 1.
- Discrete Gaussian noise of variance σ² (in steps) protects as well as Gaussian noise of variance
  σ² − 9. To see this, add Gaussian noise of variance σ² − 9, then draw a discrete Gaussian number
  of variance 9 around the result in each coordinate. By Poisson's summation formula, all sums over
  the grid differ from integrals by factors within 1 ± 2e^(−18π²), below 10⁻⁷⁶; so the outcome is
  discrete Gaussian noise of variance σ², up to such factors, and was made from the noisy value
  without looking at the data again. The accountant subtracts the 9, and neglects the factors.

References: Canonne, Kamath and Steinke (The discrete Gaussian for differential privacy, 2020);
Doroshenko et al. (Connect the dots, 2022), whose privacy loss distributions (PLD) are those of
dp-accounting.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from fedbo.federation.calibration import gaussian_delta, smallest

#: Below this δ, rounding errors of a PLD (it is composed by Fourier transforms) would count.
LEAST_DELTA = 1e-12

_SPREAD = 3.0  # steps: see "Discrete noise"
_POINTS = 1000  # of a PLD between 0 and ε, at least
_MOST_POINTS = 100_000  # of a PLD altogether, about
_MEANINGLESS = 500.0  # an ε beyond which no PLD is computed: its numbers would overflow


class Mechanism(Protocol):
    """A release as the accountant sees it. It costs at most pure + ε of Gaussian noise with mu."""

    @property
    def pure(self) -> float: ...

    @property
    def mu(self) -> float: ...

    def distribution(self, library: Any, interval: float) -> Any:
        """Return the privacy loss distribution, as an object of dp-accounting."""


class Laplace(msgspec.Struct, frozen=True):
    """A release with discrete Laplace noise in each coordinate.

    Args:
        scale: Scale of the noise, divided by the L1 sensitivity.
        steps: The L1 sensitivity in steps of the grid.
    """

    scale: float
    steps: int

    def __post_init__(self) -> None:
        _check_positive("scale", self.scale)

    @property
    def pure(self) -> float:
        return 1.0 / self.scale

    @property
    def mu(self) -> float:
        return 0.0

    def distribution(self, library: Any, interval: float) -> Any:
        return library.pld.privacy_loss_distribution.from_discrete_laplace_mechanism(
            self.pure / self.steps, self.steps, value_discretization_interval=interval
        )


class Gaussian(msgspec.Struct, frozen=True):
    """A release with Gaussian noise in each coordinate.

    Args:
        multiplier: z, standard deviation (for discrete noise: √sigma2) over L2 sensitivity.
        steps: The L2 sensitivity in steps of the grid, rounded down, if the noise is discrete; 0
            (default) means noise over the real numbers. Contributions must be rounded to the grid
            so that none becomes longer: towards zero, not to the nearest step.

    >>> Gaussian(2.0).effective, round(Gaussian(2.0, steps=100).effective, 6)
    (2.0, 1.999775)
    """

    multiplier: float
    steps: int = 0

    def __post_init__(self) -> None:
        _check_positive("multiplier", self.multiplier)
        if self.steps and self.multiplier * self.steps <= _SPREAD:
            raise ValueError(
                f"multiplier is {self.multiplier} and steps is {self.steps}, so the standard "
                f"deviation is {self.multiplier * self.steps:g} steps; it must exceed {_SPREAD:g}"
            )

    @property
    def effective(self) -> float:
        """The noise multiplier over the real numbers that protects no better."""
        if not self.steps:
            return self.multiplier
        spread = _SPREAD / self.steps  # (z − s)(z + s) loses fewer digits than z² − s²
        return math.sqrt((self.multiplier - spread) * (self.multiplier + spread))

    @property
    def pure(self) -> float:
        return 0.0

    @property
    def mu(self) -> float:
        return 1.0 / self.effective

    def distribution(self, library: Any, interval: float) -> Any:
        return library.pld.privacy_loss_distribution.from_gaussian_mechanism(
            self.effective,
            value_discretization_interval=interval,
            neighboring_relation=library.NeighboringRelation.REPLACE_SPECIAL,
        )


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest ε of Gaussian releases at δ, exactly.

    >>> round(gaussian_epsilon(1 / 3.731, 1e-5), 3), round(gaussian_epsilon(2 / 3.731, 1e-5), 3)
    (1.0, 2.154)
    """
    if not 0.0 <= delta < 1.0:
        raise ValueError(f"delta is {delta}; it must be at least 0 and below 1")
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    if delta == 0:
        return math.inf
    # Concentrated differential privacy gives an ε that is certainly large enough.
    enough = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))
    return smallest(lambda epsilon: gaussian_delta(mu, epsilon) <= delta, enough)


def epsilon(mechanisms: Iterable[Mechanism], delta: float) -> float:
    """Return ε of everything that was released: the smaller of `epsilon_basic` and a PLD's.

    No PLD is computed where `epsilon_basic` is exact (for Gaussian releases alone), nor if δ is
    below 10⁻¹².

    Args:
        mechanisms: What was released. The noise of every release must have been fixed before the
            first one was seen.
        delta: δ, from 0 to below 1.

    Raises:
        ModuleNotFoundError: The package dp-accounting is needed and is not installed.

    >>> both = Laplace(scale=1.0, steps=64), Gaussian(multiplier=2.575)
    >>> round(epsilon(both, 1e-3), 3), round(epsilon_basic(both, 1e-3), 3)
    (1.914, 2.0)
    """
    released = tuple(mechanisms)
    bound = epsilon_basic(released, delta)
    exact = all(isinstance(mechanism, Gaussian) for mechanism in released)
    if exact or bound == 0 or delta < LEAST_DELTA or bound > _MEANINGLESS:
        return bound
    library = _library()
    # The grid is fine enough for ε, and not too fine for the memory. It is a power of 10, so that
    # one more release seldom changes it. dp-accounting leaves out a mass of e^−50: ε at that δ is
    # about where a PLD ends.
    fine = 10.0 ** math.floor(math.log10(max(bound, 1e-6) / _POINTS))
    interval = max(fine, epsilon_basic(released, math.exp(-50)) / _MOST_POINTS)
    nothing = library.pld.privacy_loss_distribution.identity
    total = nothing(value_discretization_interval=interval)
    for mechanism, count in Counter(released).items():
        total = total.compose(mechanism.distribution(library, interval).self_compose(count))
    return min(bound, float(total.get_epsilon_for_delta(delta)))


def epsilon_basic(mechanisms: Iterable[Mechanism], delta: float) -> float:
    """Return the sum of what pure mechanisms and all Gaussian ones cost: a cross-check.

    >>> epsilon_basic([Laplace(scale=2.0, steps=1), Laplace(scale=4.0, steps=1)], 0.0)
    0.75
    """
    released = tuple(mechanisms)
    mu = math.hypot(*(mechanism.mu for mechanism in released))
    return math.fsum(mechanism.pure for mechanism in released) + gaussian_epsilon(mu, delta)


def _library() -> Any:
    try:
        import dp_accounting
        import dp_accounting.pld
    except ImportError as error:
        raise ModuleNotFoundError(
            "the privacy of different kinds of releases together is computed with the package "
            "dp-accounting, which fedbo does not install by default: pip install 'fedbo[privacy]'"
        ) from error
    return dp_accounting


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} is {value}; it must be positive and finite")
