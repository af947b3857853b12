"""What a message is worth, on problems small enough to know it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from paper.fake_runs import fake_runs

from fedbo import FTS, TS, Agent, Federation, Float, Power, Space
from fedbo.model.surrogate import Standardised
from fedbo.simulate import Party, simulate
from fedbo.space.axis import Value
from fedbo.table import Table
from fedbo_paper.experiments.diagnostics import Trials, expected, used, worth

pytestmark = pytest.mark.slow


class Bowl:
    """An objective with its best, 1 or (as an error) 0, at x = at."""

    truth: Callable[[dict[str, Value]], float] | None = None
    optimum: float | None = None

    def __init__(self, at: float, falls: bool) -> None:
        self.at = at
        self.falls = falls
        self.asked = 0

    def __call__(self, params: dict[str, Value]) -> float:
        self.asked += 1
        error = (float(params["x"]) - self.at) ** 2
        return error if self.falls else 1.0 - error


class Bowls:
    """Agents with their best points at these places."""

    def __init__(self, *at: float, falls: bool = False) -> None:
        self.space = Space({"x": Float(0, 1)}, direction="minimize" if falls else "maximize")
        self.agents = len(at)
        self.bowls = [Bowl(place, falls) for place in at]

    def objective(self, agent: int, seed: int) -> Bowl:
        return self.bowls[agent]

    def histories(self, n: int = 15) -> list[Trials]:
        points: list[dict[str, Value]] = [{"x": float(x)} for x in np.linspace(0, 1, n)]
        return [[(params, bowl(params)) for params in points] for bowl in self.bowls]


ALIKE = (0.48, 0.5, 0.52, 0.5)


def of(table: Table, quantity: str, column: str = "mean") -> float:
    return float(table.where(quantity=quantity)[column][0])


def test_peers_that_are_alike_are_worth_more_than_a_random_point() -> None:
    tasks = Bowls(*ALIKE)
    table = worth(tasks, tasks.histories(), "default", 60)
    assert table["quantity"].tolist() == [
        *("random", "message", "best", "height", "highest", "message_gain", "best_gain")
    ]
    assert of(table, "random") == pytest.approx(1 - 1 / 12, abs=0.02)
    assert of(table, "best") == pytest.approx(1.0, abs=0.005)
    assert of(table, "message") > 0.97
    assert 3 * of(table, "message_gain", "standard_error") < of(table, "message_gain")
    assert of(table, "message_gain") == pytest.approx(of(table, "message") - of(table, "random"))
    assert of(table, "random", "values") == 400 and of(table, "message", "values") == 12
    assert set(table["targets"]) == {4}


def test_where_scores_are_errors_a_gain_is_still_more() -> None:
    up, down = Bowls(*ALIKE), Bowls(*ALIKE, falls=True)
    gains = worth(up, up.histories(), "default", 60)
    errors = worth(down, down.histories(), "default", 60)
    for name in ("random", "message", "best"):
        assert of(errors, name) == pytest.approx(1.0 - of(gains, name), abs=1e-6)
    for name in ("message_gain", "best_gain", "height", "highest"):
        assert of(errors, name) == pytest.approx(of(gains, name), abs=1e-5)


def test_errors_are_clustered_by_target() -> None:
    """Two targets, one of them far from all others: the pairs are no sample of their own."""
    tasks = Bowls(0.1, 0.9, 0.9, 0.9)
    table = worth(tasks, tasks.histories(), "default", 60, targets=[0, 1])
    grid = np.linspace(0, 1, 15)
    near_far, far_near = grid[np.argmin(abs(grid - 0.9))], grid[np.argmin(abs(grid - 0.1))]
    first = 1 - (near_far - 0.1) ** 2
    second = np.mean([1 - (far_near - 0.9) ** 2, *[1 - (near_far - 0.9) ** 2] * 2])
    assert of(table, "best") == pytest.approx((first + second) / 2)
    assert of(table, "best", "standard_error") == pytest.approx(abs(first - second) / 2)


def test_heights_are_in_the_units_of_the_message() -> None:
    """Raw in the paper's preset, where a draw of rough features towers over all scores."""
    tasks = Bowls(*ALIKE)
    paper = worth(tasks, tasks.histories(), "paper", 60)
    ours = worth(tasks, tasks.histories(), "default", 60)
    best = max(score for _, score in tasks.histories()[0])
    assert of(paper, "highest") == pytest.approx(best, abs=2e-3)
    assert of(paper, "height") > 1.2
    scores = np.array([score for _, score in tasks.histories()[1]])
    standard = Standardised(scores).z.max()
    assert of(ours, "highest") == pytest.approx(standard, abs=0.02)
    assert of(ours, "height") == pytest.approx(standard, abs=0.5)


def test_a_cap_on_peers_saves_evaluations_and_is_seeded() -> None:
    tasks = Bowls(*ALIKE, *ALIKE)
    histories = tasks.histories()
    before = tasks.bowls[2].asked
    table = worth(tasks, histories, "default", 20, targets=[2], peers=3, seed=1)
    assert tasks.bowls[2].asked == before + 100 + 2 * 3
    assert of(table, "message", "values") == 3 and set(table["targets"]) == {1}
    assert math.isnan(of(table, "message", "standard_error")), "of one target nothing is known"
    assert table == worth(tasks, histories, "default", 20, targets=[2], peers=3, seed=1)
    assert table != worth(tasks, histories, "default", 20, targets=[2], peers=3, seed=2)


