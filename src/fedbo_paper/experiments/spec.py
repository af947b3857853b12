"""What an experiment's file contains, and which experiments a figure shows.

An experiment is a small TOML file in this folder. It names a problem, the length of a run, the
targets that each figure shows, and the *arms*: the ways to run a target. Where a file lists several
values (``M = [50, 100]``), there is one arm for each combination.

======  ===================================================================================
symbol  meaning
======  ===================================================================================
M       number of features
N       number of peers (default: all other agents of the problem)
t_n     observations of each peer when it first sends a message
d_n     distance between a peer's function and the target's
p_t     1 − 1/t^power (default: that of the preset)
every   0: messages are sent once; k > 0: before iterations 1, 1 + k, …. On real data peers continue
        meanwhile (growing t_n); on synthetic functions they send new draws of the same belief
======  ===================================================================================
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from itertools import product
from typing import Any, Literal, get_args

import msgspec

from fedbo_paper.problems.problems import Problem
from fedbo_paper.problems.synthetic import Synthetic

Method = Literal["TS", "FTS", "RGPE", "TAF"]
Preset = Literal["paper", "default"]
Maximiser = Literal["refine", "direct"]
Figure = Literal["fig1", "fig2", "fig3", "fig4", "appendix", "published"]
FIGURES: tuple[Figure, ...] = get_args(Figure)
PRESETS: tuple[Preset, ...] = get_args(Preset)
#: The presets as a reader knows them.
PRESET_NAMES: dict[str, str] = {"paper": "paper preset", "default": "default preset"}
#: The experiments of section 5.2, on real data.
REAL = ("landmine", "glass", "har")
#: The power in p_t = 1 − 1/t^power, in section 5.2 and in the library.
POWERS: dict[Preset, float] = {"paper": 2.0, "default": 0.5}


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run a target. TS has no peers and no features."""

    method: Method
    M: int = 0
    N: int = 0
    t_n: int = 0
    d_n: float | None = None
    power: float | None = None
    every: int = 0


#: The settings of an arm, as columns of a table.
ARM = Arm.__struct_fields__
#: The columns that describe a run.
LABELS = ("experiment", "preset", *ARM, "target", "repeat", "seed")
SECONDS = ("seconds_evaluation", "seconds")
#: The columns of each trial. The seconds, which differ from run to run, come last.
MEASURED = (
    *("iteration", "source", "peer", "score", "best", "simple_regret", "cumulative_regret"),
    *("parameters_received", *SECONDS),
)


