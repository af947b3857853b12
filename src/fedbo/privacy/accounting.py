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
q, T            rate and rounds of a Gaussian release that includes each member with chance q
alpha           order of a Rényi divergence
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

References: Balle and Wang (Improving the Gaussian mechanism, 2018); Mironov, Talwar and Zhang
(Rényi differential privacy of the sampled Gaussian mechanism, 2019); Canonne, Kamath and Steinke
(The discrete Gaussian for differential privacy, 2020); Doroshenko et al. (Connect the dots, 2022),
whose privacy loss distributions (PLD) are those of dp-accounting.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, log_ndtr, logsumexp

Array = NDArray[np.float64]

#: Orders of the Rényi divergences that are tried.
ORDERS = (*range(2, 257), 512, 1024, 2048, 4096)

#: Below this δ, rounding errors of a PLD (it is composed by Fourier transforms) would count.
LEAST_DELTA = 1e-12

MOST_STEPS = 2**16  #: of a grid of Laplace noise; the PLD has a point for each

_SPREAD = 3.0  # steps: see "Discrete noise"
_PRECISION = 1e-13  # of σ and ε, relative
_POINTS = 1000  # of a PLD between 0 and ε, at least
_MOST_POINTS = 100_000  # of a PLD altogether, about
_MEANINGLESS = 500.0  # an ε beyond which no PLD is computed: its numbers would overflow


class Pure(msgspec.Struct, frozen=True):
    """Any release that is ε-differentially private with δ = 0, such as randomised response."""

    epsilon: float

    def __post_init__(self) -> None:
        _check_positive("epsilon", self.epsilon)

    @property
    def pure(self) -> float:
        """ε at δ = 0."""
        return self.epsilon

    def renyi(self, alpha: int) -> float:
        """Return the Rényi divergence of order α, here that of randomised response."""
        heads = -math.log1p(math.exp(-self.epsilon))  # log of e^ε / (1 + e^ε)
        tails = heads - self.epsilon
        terms = alpha * heads + (1 - alpha) * tails, alpha * tails + (1 - alpha) * heads
        return float(np.logaddexp(*terms)) / (alpha - 1)

    def distribution(self, library: Any, interval: float) -> Any:
        """Return the privacy loss distribution, as an object of dp-accounting."""
        promise = library.pld.common.DifferentialPrivacyParameters(self.epsilon, 0.0)
        return library.pld.privacy_loss_distribution.from_privacy_parameters(
            promise, value_discretization_interval=interval
        )


class Laplace(msgspec.Struct, frozen=True):
    """A release with Laplace noise in each coordinate.

    Args:
        scale: Scale of the noise, divided by the L1 sensitivity.
        steps: The L1 sensitivity in steps of the grid, if the noise is discrete; 0 (default) means
            noise over the real numbers. For a grid finer than 65,536 steps, give a divisor.
    """

    scale: float
    steps: int = 0

    def __post_init__(self) -> None:
        _check_positive("scale", self.scale)
        _check_steps(self.steps)
        if self.steps > MOST_STEPS:
            raise ValueError(
                f"steps is {self.steps}; it must be at most {MOST_STEPS}. A divisor of the number "
                "of steps gives an upper bound of the cost"
            )

    @property
    def pure(self) -> float:
        """ε at δ = 0."""
        return 1.0 / self.scale

    def renyi(self, alpha: int) -> float:
        """Return the Rényi divergence of order α, or an upper bound if the noise is discrete."""
        if self.steps:
            return Pure(self.pure).renyi(alpha)
        terms = (alpha - 1) * self.pure, -alpha * self.pure
        shares = np.log([alpha / (2 * alpha - 1), (alpha - 1) / (2 * alpha - 1)])
        return float(np.logaddexp(*(shares + terms))) / (alpha - 1)

    def distribution(self, library: Any, interval: float) -> Any:
        """Return the privacy loss distribution, as an object of dp-accounting."""
        make = library.pld.privacy_loss_distribution
        if self.steps:
            return make.from_discrete_laplace_mechanism(
                self.pure / self.steps, self.steps, value_discretization_interval=interval
            )
        return make.from_laplace_mechanism(self.scale, value_discretization_interval=interval)


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
        _check_steps(self.steps)
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

    def renyi(self, alpha: int) -> float:
        """Return the Rényi divergence of order α."""
        return alpha / (2.0 * self.effective * self.effective)

    def distribution(self, library: Any, interval: float) -> Any:
        """Return the privacy loss distribution, as an object of dp-accounting."""
        return library.pld.privacy_loss_distribution.from_gaussian_mechanism(
            self.effective,
            value_discretization_interval=interval,
            neighboring_relation=library.NeighboringRelation.REPLACE_SPECIAL,
        )


