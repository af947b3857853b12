"""Figures of studies.

``plot_history(study).figure.savefig("history.png")`` writes a file with matplotlib.
``plot_history(study, backend="plotly").show()`` opens a browser with plotly, where the mouse shows
what each trial is. Matplotlib returns its (upper) `Axes`, and plotly its `Figure`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Literal

from optuna.study import Study

from fedbo.optuna.plots.figure import Figure, history, peers, together

__all__ = ["plot_history", "plot_peers", "plot_together"]

Backend = Literal["matplotlib", "plotly"]


def plot_history(
    study: Study, baseline: Study | None = None, *, backend: Backend = "matplotlib"
) -> Any:
    """Plot the value of every trial by the source of its query, and the best value so far.

    Values that are too far off to be drawn are hollow points at the edge.

    The ``baseline`` is a study of the same objective that was run alone.
    """
    return _draw(history(study, baseline), backend)


def plot_peers(study: Study, *, backend: Backend = "matplotlib") -> Any:
    """Plot how much the policy relied on each peer when it chose each trial.

    The rest is the share of the agent's own model. Trials that used no peers are white.
    """
    return _draw(peers(study), backend)


def plot_together(
    studies: Sequence[Study], baselines: Sequence[Study], *, backend: Backend = "matplotlib"
) -> Any:
    """Plot the mean best value so far of several studies, together and alone, and the gain.

    Bands are standard errors. If there are as many studies as baselines, which are the same
    studies run alone, they are compared in pairs.
    """
    return _draw(together(studies, baselines), backend)


def _draw(figure: Figure, backend: Backend) -> Any:
    if backend not in ("matplotlib", "plotly"):
        raise ValueError(f"backend is {backend!r}, expected 'matplotlib' or 'plotly'")
    try:
        module = importlib.import_module(f"fedbo.optuna.plots.draw_{backend}")
    except ImportError as error:
        other = "plotly" if backend == "matplotlib" else "matplotlib"
        raise ImportError(
            f"backend={backend!r} needs {backend}, which is not installed: pip install {backend}, "
            f"or give backend={other!r}"
        ) from error
    return module.draw(figure)
