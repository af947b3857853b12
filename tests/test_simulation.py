"""Whole federations: when messages travel, who gets them, and what the table says."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbo import FTS, TS, Agent, Federation, Float
from fedbo.agent.settings import Settings
from fedbo.federation.shared import Shared
from fedbo.policy import Policy, Query, Target
from fedbo.privacy import Plan
from fedbo.simulation import Party, simulate
from fedbo.table import Table

M = 10
FEDERATION = Federation({"x": Float(0, 1)}, features=M)
SENT = Shared.of(FEDERATION).coordinates + 1 + len(Shared.of(FEDERATION).cells)


class Listed(Policy, frozen=True):
    """Queries as listed, so that every number in a table can be worked out by hand."""

    xs: tuple[float, ...] = (0.5,)

    def query(self, target: Target) -> Query:
        return Query(np.array([self.xs[(target.t - 1) % len(self.xs)]]))


def height(params: dict[str, Any]) -> float:
    return float(params["x"])


def listed(name: str, *xs: float, federation: Federation = FEDERATION, n_initial: int = 0) -> Agent:
    return Agent(federation, Listed(xs), name=name, seed=0, settings=Settings(n_initial=n_initial))


def static(
    name: str, n: int = 3, federation: Federation = FEDERATION, seed: int | None = None
) -> Party:
    agent, rng = Agent(federation, TS(), name=name, seed=seed), np.random.default_rng(n)
    for x in rng.random(n).round(6).tolist():
        agent.tell({"x": x}, height({"x": x}))
    return Party(agent=agent)


def active(name: str, *xs: float) -> Party:
    return Party(agent=listed(name, *(xs or (0.1, 0.9))), objective=height)


@pytest.mark.parametrize(
    ("every", "rounds"),
    [(None, []), (0, [1]), (1, [1, 2, 3, 4, 5, 6, 7]), (3, [1, 4, 7]), (6, [1, 7]), (9, [1])],
)
def test_messages_travel_when_they_are_due(every: int | None, rounds: list[int]) -> None:
    parties = [active("target"), static("constant"), active("growing")]
    received = simulate(parties, 7, every=every).where(agent="target")["parameters_received"]
    arrivals = np.diff(received, prepend=0)
    # The static peer's message is new once; the other one's once it has scores, and then always.
    by_hand = [SENT * ((t in rounds[:1]) + (t in rounds and t > 1)) for t in range(1, 8)]
    assert arrivals.tolist() == by_hand


def test_a_newcomer_hears_what_there_is_before_its_first_trial() -> None:
    """A default agent does; one that begins with its design hears the same messages later."""
    agents = [Agent(FEDERATION, name="new", seed=0), Agent(FEDERATION, FTS(), name="fts", seed=0)]
    parties = [*(Party(agent=agent, objective=height) for agent in agents), static("a", 8)]
    table = simulate(parties, 2)
    new, fts = (table.where(agent=name) for name in ("new", "fts"))
    assert new["source"].tolist()[0] == "tip"
    assert agents[0].trials[0].credit == {"a": pytest.approx(1.0)}
    assert new["parameters_received"].tolist() == [SENT] * 3 + [2 * SENT] * 2
    assert fts["source"].tolist()[:3] == ["initial"] * 3
    assert fts["parameters_received"].tolist() == [0] * 3 + [2 * SENT] * 2


def test_regrets_by_hand() -> None:
    agent = Agent(FEDERATION, Listed((0.2, 0.75, 0.5)), initial=[{"x": 0.25}, {"x": 0.0}], name="a")
    table = simulate([Party(agent=agent, objective=height, optimum=1.0)], 3)
    assert table["iteration"].tolist() == [0, 0, 1, 2, 3]
    assert table["trial"].tolist() == [0, 1, 2, 3, 4]
    assert table["score"].tolist() == [0.25, 0.0, 0.2, 0.75, 0.5]
    assert table["best"].tolist() == [0.25, 0.25, 0.25, 0.75, 0.75]
    assert table["simple_regret"].tolist() == [0.75, 0.75, 0.75, 0.25, 0.25]
    np.testing.assert_allclose(table["cumulative_regret"], [0, 0, 0.8, 1.05, 1.55])


def test_a_failed_trial_has_no_score_and_no_regret() -> None:
    scores = iter([None, 0.5, None, 0.25])
    party = Party(agent=listed("a", 0.1, 0.2), objective=lambda _: next(scores), optimum=1.0)
    table = simulate([party], 4)
    np.testing.assert_array_equal(table["score"], [math.nan, 0.5, math.nan, 0.25])
    np.testing.assert_array_equal(table["best"], [math.nan, 0.5, 0.5, 0.5])
    np.testing.assert_array_equal(table["simple_regret"], [math.nan, 0.5, 0.5, 0.5])
    assert table["cumulative_regret"].tolist() == [0.0, 0.5, 0.5, 1.25]
    assert table["t"].tolist() == [1, 1, 2, 2]  # failed trials do not count
    assert [trial.state for trial in party.agent.trials] == ["failed", "complete"] * 2


def federation_of_four(seed: int) -> list[Party]:
    def party(i: int, policy: Policy) -> Party:
        rng = np.random.default_rng([seed, i])
        return Party(
            agent=Agent(FEDERATION, policy, name=f"agent-{i}", seed=seed + i),
            objective=lambda params: height(params) + 0.1 * rng.standard_normal(),
            truth=height,
            optimum=1.0,
        )

    return [*(party(i, FTS()) for i in range(3)), party(3, TS())]


def test_same_seeds_same_table(tmp_path: Path) -> None:
    def run(seed: int) -> Table:
        return simulate(federation_of_four(seed), 5, every=2)

    table = run(0)
    assert table.height == 4 * (3 + 5)
    assert "peer" in table["source"]
    assert run(0) == table
    assert run(10) != table
    table.to_csv(tmp_path / "table.csv")
    assert Table.from_csv(tmp_path / "table.csv") == table


def fails(params: dict[str, Any]) -> float:
    raise ZeroDivisionError("no data")


@pytest.mark.parametrize(
    ("objective", "truth", "sentence"),
    [
        (fails, None, r"'a' stopped .* iteration 1 at trial 0 with \{'x': 0.5\}: ZeroDiv.*no data"),
        (height, fails, r"'a' stopped .* \{'x': 0.5\}: ZeroDivisionError: no data"),
        (lambda _: math.nan, None, r"'a' stopped .* \{'x': 0.5\} was told nan, expected a finite"),
    ],
)
def test_errors_name_agent_and_params(
    objective: Callable[[Any], float], truth: Callable[[Any], float] | None, sentence: str
) -> None:
    party = Party(agent=listed("a", 0.5), objective=objective, truth=truth, optimum=1.0)
    with pytest.raises(RuntimeError, match=sentence) as caught:
        simulate([party], 1)
    assert isinstance(caught.value.__cause__, ZeroDivisionError | ValueError)


# Private federations

PRIVATE = Federation({"x": Float(0, 1)}, privacy=Plan(epsilon=4.0, delta=1e-2, releases=2))


def confidential(
    federation: Federation = PRIVATE, n: int = 4, trials: int = 3, **given: Any
) -> list[Party]:
    """An active party without trials, and others with some."""
    agent = Agent(federation, name="active", seed=1, **given)
    return [
        Party(agent=agent, objective=lambda params: -abs(params["x"] - 0.3)),
        *(static(f"s{i}", trials, federation, seed=i) for i in range(n)),
    ]


@pytest.mark.parametrize(("every", "heard"), [(0, 1), (1, 2), (2, 2), (None, 0)])
def test_releases_are_heard_as_long_as_there_are_any(every: int | None, heard: int) -> None:
    parties = confidential()
    simulate(parties, 4, every=every, seed=0)
    assert parties[0].agent.account.received.messages == heard
    assert len(parties[0].agent.inbox) == (64 if heard else 0)


def test_private_runs_repeat_with_a_seed() -> None:
    def run(seed: int | None) -> str:
        return simulate(confidential(), 4, every=0, seed=seed).csv()

    assert run(0) == run(0)
    assert run(0) != run(1)
    assert run(None) != run(None)  # secret noise


def test_a_release_is_of_all_parties_with_enough_trials() -> None:
    strict = Federation({"x": Float(0, 1)}, privacy=Plan(epsilon=4.0, delta=1e-2, least_trials=5))
    few = confidential(strict, trials=4)
    simulate(few, 1, seed=0)
    assert len(few[0].agent.inbox) == 0
    enough = confidential(strict, trials=5)
    simulate(enough, 1, seed=0)
    assert len(enough[0].agent.inbox) == 64
