"""The ε of the published settings and of one release, and what the figure says about them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy.special import gammaln, logsumexp

from fedbo_paper.dp.comparison import CURVES
from fedbo_paper.dp.methods import DELTA, FTS, Alone, ExpectedImprovement, Released, Served
from fedbo_paper.dp.server import PrivateMean


def renyi(z: float, q: float, rounds: int, delta: float) -> float:
    """ε by integer Rényi orders of the subsampled Gaussian mechanism (Mironov et al. 2019)."""
    found = math.inf
    for alpha in range(2, 256):
        terms = [
            gammaln(alpha + 1) - gammaln(k + 1) - gammaln(alpha - k + 1)
            + (alpha - k) * math.log1p(-q) + k * math.log(q) + (k * k - k) / (2 * z * z)
            for k in range(alpha + 1)
        ]  # fmt: skip
        rdp = float(logsumexp(terms)) / (alpha - 1)
        found = min(found, rounds * rdp + math.log(1 / delta) / (alpha - 1))
    return found


@pytest.mark.parametrize("curve", [curve for curve in CURVES if curve.published_epsilon])
def test_the_published_epsilon_is_that_of_renyi_accounting(curve: Any) -> None:
    aggregate = curve.method.aggregate
    epsilon = renyi(aggregate.z, aggregate.q, 60, DELTA)
    assert epsilon == pytest.approx(curve.published_epsilon, abs=0.02)


def test_what_is_not_private_costs_infinity_and_what_is_not_sent_nothing() -> None:
    assert Alone(name="TS").epsilon(60, 1e-5) == 0.0
    assert FTS(name="FTS").epsilon(60, 1e-5) == math.inf
    assert Served(name="FTS-DE").epsilon(60, 1e-5) == math.inf


def test_a_run_is_accounted_as_all_its_rounds() -> None:
    """By privacy loss distributions: below what Rényi divergences give, which was published."""
    method = Served(name="DP", aggregate=PrivateMean(q=0.35, z=1.0))
    assert method.epsilon(60, 1e-5) == pytest.approx(19.74, abs=0.05)
    assert method.epsilon(10, 1e-5) < method.epsilon(60, 1e-5) < renyi(1.0, 0.35, 60, 1e-5)
    assert method.epsilon(60, DELTA) < 15.17


def test_alone_and_with_empty_contributions_nothing_is_paid() -> None:
    assert ExpectedImprovement(name="EI").epsilon(60, 1e-5) == 0.0
    assert Released(name="null", is_empty=True).epsilon(60, 1e-5) == 0.0
