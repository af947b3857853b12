"""What an experiment's file says, and the runs that come of it.

An experiment is a small TOML file beside this module: a problem, how long its runs are, who the
targets are in which figure, and its *arms*, the ways in which a target is run. Where a file lists
several values (``M = [50, 100]``), there is an arm for each combination. A `Run` is one target in
one arm from one set of initial points: all that decides its numbers, and nothing else.

======  ===================================================================================
symbol  meaning
======  ===================================================================================
M       number of features
N       number of peers; all other agents of the problem where a file is silent
t_n     observations of each peer when messages are first handed out
d_n     how far a peer's function is from the target's
p_t     1 − 1/t^power; the preset's own where a file is silent
every   0: messages are sent once; 1: before every iteration, while peers go on (growing t_n)
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
#: What a reader calls them.
PRESET_NAMES: dict[str, str] = {"paper": "paper preset", "default": "default preset"}
#: The experiments on real data of section 5.2.
REAL = ("landmine", "glass", "har")
#: p_t = 1 − 1/t^power of section 5.2, and of the library.
POWERS: dict[Preset, float] = {"paper": 2.0, "default": 0.5}

#: Initial points: the name and value of each parameter of each.
Points = tuple[tuple[tuple[str, Value], ...], ...]


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run a target; Thompson sampling alone has no peers and no features."""

    method: Method
    M: int = 0
    N: int = 0
    t_n: int = 0
    d_n: float | None = None
    power: float | None = None
    every: int = 0


class Arms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arms as a file has them, and the figures that show them."""

    figures: tuple[Figure, ...]
    method: Method | tuple[Method, ...]
    M: int | tuple[int, ...] = 100
    N: int | tuple[int, ...] | None = None
    t_n: int | tuple[int, ...] = 50
    d_n: float | tuple[float, ...] | None = None
    power: float | tuple[float, ...] | None = None
    every: int = 0

    def each(self, others: int, power: float) -> list[Arm]:
        """An arm for each combination of values; N and power are these where the file is silent.

        >>> arms = Arms(figures=("fig2",), method=("FTS", "TAF"), M=(50, 100)).each(28, 2.0)
        >>> len(arms), arms[0]
        (4, Arm(method='FTS', M=50, N=28, t_n=50, d_n=None, power=2.0, every=0))
        """
        values = {
            "method": self.method,
            "M": self.M,
            "N": others if self.N is None else self.N,
            "t_n": self.t_n,
            "d_n": self.d_n,
            "power": power if self.power is None else self.power,
            "every": self.every,
        }
        lists = [value if isinstance(value, tuple) else (value,) for value in values.values()]
        each = [dict(zip(values, some, strict=True)) for some in product(*lists)]
        arms = [msgspec.convert(one, Arm) for one in each]
        return list(dict.fromkeys(_plain(arm) for arm in arms))


def _plain(arm: Arm) -> Arm:
    """The arm without what its method does not use."""
    if arm.method == "TS":
        return Arm(method="TS")
    return arm if arm.method == "FTS" else msgspec.structs.replace(arm, power=None)


class Quick(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of an experiment ``--quick`` keeps: enough to see that everything works."""

    targets: int
    repeats: int
    iterations: int | None = None
    M: tuple[int, ...] | None = None
    N: tuple[int, ...] | None = None


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An experiment, as its file has it.

    Targets are listed for each figure, or counted from 0. ``needs_published`` says that it makes no
    sense without the published initial points; landmine runs take them where they are there.
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

    def of(self, figure: Figure) -> tuple[int, ...]:
        """The targets of a figure."""
        targets = self.targets[figure]
        return tuple(range(targets)) if isinstance(targets, int) else targets

    def arms_of(
        self, figures: tuple[Figure, ...], others: int, power: float
    ) -> dict[Arm, tuple[int, ...]]:
        """The arms that these figures show, and the targets to run in each."""
        shown: dict[Arm, set[int]] = {}
        for arms in self.arms:
            targets = {n for figure in figures if figure in arms.figures for n in self.of(figure)}
            for arm in arms.each(others, power) if targets else ():
                shown.setdefault(arm, set()).update(targets)
        return {arm: tuple(sorted(targets)) for arm, targets in shown.items()}


@cache
def experiments() -> dict[str, Experiment]:
    """All experiments by name.

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
        raise ValueError(f"the experiment {name} is not what it should be: {error}") from None


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted of an experiment: figures, preset, and what differs from its file."""

    experiment: str
    preset: Preset
    figures: tuple[Figure, ...]
    quick: bool = False
    seed: int = 0
    maximiser: Maximiser = "refine"
    problem: dict[str, Any] = {}

    @property
    def spec(self) -> Experiment:
        """The experiment, changed as selected."""
        spec = experiments()[self.experiment]
        problem = msgspec.convert(msgspec.to_builtins(spec.problem) | self.problem, Problem)
        seeds = tuple(self.seed + seed for seed in spec.seeds)
        spec = msgspec.structs.replace(spec, problem=problem, seeds=seeds)
        return _quick(spec) if self.quick else spec

    def like(self, other: Selection) -> bool:
        """Whether only the figures differ."""
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
        targets={figure: spec.of(figure)[: quick.targets] for figure in spec.targets},
        repeats=quick.repeats,
        iterations=quick.iterations or spec.iterations,
        seeds=spec.seeds[:1],
    )


class Run(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One target in one arm: all that decides its numbers."""

    experiment: str
    problem: Problem
    preset: Preset
    maximiser: Maximiser
    arm: Arm
    target: int
    repeat: int
    seed: int
    iterations: int
    initial: Points

    @property
    def name(self) -> str:
        arm = self.arm
        which = f"{self.target}.{self.repeat}"
        return "-".join([self.experiment, self.preset, arm.method, f"M{arm.M}", which])

    @property
    def rows(self) -> int:
        """Of its table."""
        return len(self.initial) + self.iterations


class History(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What an agent did alone before it hands out its first message: Thompson sampling."""

    problem: Problem
    preset: Preset
    maximiser: Maximiser
    agent: int
    seed: int
    iterations: int
    initial: Points

    @property
    def name(self) -> str:
        return f"{kind_of(self.problem)}-{self.preset}-alone-{self.agent}"

    @property
    def rows(self) -> int:
        """Of its table."""
        return len(self.initial) + self.iterations


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What messages are worth that draw on t_n queries of each agent, to ``targets`` of them."""

    problem: Problem
    preset: Preset
    maximiser: Maximiser
    M: int
    t_n: int
    peers: int
    targets: int
    seed: int

    @property
    def name(self) -> str:
        return f"{kind_of(self.problem)}-{self.preset}-worth-M{self.M}"

    @property
    def rows(self) -> int:
        """Of its table: one for each quantity of `fedbo.experiments.paper.diagnostics`."""
        return 7


Job = Run | History | Diagnosis


def kind_of(problem: Problem) -> str:
    """How files call the problem.

    >>> from fedbo_paper.problems.problems import Har
    >>> kind_of(Har())
    'har'
    """
    return type(problem).__name__.lower()


def seed_of(*parts: str | int) -> int:
    """A seed of its own for each tuple of words and numbers.

    >>> seed_of("har", "noise", 0) == seed_of("har", "noise", 0) != seed_of("har", "noise", 0, 0)
    True
    """
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "little")