class SubsampledGaussian(msgspec.Struct, frozen=True):
    """Rounds of Gaussian noise, each for a random part of the members that stays secret.

    Args:
        multiplier: z, standard deviation over L2 sensitivity.
        rate: q, the probability that a round includes a member, independently of all others.
        rounds: T, the number of rounds.
    """

    multiplier: float
    rate: float
    rounds: int

    def __post_init__(self) -> None:
        _check_positive("multiplier", self.multiplier)
        _require(0 < self.rate <= 1, f"rate is {self.rate}; it must be above 0 and at most 1")
        counted = isinstance(self.rounds, int) and self.rounds >= 1
        _require(counted, f"rounds is {self.rounds}; it must be a whole number, at least 1")

    @property
    def effective(self) -> float:
        """The noise multiplier of all rounds together, if each included everybody: a bound."""
        return self.multiplier / math.sqrt(self.rounds)

    def renyi(self, alpha: int) -> float:
        """Return the Rényi divergence of order α of all rounds (Mironov et al., section 3.3)."""
        if self.rate == 1:
            return Gaussian(self.effective).renyi(alpha)
        k = np.arange(alpha + 1)
        choose = gammaln(alpha + 1) - gammaln(k + 1) - gammaln(alpha - k + 1)
        chance = k * math.log(self.rate) + (alpha - k) * math.log1p(-self.rate)
        moment = k * (k - 1) / (2.0 * self.multiplier * self.multiplier)
        return self.rounds * float(logsumexp(choose + chance + moment)) / (alpha - 1)

    def distribution(self, library: Any, interval: float) -> Any:
        """Return the privacy loss distribution, as an object of dp-accounting."""
        return library.pld.privacy_loss_distribution.from_gaussian_mechanism(
            self.multiplier,
            value_discretization_interval=interval,
            sampling_prob=self.rate,
            neighboring_relation=library.NeighboringRelation.REPLACE_SPECIAL,
        ).self_compose(self.rounds)


#: What the accountant knows.
Mechanism = Pure | Laplace | Gaussian | SubsampledGaussian


def gaussian_delta(multipliers: Iterable[float], epsilon: float) -> float:
    """Return the smallest δ of Gaussian releases at ε, exactly.

    >>> round(gaussian_delta([2.575], 1.0), 5)
    0.001
    """
    _require(epsilon >= 0, f"epsilon is {epsilon}; it must be at least 0")
    return _delta(_combined(multipliers), epsilon)


