"""What an experiment's file contains, and the jobs that follow from it.

An experiment is a small TOML file in this folder. It names a problem, the length of a run, the
targets that each figure shows, and the *arms*: the ways to run a target. Where a file lists several
values (``M = [50, 100]``), there is one arm for each combination. A `Run` is one target in one arm
from one set of initial points; its fields decide all its numbers.

======  ===================================================================================
symbol  meaning
======  ===================================================================================
M       number of features
N       number of peers (default: all other agents of the problem)
t_n     observations of each peer when it first sends a message
d_n     distance between a peer's function and the target's
p_t     1 − 1/t^power (default: that of the preset)
every   0: messages are sent once; 1: before every iteration, while peers continue (growing t_n)
======  ===================================================================================
"""

from __future__ import annotations

import hashlib
import tomllib
from functools import cache
from importlib import resources
from itertools import product
from typing import Any, Literal, get_args

import msgspec

from fedbo.space.axis import Value
from fedbo_paper.problems.problems import Problem

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

#: Initial points, each with the name and value of every parameter.
Points = tuple[tuple[tuple[str, Value], ...], ...]


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
        """Return an arm for each combination of values.

        Args:
            others: N where the file does not give it.
            power: The power of p_t where the file does not give it.

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
        arms = [Arm(**dict(zip(values, some, strict=True))) for some in product(*values.values())]
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

    def like(self, other: Selection) -> bool:
        """Return whether the two differ at most in their figures."""
        return msgspec.structs.replace(self, figures=other.figures) == other


def _quick(spec: Experiment) -> Experiment:
    quick = spec.quick
    arms = []
    for one in spec.arms:
        kept: dict[str, Any] = {}
        for name in ("M", "N"):
            wanted, value = getattr(quick, name), getattr(one, name)
            if wanted is not None and value is not None:
                values = value if isinstance(value, tuple) else (value,)
                kept[name] = tuple(v for v in values if v in wanted)
        if all(kept.values()):
            arms.append(msgspec.structs.replace(one, **kept))
    return msgspec.structs.replace(
        spec,
        arms=tuple(arms),
        targets={figure: spec.targets_of(figure)[: quick.targets] for figure in spec.targets},
        repeats=quick.repeats,
        iterations=quick.iterations or spec.iterations,
        seeds=spec.seeds[:1],
    )


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    problem: Problem
    preset: Preset
    maximiser: Maximiser
    seed: int


class _Trials(_Job, frozen=True, kw_only=True):
    iterations: int
    initial: Points

    @property
    def rows(self) -> int:
        """The number of rows of the job's table."""
        return len(self.initial) + self.iterations


class Run(_Trials, frozen=True, kw_only=True, tag=True):
    """One target in one arm."""

    experiment: str
    arm: Arm
    target: int
    repeat: int

    @property
    def name(self) -> str:
        arm, which = self.arm, f"{self.target}.{self.repeat}"
        return f"{self.experiment}-{self.preset}-{arm.method}-M{arm.M}-{which}"


class History(_Trials, frozen=True, kw_only=True, tag=True):
    """What an agent does alone, by Thompson sampling, before it sends its first message."""

    agent: int

    @property
    def name(self) -> str:
        return f"{kind_of(self.problem)}-{self.preset}-alone-{self.agent}"


class Diagnosis(_Job, frozen=True, kw_only=True, tag=True):
    """What messages based on t_n trials of each agent are worth to the first ``targets`` agents."""

    M: int
    t_n: int
    peers: int
    targets: int

    @property
    def name(self) -> str:
        return f"{kind_of(self.problem)}-{self.preset}-worth-M{self.M}"

    @property
    def rows(self) -> int:
        """The number of rows of the job's table: one for each quantity of `diagnostics.worth`."""
        return 7


Job = Run | History | Diagnosis


def kind_of(problem: Problem) -> str:
    """Return the problem's name in files.

    >>> from fedbo_paper.problems.problems import Har
    >>> kind_of(Har())
    'har'
    """
    return type(problem).__name__.lower()


def seed_of(*parts: str | int) -> int:
    """Return a seed that differs for every tuple of words and numbers.

    >>> seed_of("har", "noise", 0) == seed_of("har", "noise", 0) != seed_of("har", "noise", 0, 0)
    True
    """
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "little")
