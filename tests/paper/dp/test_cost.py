"""The ε of the published settings, and that `cost` asks for the right mechanism."""

from __future__ import annotations

import math
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from scipy.special import gammaln, logsumexp

from fedbo_paper.dp.comparison import CURVES
from fedbo_paper.dp.cost import DELTAS, cost
from fedbo_paper.dp.methods import FTS, Alone, Served
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
    epsilon = renyi(aggregate.z, aggregate.q, 60, DELTAS[0])
    assert epsilon == pytest.approx(curve.published_epsilon, abs=0.02)


@pytest.mark.parametrize(
    ("z", "q", "published"),
    [
        *((1.6, 0.35, 7.12), (3.0, 0.35, 3.05)),
        *((1.0, 0.10, 3.75), (1.0, 0.15, 5.98), (1.0, 0.20, 7.69), (1.0, 0.25, 9.82)),
    ],
)
def test_so_are_the_other_published_ones(z: float, q: float, published: float) -> None:
    assert renyi(z, q, 60, DELTAS[0]) == pytest.approx(published, abs=0.02)


def test_what_is_not_private_costs_infinity_and_what_is_not_sent_nothing() -> None:
    assert cost(Alone(name="TS"), 60, 1e-5) == 0.0
    assert cost(FTS(name="FTS"), 60, 1e-5) == math.inf
    assert cost(Served(name="FTS-DE"), 60, 1e-5) == math.inf


def test_a_run_is_accounted_as_all_its_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    accounting: Any = ModuleType("fedbo.privacy.accounting")
    accounting.SubsampledGaussian = SimpleNamespace

    def epsilon(mechanisms: Any, delta: float) -> float:
        [one] = mechanisms
        return renyi(one.multiplier, one.rate, one.rounds, delta)

    accounting.epsilon = epsilon
    if "fedbo.privacy" not in sys.modules:
        monkeypatch.setitem(sys.modules, "fedbo.privacy", ModuleType("fedbo.privacy"))
    monkeypatch.setitem(sys.modules, "fedbo.privacy.accounting", accounting)
    method = Served(name="DP", aggregate=PrivateMean(q=0.35, z=1.0))
    assert cost(method, 60, DELTAS[0]) == pytest.approx(15.17, abs=0.02)
    assert cost(method, 60, 1e-5) == pytest.approx(renyi(1.0, 0.35, 60, 1e-5))