def gaussian_epsilon(multipliers: Iterable[float], delta: float) -> float:
    """Return the smallest ε of Gaussian releases at δ, exactly.

    >>> round(gaussian_epsilon([3.731], 1e-5), 3), round(gaussian_epsilon([3.731] * 4, 1e-5), 3)
    (1.0, 2.154)
    """
    _check_delta(delta)
    mu = _combined(multipliers)
    if _delta(mu, 0.0) <= delta:
        return 0.0
    if delta == 0:
        return math.inf
    # Concentrated differential privacy gives an ε that is certainly large enough.
    enough = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))
    return _smallest(lambda epsilon: _delta(mu, epsilon) <= delta, enough)


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Return the smallest standard deviation of Gaussian noise for (ε, δ) (Balle and Wang).

    Args:
        epsilon: ε of the release.
        delta: δ of the release.
        sensitivity: The largest change (L2) that one member can cause (default 1).

    >>> round(gaussian_sigma(1.0, 1e-3), 3), round(gaussian_sigma(1.0, 1e-5), 3)
    (2.575, 3.731)
    """
    _check_positive("epsilon", epsilon)
    _check_positive("sensitivity", sensitivity)
    _require(0 < delta < 1, f"delta is {delta}; it must lie between 0 and 1")
    logs = -math.log(delta)
    # As in `gaussian_epsilon`: √ρ = √(log 1/δ + ε) − √(log 1/δ), z² = 1 / 2ρ
    enough = (math.sqrt(logs + epsilon) + math.sqrt(logs)) / (math.sqrt(2) * epsilon)
    return sensitivity * _smallest(lambda z: _delta(1.0 / z, epsilon) <= delta, enough)


def epsilon(mechanisms: Iterable[Mechanism], delta: float) -> float:
    """Return ε of everything that was released: the smallest upper bound that is known.

    This is the smallest of `epsilon_pld`, `epsilon_basic` and `epsilon_renyi`. No PLD is computed
    where `epsilon_basic` is exact (for Gaussian releases alone), nor if δ is below 10⁻¹².

    Args:
        mechanisms: What was released. The noise of every release must have been fixed before the
            first one was seen.
        delta: δ, from 0 to below 1.

    Raises:
        ModuleNotFoundError: The package dp-accounting is needed and is not installed.

    >>> votes, mean = Laplace(scale=1.0), Gaussian(gaussian_sigma(1.0, 1e-3))
    >>> round(epsilon([votes, mean], 1e-3), 3), round(epsilon_basic([votes, mean], 1e-3), 3)
    (1.914, 2.0)
    """
    released = tuple(mechanisms)
    bound = min(epsilon_basic(released, delta), epsilon_renyi(released, delta))
    exact = all(isinstance(mechanism, Gaussian) for mechanism in released)
    if exact or bound == 0 or delta < LEAST_DELTA or bound > _MEANINGLESS:
        return bound
    return min(bound, epsilon_pld(released, delta))


def epsilon_basic(mechanisms: Iterable[Mechanism], delta: float) -> float:
    """Return the sum of what pure mechanisms and all Gaussian ones cost: a cross-check.

    Args:
        mechanisms: What was released; subsampling is not counted as protection.
        delta: δ, from 0 to below 1, all of it for the Gaussian mechanisms.

    >>> epsilon_basic([Laplace(scale=2.0), Pure(0.25)], 0.0)
    0.75
    """
    released = tuple(mechanisms)
    pure = math.fsum(m.pure for m in released if isinstance(m, Pure | Laplace))
    noisy = [m.effective for m in released if isinstance(m, Gaussian | SubsampledGaussian)]
    return pure + gaussian_epsilon(noisy, delta)


def epsilon_renyi(
    mechanisms: Iterable[Mechanism], delta: float, orders: Sequence[int] = ORDERS
) -> float:
    """Return ε by Rényi divergences, converted as in Canonne et al. (proposition 12)."""
    _check_delta(delta)
    alpha = np.asarray(orders, dtype=float)
    with np.errstate(divide="ignore"):  # of δ = 0
        converted = np.log1p(-1 / alpha) - (np.log(delta) + np.log(alpha)) / (alpha - 1)
    return max(0.0, float(np.min(_renyi(mechanisms, orders) + converted)))


def epsilon_pld(mechanisms: Iterable[Mechanism], delta: float) -> float:
    """Return ε by composing privacy loss distributions, each rounded up to a grid.

    Args:
        mechanisms: What was released.
        delta: δ, from 10⁻¹² to below 1.

    Raises:
        ModuleNotFoundError: The package dp-accounting is not installed.
    """
    _require(
        LEAST_DELTA <= delta < 1,
        f"delta is {delta}; for a privacy loss distribution it must be at least {LEAST_DELTA}, "
        "and below 1",
    )
    library = _library()
    released = tuple(mechanisms)
    interval = _interval(released, delta)
    nothing = library.pld.privacy_loss_distribution.identity
    total = nothing(value_discretization_interval=interval)
    for mechanism, count in Counter(released).items():
        total = total.compose(mechanism.distribution(library, interval).self_compose(count))
    return float(total.get_epsilon_for_delta(delta))


def _interval(released: tuple[Mechanism, ...], delta: float) -> float:
    """Return the grid of a PLD: fine enough for ε, and not too fine for the memory."""

    def bound(delta: float) -> float:
        return min(epsilon_basic(released, delta), epsilon_renyi(released, delta))

    # A power of 10, so that one more release seldom changes the grid.
    fine = 10.0 ** math.floor(math.log10(max(bound(delta), 1e-6) / _POINTS))
    # dp-accounting leaves out a mass of e^−50: ε at that δ is about where a PLD ends.
    return max(fine, bound(math.exp(-50)) / _MOST_POINTS)


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


def _renyi(mechanisms: Iterable[Mechanism], orders: Sequence[int]) -> Array:
    """Return the Rényi divergences of everything that was released, one for each order."""
    counts = Counter(mechanisms)
    return np.array([sum(n * m.renyi(alpha) for m, n in counts.items()) for alpha in orders])


def _combined(multipliers: Iterable[float]) -> float:
    """Return μ of all releases together."""
    checked = tuple(multipliers)
    for z in checked:
        _check_positive("a noise multiplier", z)
    return math.hypot(*(1.0 / z for z in checked))


def _delta(mu: float, epsilon: float) -> float:
    """Return Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), without e^ε, which may overflow."""
    if mu == 0 or math.isinf(epsilon):
        return 0.0
    first = log_ndtr(mu / 2 - epsilon / mu)
    second = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return float(-np.exp(first) * np.expm1(min(second - first, 0.0)))


def _smallest(is_safe: Callable[[float], bool], enough: float) -> float:
    """Return the smallest safe value, from above: what is returned was found to be safe."""
    low, high = 0.0, enough
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        if is_safe(middle):
            high = middle
        else:
            low = middle
    return high


def _check_positive(name: str, value: float) -> None:
    _require(0 < value < math.inf, f"{name} is {value}; it must be positive and finite")


def _check_delta(delta: float) -> None:
    _require(0 <= delta < 1, f"delta is {delta}; it must be at least 0 and below 1")


def _check_steps(steps: int) -> None:
    counted = isinstance(steps, int) and steps >= 0
    _require(counted, f"steps is {steps}; it must be a whole number, where 0 means no grid")


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise ValueError(sentence)
