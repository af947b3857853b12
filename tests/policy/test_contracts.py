"""Every policy of fedbo keeps the contract of policies."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from contracts.policy import BetaContract, PolicyContract

import fedbo


class TestTS(BetaContract):
    listens = False
    sources = frozenset({"own"})

    def policy(self) -> fedbo.TS:
        return fedbo.TS()


class TestEI(PolicyContract):
    listens = False
    sources = frozenset({"own"})

    def policy(self) -> fedbo.EI:
        return fedbo.EI()


class TestFTS(BetaContract):
    kind = "weights"

    def policy(self) -> fedbo.FTS:
        return fedbo.FTS()


class TestFTSOnCompactMessages(TestFTS):
    kind = "compact"


@pytest.mark.slow
class TestFTSOnBeliefs(TestFTS):
    kind = "belief"


class TestTipsThenPool(PolicyContract):
    sources = frozenset({"tip", "own", "pool", "initial"})

    def policy(self) -> fedbo.TipsThenPool:
        return fedbo.TipsThenPool()


@pytest.mark.slow
class TestTipsThenPoolOnWeights(TestTipsThenPool):
    kind = "weights"


@pytest.mark.slow
class TestTipsThenPoolOnBeliefs(TestTipsThenPool):
    kind = "belief"


class TestRGPE(PolicyContract):
    kind = "belief"
    sources = frozenset({"own"})

    def policy(self) -> fedbo.RGPE:
        return fedbo.RGPE()


class TestTAF(PolicyContract):
    kind = "belief"
    sources = frozenset({"own"})

    def policy(self) -> fedbo.TAF:
        return fedbo.TAF()


EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_policy.py"
Crowd = runpy.run_path(str(EXAMPLE))["Crowd"]


class TestCustomPolicy(PolicyContract):
    """The example of a policy that is none of fedbo's own."""

    kind = "weights"
    in_file = False
    sources = frozenset({"own", "pool"})

    def policy(self) -> fedbo.Policy:
        return Crowd()
