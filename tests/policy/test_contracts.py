"""Every policy of fedbo keeps the contract of policies."""

from __future__ import annotations

from collections.abc import Sequence

from contracts.policy import BetaContract, PolicyContract

import fedbo


class TestTS(BetaContract):
    kind = "weights"
    listens = False
    sources = frozenset({"own"})

    def policy(self) -> fedbo.TS:
        return fedbo.TS()


class TestFTS(BetaContract):
    kind = "weights"

    def policy(self) -> fedbo.FTS:
        return fedbo.FTS()

    def naming(self, peers: Sequence[str]) -> fedbo.FTS:
        return fedbo.FTS(P_N=dict.fromkeys(peers, 1.0))


class TestFTSOnBeliefs(TestFTS):
    kind = "belief"


class TestPTS(BetaContract):
    kind = "weights"
    sources = frozenset({"own", "pool", "initial"})

    def policy(self) -> fedbo.PTS:
        return fedbo.PTS()


class TestPTSOnBeliefs(TestPTS):
    kind = "belief"


class TestRGPE(PolicyContract):
    kind = "belief"
    sources = frozenset({"own"})

    def policy(self) -> fedbo.RGPE:
        return fedbo.RGPE()


class TestTAF(PolicyContract):
    kind = "belief+incumbent"
    sources = frozenset({"own"})

    def policy(self) -> fedbo.TAF:
        return fedbo.TAF()
