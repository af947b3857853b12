"""The paper's problems.

A `Problem` is a few lines in an experiment's file, such as ``type = "landmine"`` and
``scoring = "probability"``. `Problem.tasks` reads its data and returns `Tasks`: the search space of
all agents, and an `Objective` for each agent. A process reads the data of a problem once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Literal, Protocol

import msgspec

from fedbo.space import Float, Int, Space
from fedbo.space.axis import Value
from fedbo_paper.data import gleam, har, landmine
from fedbo_paper.problems import logistic, svm
from fedbo_paper.problems.synthetic import Synthetic

#: Scale of a range: linear as in the paper, or logarithmic if it spans orders of magnitude.
Box = Literal["linear", "log"]

#: What ranks the places of a landmine field: see `svm`.
Scoring = Literal["decision", "probability"]

GLASS_VALIDATE = 100  # samples of each person (appendix D)


class Objective(Protocol):
    """A function that scores params.

    ``truth`` is the function without noise, or None if it is unknown or scores have no noise.
    ``optimum`` is the best score without noise, or None if it is unknown.
    """

    @property
    def truth(self) -> Callable[[dict[str, Value]], float] | None: ...

    @property
    def optimum(self) -> float | None: ...

    def __call__(self, params: dict[str, Value], /) -> float: ...


class Tasks(Protocol):
    """The objectives of agents 0, 1, …, all on one space.

    ``seed`` is the seed of the noise: with the same seed, the same params in the same order have
    the same scores. An objective without noise ignores it.
    """

    @property
    def space(self) -> Space: ...

    @property
    def agents(self) -> int: ...

    def objective(self, agent: int, seed: int, /) -> Objective: ...


class _Problem(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True
):
    box: Box = "linear"


class Landmine(_Problem, frozen=True, kw_only=True, tag="landmine"):
    """29 fields tune the C and γ of an SVM; the score is the AUC, to be maximised."""

    scoring: Scoring = "decision"

    def tasks(self, folder: Path | None = None) -> Tasks:
        """Read the data; raises `data.MissingData` if it cannot be found."""
        return _landmine(self, folder)


class _Activities(_Problem, frozen=True, kw_only=True):
    epochs: Annotated[int, msgspec.Meta(ge=1)] = logistic.EPOCHS


class Har(_Activities, frozen=True, kw_only=True, tag="har"):
    """30 people with mobile phones tune a logistic regression that recognises 6 activities.

    The score is the validation error, to be minimised. Half of a person's samples are for
    validation. The paper does not say which half, so it has an equal share of each activity.
    """

    def tasks(self, folder: Path | None = None) -> Tasks:
        """Read the data; raises `data.MissingData` if it cannot be found."""
        return _har(self, folder)


class Glass(_Activities, frozen=True, kw_only=True, tag="glass"):
    """38 people with Google glasses tune a logistic regression that recognises whether they eat.

    The score is the validation error on 100 random samples, to be minimised.

    Args:
        stand_in: Whether to use synthetic samples of the same shape. Results on them say nothing
            about people.

    >>> tasks = Glass(stand_in=True).tasks()
    >>> tasks.agents, tasks.space.names
    (38, ('batch_size', 'l2', 'learning_rate'))
    """

    stand_in: bool = False

    def tasks(self, folder: Path | None = None) -> Tasks:
        """Read the data or create the stand-in; raises `data.MissingData` without either."""
        return _glass(self, folder)


Problem = Synthetic | Landmine | Glass | Har


class _Agents:
    """Tasks made of functions that create an agent's objective from a seed."""

    def __init__(self, space: Space, objectives: Sequence[Callable[[int], Objective]]) -> None:
        self.space = space
        self.agents = len(objectives)
        self._objectives = objectives

    def objective(self, agent: int, seed: int, /) -> Objective:
        if not 0 <= agent < self.agents:
            raise ValueError(f"agent is {agent}, expected 0 to {self.agents - 1}")
        return self._objectives[agent](seed)


@cache
def _landmine(problem: Landmine, folder: Path | None) -> Tasks:
    log = problem.box == "log"
    space = Space({"C": Float(1e-4, 10, log=log), "gamma": Float(0.01, 10, log=log)})
    fields = [svm.Field(samples) for samples in landmine.load(folder)]
    if problem.scoring == "probability":
        return _Agents(space, [partial(svm.ByProbability, field) for field in fields])
    return _Agents(space, [_without_noise(svm.ByDecision(field)) for field in fields])


@cache
def _har(problem: Har, folder: Path | None) -> Tasks:
    return _activities(problem, map(logistic.halves, har.load(folder)))


@cache
def _glass(problem: Glass, folder: Path | None) -> Tasks:
    people = gleam.stand_in() if problem.stand_in else gleam.load(folder)
    return _activities(problem, (logistic.hold_out(person, GLASS_VALIDATE) for person in people))


def _activities(problem: Har | Glass, splits: Iterable[logistic.Split]) -> Tasks:
    log = problem.box == "log"
    space = Space(
        {
            "batch_size": Int(20, 60),
            "l2": Float(1e-6, 1, log=log),
            "learning_rate": Float(0.01, 0.1, log=log),
        },
        direction="minimize",
    )
    people = (logistic.Regression(split, problem.epochs) for split in splits)
    return _Agents(space, [_without_noise(person) for person in people])


def _without_noise(objective: Objective) -> Callable[[int], Objective]:
    """Return a function that gives the same objective for every seed."""
    return lambda seed: objective
