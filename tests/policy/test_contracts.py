"""Every policy of fedbo keeps the contract of policies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedbo
from fedbo.testing import BetaContract, PolicyContract
from fedbo.testing.parties import LISTED, MIXED, PLANE, run
from fedbo_paper.preset import PAPER


class PaperContract(PolicyContract):
    """What fedbo's own policies must do besides: bear the settings of the paper's experiments."""

    in_file = True

    @pytest.mark.slow
    @pytest.mark.parametrize("space", [PLANE, MIXED, LISTED], ids=["plane", "mixed", "listed"])
    def test_the_papers_settings(self, space: Any) -> None:
        """Raw scores, DIRECT, messages of almost no noise and short length scales."""
        federation = self.federation(space, length_scale=0.01, noise_variance=1e-6)
        agent = run(self.agent(federation, settings=PAPER), 4)
        self.goes_on(agent)


class TestTS(PaperContract, BetaContract):
    listens = False
    sources = frozenset({"own"})

    @pytest.fixture
    def policy(self) -> Callable[[], fedbo.Policy]:
        return fedbo.TS


class TestEI(PaperContract):
    listens = False
    sources = frozenset({"own"})

    @pytest.fixture
    def policy(self) -> Callable[[], fedbo.Policy]:
        return fedbo.EI


class TestFTS(PaperContract, BetaContract):
    kind = "weights"

    @pytest.fixture
    def policy(self) -> Callable[[], fedbo.Policy]:
        return fedbo.FTS


class TestFTSOnCompactMessages(TestFTS):
    kind = "compact"


@pytest.mark.slow
class TestFTSOnBeliefs(TestFTS):
    kind = "belief"


class TestTipsThenPool(PaperContract):
    sources = frozenset({"tip", "own", "pool", "initial"})

    @pytest.fixture
    def policy(self) -> Callable[[], fedbo.Policy]:
        return fedbo.TipsThenPool


@pytest.mark.slow
class TestTipsThenPoolOnWeights(TestTipsThenPool):
    kind = "weights"


@pytest.mark.slow
class TestTipsThenPoolOnBeliefs(TestTipsThenPool):
    kind = "belief"


class TestRGPE(PaperContract):
    kind = "belief"
    sources = frozenset({"own"})

    @pytest.fixture
    def policy(self) -> Callable[[], fedbo.Policy]:
        return fedbo.RGPE


class TestTAF(PaperContract):
    kind = "belief"
    sources = frozenset({"own"})

    @pytest.fixture
    def policy(self) -> Callable[[], fedbo.Policy]:
        return fedbo.TAF


EXAMPLE = Path(__file__).parents[2] / "examples" / "own_policy.py"
cells = EXAMPLE.read_text(encoding="utf-8").split("\n# %%\n")
exec("\n".join(cells[:2]), names := {"__name__": "own_policy"})  # its imports, and its policy


class TestOwnPolicy(PaperContract):
    """The example of a policy that is none of fedbo's own."""

    kind = "weights"
    in_file = False
    sources = frozenset({"own", "pool", "initial"})

    @pytest.fixture
    def policy(self) -> Callable[[], fedbo.Policy]:
        return names["Crowd"]


def test_a_suite_that_names_no_policy_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "from fedbo.testing import PolicyContract\n\nclass TestMine(PolicyContract): pass\n"
    )
    options = ["-q", "-p", "no:cacheprovider", "-k", "whether_it_listens"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=tmp_path, capture_output=True, text=True
    )
    assert "TestMine has no fixture that names its policy: override policy(self)" in done.stdout