class Arms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of arms in a file, and the figures that show them."""

    figures: tuple[Figure, ...]
    method: Method | tuple[Method, ...]
    M: int | tuple[int, ...] = 100
    N: int | tuple[int, ...] | None = None
    t_n: int | tuple[int, ...] = 50
    d_n: float | tuple[float, ...] | None = None
    power: float | tuple[float, ...] | None = None
    every: int = 0

    def each(self, others: int, power: float) -> list[Arm]:
        """Return an arm for each combination; N is ``others`` where the file does not give it.

        >>> arms = Arms(figures=("fig2",), method=("FTS", "TAF"), M=(50, 100)).each(28, 2.0)
        >>> len(arms), arms[0]
        (4, Arm(method='FTS', M=50, N=28, t_n=50, d_n=None, power=2.0, every=0))
        """
        fallback = {"N": others, "power": power}
        values: dict[str, tuple[Any, ...]] = {}
        for name in ARM:
            value = getattr(self, name)
            value = fallback.get(name) if value is None else value
            values[name] = value if isinstance(value, tuple) else (value,)
        arms = [Arm(**dict(zip(values, each, strict=True))) for each in product(*values.values())]
        return list(dict.fromkeys(map(_without_unused, arms)))


def _without_unused(arm: Arm) -> Arm:
    """The arm without the settings that its method does not use."""
    if arm.method == "TS":
        return Arm(method="TS")
    return arm if arm.method == "FTS" else msgspec.structs.replace(arm, power=None)


class Quick(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of an experiment that ``--quick`` runs, to show that everything works."""

    targets: int
    repeats: int
    iterations: int | None = None
    M: tuple[int, ...] | None = None
    N: tuple[int, ...] | None = None


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An experiment, as its file describes it.

    ``targets`` has, for each figure, the list of targets or how many there are, counted from 0. An
    experiment with ``needs_published`` cannot run without the published initial points. Other
    landmine experiments use them where they are available.
    """

    title: str
    problem: Problem
    iterations: int
    initial: int
    repeats: int
    targets: dict[Figure, int | tuple[int, ...]]
    arms: tuple[Arms, ...]
    quick: Quick
    seeds: tuple[int, ...] = (0,)
    presets: tuple[Preset, ...] = PRESETS
    maximiser: Maximiser | None = None
    needs_published: bool = False

    def targets_of(self, figure: Figure) -> tuple[int, ...]:
        """Return the targets of a figure."""
        targets = self.targets[figure]
        return tuple(range(targets)) if isinstance(targets, int) else targets

    def arms_of(
        self, figures: tuple[Figure, ...], others: int, power: float
    ) -> dict[Arm, tuple[int, ...]]:
        """Return the arms that these figures show, and the targets to run in each."""
        shown: dict[Arm, set[int]] = {}
        for arms in self.arms:
            targets = {
                n for figure in figures if figure in arms.figures for n in self.targets_of(figure)
            }
            for arm in arms.each(others, power) if targets else ():
                shown.setdefault(arm, set()).update(targets)
        return {arm: tuple(sorted(targets)) for arm, targets in shown.items()}


@cache
def experiments() -> dict[str, Experiment]:
    """Return all experiments by name.

    >>> sorted(experiments())
    ['agents', 'glass', 'har', 'landmine', 'published', 'synthetic']
    """
    files = sorted(resources.files(__package__).iterdir(), key=lambda file: file.name)
    return {
        file.name.removesuffix(".toml"): _read(file.name, file.read_text(encoding="utf-8"))
        for file in files
        if file.name.endswith(".toml")
    }


def _read(name: str, text: str) -> Experiment:
    try:
        return msgspec.convert(tomllib.loads(text), Experiment)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"the experiment file {name} is not valid: {error}") from None


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """A request for some figures of an experiment with one preset, and changes to its file."""

    experiment: str
    preset: Preset
    figures: tuple[Figure, ...]
    quick: bool = False
    seed: int = 0
    maximiser: Maximiser = "refine"
    problem: dict[str, Any] = {}

    @property
    def spec(self) -> Experiment:
        """The experiment with the changes that were requested."""
        spec = experiments()[self.experiment]
        problem = msgspec.convert(msgspec.to_builtins(spec.problem) | self.problem, Problem)
        seeds = tuple(self.seed + seed for seed in spec.seeds)
        spec = msgspec.structs.replace(spec, problem=problem, seeds=seeds)
        return _quick(spec) if self.quick else spec


def _quick(spec: Experiment) -> Experiment:
    quick = spec.quick
    arms = []
    for group in spec.arms:
        kept: dict[str, Any] = {}
        for name in ("M", "N"):
            few, value = getattr(quick, name), getattr(group, name)
            if few is not None and value is not None:
                values = value if isinstance(value, tuple) else (value,)
                kept[name] = tuple(v for v in values if v in few)
        if all(kept.values()):
            arms.append(msgspec.structs.replace(group, **kept))
    return msgspec.structs.replace(
        spec,
        arms=tuple(arms),
        targets={figure: spec.targets_of(figure)[: quick.targets] for figure in spec.targets},
        repeats=quick.repeats,
        iterations=quick.iterations or spec.iterations,
        seeds=spec.seeds[:1],
    )


def wanted(
    name: str,
    *,
    only: str | None = None,
    presets: tuple[Preset, ...] = ("paper",),
    quick: bool = False,
    seed: int = 0,
    maximiser: Maximiser | None = None,
    problem: Mapping[str, Any] | None = None,
) -> list[Selection]:
    """Return what to run for a figure.

    Args:
        name: The name of a figure, or "all".
        only: One experiment; all that the figures show by default.
        presets: "paper", "default" or both.
        quick: Whether to run a small part only.
        seed: Decides everything random.
        maximiser: "refine" or "direct"; the experiment's own by default.
        problem: Options of the problems, such as ``{"epochs": 5}``.

    Raises:
        ValueError: There is no such figure, experiment or option.

    >>> [(s.experiment, s.preset) for s in wanted("fig1")]
    [('synthetic', 'paper')]
    >>> wanted("fig5")
    Traceback (most recent call last):
    ValueError: there is no 'fig5', expected fig1, fig2, fig3, fig4, appendix, published or all
    """
    if name not in (*FIGURES, "all"):
        raise ValueError(f"there is no {name!r}, expected {', '.join(FIGURES)} or all")
    figures = tuple(figure for figure in FIGURES if name in (figure, "all"))
    among = {key: spec for key, spec in experiments().items() if {*figures} & {*spec.targets}}
    options = dict(problem or {})
    chosen = [
        Selection(
            experiment=key,
            preset=preset,
            figures=tuple(figure for figure in figures if figure in spec.targets),
            quick=quick,
            seed=seed,
            maximiser=_maximiser(spec, maximiser),
            problem={k: v for k, v in options.items() if k in spec.problem.__struct_fields__},
        )
        for key, spec in among.items()
        for preset in presets
        if only in (None, key) and preset in spec.presets
    ]
    if not chosen:
        which = "" if only is None else f" of {only!r}"
        raise ValueError(
            f"{name} shows nothing{which} with the preset {', '.join(presets)}; "
            f"its experiments are {', '.join(among)} ('published' has the paper preset only)"
        )
    if unused := [o for o in options if not any(o in selection.problem for selection in chosen)]:
        which = ", ".join(dict.fromkeys(selection.experiment for selection in chosen))
        raise ValueError(f"{', '.join(unused)}: not an option of {which}; leave it out")
    return chosen


def _maximiser(spec: Experiment, asked: Maximiser | None) -> Maximiser:
    """The one that was asked for, or the experiment's own; synthetic points are enumerated."""
    own = spec.maximiser or "refine"
    return own if asked is None or isinstance(spec.problem, Synthetic) else asked
