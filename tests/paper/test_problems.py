"""Problems: their options in a file, their tasks, and their objectives."""

from __future__ import annotations

import numpy as np
import pytest
from paper.real_data import folder_with

from fedbo.space import Float, Int
from fedbo_paper.problems.problems import Glass, Har, Landmine, Objective, Problem, Tasks
from fedbo_paper.problems.synthetic import Synthetic

GLASS = Glass(stand_in=True, epochs=2)
HERE: list[Problem] = [Synthetic(), GLASS]
THERE: list[Problem] = [Landmine(), Landmine(scoring="probability"), Har(epochs=2)]


def opened(problem: Problem) -> Tasks:
    file = {Landmine: "LandmineData.mat", Har: "har.npz"}.get(type(problem))
    return problem.tasks(None if file is None else folder_with(file))


# ---------------------------------------------------------------- tasks


def test_the_box_of_landmine_is_the_paper_s() -> None:
    space = opened(Landmine()).space
    assert space.parameters == {"C": Float(1e-4, 10), "gamma": Float(0.01, 10)}
    assert space.direction == "maximize"


@pytest.mark.parametrize("problem", [GLASS, Har(epochs=2)], ids=repr)
def test_the_box_of_activity_recognition_is_the_paper_s(problem: Problem) -> None:
    space = opened(problem).space
    assert space.parameters == {
        "batch_size": Int(20, 60),
        "l2": Float(1e-6, 1),
        "learning_rate": Float(0.01, 0.1),
    }
    assert space.direction == "minimize"


@pytest.mark.parametrize(("problem", "agents"), [(Landmine(), 29), (Har(), 30), (GLASS, 38)])
def test_there_are_as_many_agents_as_in_the_paper(problem: Problem, agents: int) -> None:
    tasks = opened(problem)
    assert tasks.agents == agents
    with pytest.raises(ValueError, match=f"agent is {agents}, expected 0 to {agents - 1}"):
        tasks.objective(agents, 0)
    with pytest.raises(ValueError, match="agent is -1"):
        tasks.objective(-1, 0)


# ---------------------------------------------------------------- objectives


@pytest.mark.parametrize("problem", HERE + THERE, ids=repr)
def test_every_objective_scores_every_point_of_its_space(problem: Problem) -> None:
    tasks, rng = opened(problem), np.random.default_rng(0)
    corners = tasks.space.snap(np.array([np.zeros(tasks.space.dimensions)] * 2))
    corners[1] = tasks.space.snap(np.ones((1, tasks.space.dimensions)))[0]
    for x in (*corners, *tasks.space.sample(rng, 3)):
        objective: Objective = tasks.objective(1, 0)
        score = objective(tasks.space.decode(x))
        assert isinstance(score, float) and -1.0 <= score <= 2.0
        assert objective.optimum is None or objective.truth is not None


@pytest.mark.parametrize("problem", HERE + THERE, ids=repr)
def test_the_same_seed_gives_the_same_scores(problem: Problem) -> None:
    tasks, rng = opened(problem), np.random.default_rng(0)
    params = [tasks.space.decode(x) for x in tasks.space.sample(rng, 4)]
    objectives = [tasks.objective(8, seed) for seed in (3, 3, 4)]
    once, again, other = ([*map(objective, params)] for objective in objectives)
    assert once == again
    noisy = isinstance(problem, Synthetic) or problem == Landmine(scoring="probability")
    assert (once != other) == noisy
