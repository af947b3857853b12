"""From the name of a figure to what has to be run for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedbo_paper.experiments.spec import (
    FIGURES,
    Experiment,
    Maximiser,
    Preset,
    Selection,
    experiments,
)
from fedbo_paper.problems.synthetic import Synthetic


def wanted(
    names: Sequence[str],
    *,
    only: str | None = None,
    presets: Sequence[Preset] = ("paper",),
    quick: bool = False,
    seed: int = 0,
    maximiser: Maximiser | None = None,
    problem: Mapping[str, Any] | None = None,
) -> list[Selection]:
    """Return what to run for some figures.

    Args:
        names: Names of figures, or "all".
        only: One experiment; all that the figures show by default.
        presets: "paper", "default" or both; "paper" by default.
        quick: Whether to run a small part only.
        seed: Decides everything random, 0 by default.
        maximiser: "refine" or "direct"; the experiment's own by default.
        problem: Options of the problems, such as ``{"epochs": 5}``.

    Raises:
        ValueError: There is no such figure, experiment or option.

    >>> [(s.experiment, s.preset) for s in wanted(["fig1"])]
    [('synthetic', 'paper')]
    >>> wanted(["fig5"])
    Traceback (most recent call last):
    ValueError: there is no 'fig5', expected fig1, fig2, fig3, fig4, appendix, published or all
    """
    for name in names:
        if name not in (*FIGURES, "all"):
            raise ValueError(f"there is no {name!r}, expected {', '.join(FIGURES)} or all")
    figures = tuple(figure for figure in FIGURES if figure in names or "all" in names)
    among = {name: spec for name, spec in experiments().items() if {*figures} & {*spec.targets}}
    given = dict(problem or {})
    chosen = [
        Selection(
            experiment=name,
            preset=preset,
            figures=tuple(figure for figure in figures if figure in spec.targets),
            quick=quick,
            seed=seed,
            maximiser=_maximiser(spec, maximiser),
            problem={k: v for k, v in given.items() if k in spec.problem.__struct_fields__},
        )
        for name, spec in among.items()
        for preset in presets
        if only in (None, name) and preset in spec.presets
    ]
    if not chosen:
        which = "" if only is None else f" of {only!r}"
        raise ValueError(
            f"{', '.join(figures)} shows nothing{which} with the preset {', '.join(presets)}; "
            f"its experiments are {', '.join(among)} ('published' has the paper preset only)"
        )
    if unused := [name for name in given if not any(name in one.problem for one in chosen)]:
        which = ", ".join(dict.fromkeys(selection.experiment for selection in chosen))
        raise ValueError(f"{', '.join(unused)}: not an option of {which}; leave it out")
    return chosen


def _maximiser(spec: Experiment, asked: Maximiser | None) -> Maximiser:
    """The one that was asked for, or the experiment's own; synthetic points are enumerated."""
    own = spec.maximiser or "refine"
    return own if asked is None or isinstance(spec.problem, Synthetic) else asked