def test_what_is_wrong_is_said() -> None:
    tasks = Bowls(*ALIKE)
    histories = tasks.histories()
    with pytest.raises(ValueError, match=r"trials of 3 agents in 3 lists.*each of the 4 agents"):
        worth(tasks, histories[:3], "default")
    with pytest.raises(ValueError, match="trials of 3 agents in 4 lists"):
        worth(tasks, [*histories[:3], []], "default")
    with pytest.raises(ValueError, match="target 4 is not one of 4 agents"):
        worth(tasks, histories, "default", targets=[4])
    with pytest.raises(ValueError, match="targets is empty"):
        worth(tasks, histories, "default", targets=[])
    with pytest.raises(ValueError, match="peers is 0"):
        worth(tasks, histories, "default", peers=0)


# How many queries come from peers


def test_the_paper_schedule_uses_less_than_one_message_a_run() -> None:
    mean, none = expected(power=2.0, iterations=50, N=28)
    assert mean == pytest.approx(0.25 + sum(t**-2.0 for t in range(2, 51)))
    assert none == pytest.approx(0.75 * math.prod(1 - t**-2.0 for t in range(2, 51)))
    assert (round(mean, 1), round(none, 2)) == (0.9, 0.38)


@pytest.mark.parametrize("N", [0, 1, 2, 9])
@pytest.mark.parametrize("renewed", [False, True])
def test_expectations_are_those_of_all_outcomes(N: int, renewed: bool) -> None:
    p = [Power(0.5)(t) for t in range(1, 7)]
    mean = none = 0.0
    for asked in itertools.product([0, 1], repeat=6):
        chance = math.prod(1 - p_t if one else p_t for p_t, one in zip(p, asked, strict=True))
        number = 0 if N == 0 else sum(asked) if renewed else min(sum(asked), N)
        mean += chance * number
        none += chance * (number == 0)
    assert expected(0.5, 6, N, renewed) == (pytest.approx(mean), pytest.approx(none))


@pytest.mark.slow
def test_expectations_are_those_of_the_policy() -> None:
    """Real runs of FTS with three peers, which it uses up."""
    federation = Federation({"x": Float(0, 1)}, features=5)
    peers = [Agent(federation, TS(), name=f"peer-{n}", seed=n) for n in range(3)]
    for peer in peers:
        peer.tell({"x": 0.5}, 1.0)
    numbers = []
    for seed in range(100):
        agent = Agent(federation, FTS(schedule=Power(0.5)), name="target", seed=seed, initial=[])
        target = Party(agent=agent, objective=lambda params: 0.0)
        table = simulate([target, *(Party(agent=peer) for peer in peers)], 6)
        numbers.append(int(np.count_nonzero(table["source"] == "peer")))
    mean, none = expected(0.5, 6, 3)
    assert np.mean(numbers) == pytest.approx(mean, abs=4 * np.std(numbers) / 10)
    assert np.mean(np.array(numbers) == 0) == pytest.approx(none, abs=0.07)


def test_used_counts_queries_from_peers_a_run() -> None:
    columns = ("experiment", "preset", "method", "M", "N", "t_n", "d_n", "power", "every")
    arm = ("landmine", "paper", "FTS", 100, 28, 50, math.nan, 2.0, 0)
    alone = ("landmine", "paper", "TS", 0, 0, 0, math.nan, math.nan, 0)
    rows = [
        (*arm, target, 0, 0, t, source)
        for target, sources in enumerate(["ioo", "ipo", "ipp", "ioo"])
        for t, source in enumerate({"i": "initial", "o": "own", "p": "peer"}[s] for s in sources)
    ]
    rows += [(*alone, 0, 0, 0, t, "own") for t in range(3)]
    runs = Table.from_rows([*columns, "target", "repeat", "seed", "iteration", "source"], rows)
    table = used(runs)
    assert table.height == 1 and (table["runs"][0], table["M"][0]) == (4, 100)
    assert table["mean"][0] == 0.75 and table["none"][0] == 0.5
    assert table["standard_error"][0] == pytest.approx(np.std([0, 1, 2, 0], ddof=1) / 2)
    assert (table["expected_mean"][0], table["expected_none"][0]) == (0.5, 0.75**2)


def test_used_has_a_row_for_each_setting_of_fts() -> None:
    runs = fake_runs(("landmine", "synthetic"), targets=2, repeats=3, iterations=4)
    table = used(runs)
    assert table.where(experiment="landmine", preset="paper").height == 5  # four M, and growing t_n
    assert table.where(experiment="synthetic", preset="paper").height == 8
    assert set(table["runs"]) == {6}
    unknown = np.isnan(table["power"])
    assert np.array_equal(np.isnan(table["expected_mean"]), unknown) and unknown.any()
