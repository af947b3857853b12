"""A picture of all sites, together and alone.

Only a simulation can draw it: there, one machine has the folders of all sites. In a real fleet, no
score leaves its site.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import fedbo
from digits.task import FEDERATION, accuracy


def draw(folder: Path) -> Path:
    """Draw the best accuracy of the sites against the number of trials; return the file.

    Args:
        folder: The folder of the run, with a folder of each site in it.
    """
    agents = [fedbo.Agent.load(path) for path in sorted(folder.glob("sites/*/agent.fedbo"))]
    together = best_so_far([[trial.score for trial in agent.trials] for agent in agents])
    alone = best_so_far([alone_scores(agent, together.shape[1]) for agent in agents])
    trials = np.arange(1, together.shape[1] + 1)

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    axes.plot(trials, together.T, color="C0", alpha=0.25, lw=1)
    axes.plot(trials, together.mean(axis=0), color="C0", lw=2.5, label="together, through Flower")
    axes.plot(trials, alone.mean(axis=0), color="C1", lw=2.5, ls="--", label="each site alone")
    axes.set(xlabel="trials of a site", ylabel="best validation accuracy so far")
    axes.set_title(f"{len(agents)} sites tune an SVM; thin lines are single sites")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    path = folder / "digits.png"
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def alone_scores(agent: fedbo.Agent, trials: int) -> list[float]:
    """Return the scores of the same site with the same first trials and nobody's help."""
    site = int(agent.name.removeprefix("site-"))
    score = accuracy(site)
    solo = fedbo.Agent(FEDERATION, name=agent.name, seed=site)
    for _ in range(trials):
        trial = solo.ask()
        solo.tell(trial, score(trial.params))
    return [trial.score for trial in solo.trials]


def best_so_far(scores: list[list[float | None]]) -> np.ndarray:
    """Return the best score after each trial, one row for each site; shorter rows are cut."""
    length = min(map(len, scores))
    rows = np.array([row[:length] for row in scores], dtype=float)  # a failed trial is NaN
    return np.fmax.accumulate(rows, axis=1)
