"""What a preset means for a problem: its federation, and the settings of its agents.

The preset "paper" has the settings of the paper and of its authors' code, "default" those of the
library. Synthetic functions define both themselves (`fedbo_paper.problems.synthetic`).
"""

from __future__ import annotations

import msgspec

from fedbo.federation import Federation
from fedbo.message import Kind
from fedbo_paper.experiments.spec import Maximiser, Preset
from fedbo_paper.preset import PAPER, PaperSettings, paper_federation
from fedbo_paper.problems.problems import Tasks
from fedbo_paper.problems.synthetic import SyntheticTasks


def federation(
    tasks: Tasks, preset: Preset, M: int, seed: int, kind: Kind = "weights"
) -> Federation:
    """Return the federation of all agents of a problem, with M features drawn from ``seed``."""
    seed %= 2**63
    if isinstance(tasks, SyntheticTasks):
        return tasks.federation(preset, M, seed)
    if preset == "paper":
        return paper_federation(tasks.space, features=M, seed=seed, kind=kind)
    return Federation(tasks.space, features=M, seed=seed, kind=kind)


def settings(tasks: Tasks, preset: Preset, maximiser: Maximiser) -> PaperSettings:
    """Return how an agent of a problem models its scores and maximises."""
    if isinstance(tasks, SyntheticTasks):
        return tasks.settings(preset)
    chosen = PAPER if preset == "paper" else PaperSettings()
    return msgspec.structs.replace(chosen, direct=maximiser == "direct")
