"""Samplers against exact probabilities, and what they refuse."""

from __future__ import annotations

import math
import secrets
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from fedbo.privacy import noise
from fedbo.privacy.noise import Simulated, Source, discrete_gaussian, discrete_laplace

DRAWS = 8_000
SAMPLERS = {"laplace": discrete_laplace, "gaussian": discrete_gaussian}


def laplace_weights(x: np.ndarray, scale: Fraction) -> np.ndarray:
    return np.exp(-np.abs(x) / float(scale))


def gaussian_weights(x: np.ndarray, sigma2: Fraction) -> np.ndarray:
    return np.exp(-(x**2) / (2 * float(sigma2)))


WEIGHTS = {"laplace": laplace_weights, "gaussian": gaussian_weights}


def exact(kind: str, parameter: Fraction) -> tuple[np.ndarray, np.ndarray]:
    """Return integers and their probabilities, by adding up all that is not negligible."""
    width = float(parameter) if kind == "laplace" else math.sqrt(parameter)
    x = np.arange(-int(60 * width) - 60, int(60 * width) + 61).astype(float)
    weights = WEIGHTS[kind](x, parameter)
    return x, weights / weights.sum()


def classes(p: np.ndarray) -> np.ndarray:
    """Number the integers by classes, each with at least a twentieth of the probability or so."""
    return np.minimum((np.cumsum(p) - p / 2) * 20, 19).astype(int)


@cache
def drawn(kind: str, parameter: Fraction) -> np.ndarray:
    return SAMPLERS[kind](parameter, DRAWS, source=Simulated(5))


CASES = [
    (kind, parameter)
    for kind in SAMPLERS
    for parameter in (Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(29))
]


@pytest.mark.parametrize(("kind", "parameter"), CASES)
def test_frequencies_are_the_exact_probabilities(kind: str, parameter: Fraction) -> None:
    """Each integer, then classes of them; a right sampler fails 1 in 10,000 times."""
    x, p = exact(kind, parameter)
    counts = np.bincount(drawn(kind, parameter) - int(x[0]), minlength=len(x))
    inner = p * DRAWS >= 8  # chi-square needs some draws in every class; the tails are one class
    observed = np.append(counts[inner], counts[~inner].sum())
    expected = np.append(p[inner], 1 - p[inner].sum()) * DRAWS
    assert chisquare(observed, expected).pvalue > 1e-4
    coarse = [np.bincount(classes(p), weights) for weights in (counts, p * DRAWS)]
    observed, expected = (part[coarse[1] > 0] for part in coarse)
    assert chisquare(observed, expected * (DRAWS / expected.sum())).pvalue > 1e-4


@pytest.mark.parametrize("kind", SAMPLERS)
def test_huge_and_tiny_scales(kind: str) -> None:
    sampler = SAMPLERS[kind]
    tiny = sampler(Fraction(1, 10**30), 500, source=Simulated(1))
    assert not tiny.any()  # e^-(10^30) is the chance of anything else

    largest = noise.LARGEST if kind == "laplace" else noise.LARGEST**2
    huge = sampler(largest, 500, source=Simulated(2)) / float(noise.LARGEST)
    spread = math.sqrt(2) if kind == "laplace" else 1.0
    assert 0.8 * spread < huge.std() < 1.2 * spread
    assert len(np.unique(huge)) == 500
    with pytest.raises(ValueError, match=r"at most 2\*\*(52|104)"):
        sampler(largest + 1, 1)


class Integers(Source):
    """Counts what is asked for, and insists on integers."""

    def __init__(self) -> None:
        self.inner = Simulated(8)
        self.asked = 0

    def randbelow(self, n: int) -> int:
        assert type(n) is int
        assert n >= 1
        self.asked += 1
        return self.inner.randbelow(n)


@pytest.mark.parametrize("kind", SAMPLERS)
def test_no_floating_point_number_is_used(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every decision is about integers: fractions are never turned into floats."""

    def refuse(*_: Any) -> None:
        raise AssertionError("a fraction became a float")

    monkeypatch.setattr(Fraction, "__float__", refuse)
    sample = SAMPLERS[kind](Fraction(10**40 + 1, 10**39), 50, source=Integers())
    assert sample.dtype == np.int64


@pytest.mark.parametrize("weak", [np.random.default_rng(1), 7, secrets, secrets.SystemRandom()])
@pytest.mark.parametrize("kind", SAMPLERS)
def test_other_sources_are_refused(kind: str, weak: Any) -> None:
    with pytest.raises(TypeError, match="leave it out for secret randomness"):
        SAMPLERS[kind](1, 1, source=weak)
