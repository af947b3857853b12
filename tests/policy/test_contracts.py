"""Every policy of fedbo keeps the contract of policies."""

from __future__ import annotations

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


EXAMPLE = Path(__file__).parents[2] / "examples" / "own_policy.py"
cells = EXAMPLE.read_text(encoding="utf-8").split("\n# %%\n")
exec("\n".join(cells[:2]), names := {"__name__": "own_policy"})  # its imports, and its policy


class TestOwnPolicy(PolicyContract):
    """The example of a policy that is none of fedbo's own."""

    kind = "weights"
    in_file = False
    sources = frozenset({"own", "pool", "initial"})

    def policy(self) -> fedbo.Policy:
        return names["Crowd"]()
