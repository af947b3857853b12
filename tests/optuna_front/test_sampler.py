"""The sampler in a study: what it asks for, what it is told, what it refuses, what lasts."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from contracts.exchange import heard
from contracts.studies import settle
from optuna.distributions import FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from fedbo import (
    Agent,
    Federation,
    FederationMismatch,
    Float,
    Space,
)
from fedbo.exchange import ExchangeWarning, FolderExchange, MemoryExchange
from fedbo.federation.shared import Shared
from fedbo.optuna import FederatedSampler, private
from fedbo.optuna.mail import Letters
from fedbo.optuna.stored import StoredStudy
from fedbo.optuna.study import (
    RECORD,
    Asked,
    Mirror,
    read_asked,
    read_origin,
    write_asked,
)

pytestmark = pytest.mark.usefixtures("patient")

FEDERATION = Federation(
    Space({"x": Float(0, 1), "rate": Float(1e-3, 10, log=True)}, direction="minimize"), features=30
)
X, RATE = FloatDistribution(0, 1), FloatDistribution(1e-3, 10, log=True)


def bowl(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", 0, 1)
    rate = trial.suggest_float("rate", 1e-3, 10, log=True)
    return (x - 0.3) ** 2 + 0.1 * math.log10(rate) ** 2


def study_of(sampler: FederatedSampler, **options: Any) -> optuna.Study:
    return optuna.create_study(sampler=sampler, **options)


def agent_of(study: optuna.Study) -> Agent:
    assert isinstance(study.sampler, FederatedSampler)
    agent = study.sampler.agent_of(study)
    assert agent is not None
    return agent


def synced(study: optuna.Study) -> Agent:
    """The study's agent, told all that has finished, without asking it for more."""
    assert isinstance(study.sampler, FederatedSampler)
    study.sampler.preview(study)
    return agent_of(study)


def scores(study: optuna.Study) -> int:
    """How many scores the study's agent was told."""
    return sum(trial.state == "complete" for trial in synced(study).trials)


def sources(study: optuna.Study) -> list[str | None]:
    origins = map(read_origin, study.trials)
    return [None if origin is None else origin.source for origin in origins]


def journal(path: Path) -> JournalStorage:
    """A storage in a file, and faster than SQLite."""
    return JournalStorage(JournalFileBackend(str(path / "site.journal")))


# Queries


def test_with_a_federation_even_the_first_trial_is_a_query() -> None:
    study = study_of(FederatedSampler(FEDERATION, seed=0))
    study.optimize(bowl, n_trials=25)
    assert study.best_value < 0.005
    assert sources(study)[:4] == ["initial", "initial", "initial", "own"]
    asked = [read_asked(trial) for trial in study.trials]
    assert [one.t for one in asked if one] == [None] * 3 + [*range(1, 23)]


def test_a_study_in_the_other_direction_is_refused_before_anything_is_evaluated() -> None:
    study = study_of(FederatedSampler(FEDERATION), direction="maximize")
    with pytest.raises(
        FederationMismatch, match="study has direction maximize, but its federation has minimize"
    ):
        study.optimize(bowl, n_trials=1)
    assert [trial.state for trial in study.trials] == [TrialState.FAIL]


def test_listed_points_are_the_only_ones_asked_for() -> None:
    points = [{"x": i / 7, "rate": 10.0**k} for i in range(8) for k in range(-3, 2)]
    space = Space(FEDERATION.space.parameters, direction="minimize", points=points)
    sampler = FederatedSampler(Federation(space, features=30), seed=0)
    study = study_of(sampler)
    study.optimize(bowl, n_trials=20)
    tried = [trial.params for trial in study.trials]
    assert all(params in points for params in tried)
    assert len({tuple(params.values()) for params in tried}) == 20
    trial = study._storage.get_trial(study._storage.create_new_trial(study._study_id))
    assert sampler.sample_relative(study, trial, {"rate": RATE, "x": X}) in points
    with pytest.raises(ValueError, match="without listed points"):
        FederatedSampler(Federation(space), clip=True)


def test_many_objectives_are_refused() -> None:
    study = study_of(FederatedSampler(FEDERATION), directions=["minimize", "maximize"])
    with pytest.raises(ValueError, match="2 objectives, but FederatedSampler tunes one"):
        study.optimize(bowl, n_trials=1)


# Constraints, which Optuna 4 stores in a list, and Optuna 5 by name


def constrain(trial: optuna.Trial, value: float) -> None:
    private.set_trial_attribute(trial.study, trial, "constraints", [value])  # all versions read it


def test_constraints_are_kept_and_never_leave() -> None:
    def constraints(trial: FrozenTrial) -> tuple[float]:
        return (0.5 - trial.params["x"],)

    exchange = MemoryExchange()
    sampler = FederatedSampler(FEDERATION, exchange, seed=1, constraints_func=constraints)
    study = study_of(sampler)
    study.optimize(bowl, n_trials=20)
    feasible = [trial for trial in study.trials if trial.params["x"] >= 0.5]
    assert len(feasible) >= 10
    study.sampler.flush()
    (message,) = heard(exchange, FEDERATION)
    assert message.sequence == message.t_n == len(feasible)
    assert StoredStudy(study, FEDERATION).message(exchange).body == message.body


def test_pruned_trials_may_break_a_constraint_too() -> None:
    def pruned(trial: optuna.Trial) -> float:
        trial.report(bowl(trial), 0)
        constrain(trial, 1.0)
        raise optuna.TrialPruned

    study = study_of(FederatedSampler(FEDERATION, seed=1))
    study.optimize(pruned, n_trials=4)
    assert not any(trial.is_feasible for trial in study.sampler.agent.trials)
    assert study.sampler.preview(study) is None


def test_a_first_constraint_takes_the_message_of_earlier_trials_out_of_date() -> None:
    exchange = MemoryExchange()
    study = study_of(FederatedSampler(FEDERATION, exchange, seed=1, name="site"))
    study.optimize(bowl, n_trials=8)
    study.sampler.flush()
    study.sampler = FederatedSampler(FEDERATION, exchange, constraints_func=lambda trial: [0.0])
    with pytest.warns(ExchangeWarning, match="8 scores, and only . count now"):
        study.optimize(bowl, n_trials=12)
        study.sampler.flush()
    (message,) = heard(exchange, FEDERATION)
    assert message.sequence == 12


def test_constraints_must_be_numbers() -> None:
    study = study_of(FederatedSampler(FEDERATION, constraints_func=lambda trial: [0.0, math.nan]))
    with pytest.raises(ValueError, match=r"returned \[0.0, nan\] for trial 0, expected numbers"):
        study.optimize(bowl, n_trials=1)


def test_a_trial_without_the_constraint_of_others_counts_as_failed() -> None:
    def partly(trial: optuna.Trial) -> float:
        value = bowl(trial)
        if trial.number % 2:
            constrain(trial, math.inf if trial.number == 3 else -math.inf)
        return value

    study = study_of(FederatedSampler(FEDERATION, seed=1))
    study.optimize(partly, n_trials=8)
    agent = study.sampler.agent_of(study)
    assert [trial.state for trial in agent.trials] == ["failed", "complete"] * 4
    assert [trial.is_feasible for trial in agent.trials[1::2]] == [True, False, True, True]


# Parameters that only the study has


def test_own_parameters_are_tuned_with_the_federations() -> None:
    def objective(trial: optuna.Trial) -> float:
        own = trial.suggest_float("own", 0, 1)
        kind = trial.suggest_categorical("kind", ["a", "b", "c"])
        return bowl(trial) + (own - 0.3) ** 2 + (kind == "a")

    exchange = MemoryExchange()
    study = study_of(FederatedSampler(FEDERATION, exchange, seed=1))
    study.optimize(objective, n_trials=15)
    agent = study.sampler.agent_of(study)
    assert [*agent.space.parameters] == [*FEDERATION.space.parameters, "kind", "own"]
    assert [t.params for t in agent.trials] == [
        {name: t.params[name] for name in agent.space.names} for t in study.trials
    ]
    sources = [trial.source for trial in agent.trials]
    assert sources[:3] == ["initial"] * 3 and "told" not in sources
    assert (study.trials[0].params["kind"], study.trials[0].params["own"]) == ("a", 0.5)
    study.sampler.flush()
    (message,) = heard(exchange, FEDERATION)
    Shared.of(FEDERATION).check(message)
    # another worker builds the same agent
    again = FederatedSampler(FEDERATION).agent_of(study)
    assert [t.params for t in again.trials] == [t.params for t in agent.trials]
    assert again.message().body == message.body


@pytest.mark.parametrize("federation", [FEDERATION, None])
def test_choices_on_which_parameters_hang_are_sampled_beside(federation) -> None:
    def objective(trial: optuna.Trial) -> float:
        value = bowl(trial) + trial.suggest_float("own", 0, 1)
        if trial.suggest_categorical("kind", ["a", "b"]) == "a":
            return value + trial.suggest_float("only a", 0, 1)
        return value + 0.1

    study = study_of(FederatedSampler(federation, seed=1))
    study.optimize(objective, n_trials=12)
    assert {trial.params["kind"] for trial in study.trials} == {"a", "b"}
    agent = study.sampler.agent_of(study)
    assert {*agent.space.parameters} == {*FEDERATION.space.parameters, "own"}
    assert len(agent.trials) == 12


def test_choices_stay_in_the_model_when_a_parameter_is_added() -> None:
    def objective(trial: optuna.Trial) -> float:
        value = bowl(trial) + (trial.suggest_categorical("kind", ["a", "b"]) == "a")
        return value + (trial.suggest_float("new", 0, 1) if trial.number >= 3 else 0.0)

    study = study_of(FederatedSampler(seed=1))
    study.optimize(objective, n_trials=8)
    assert "kind" in study.sampler.agent.space.parameters


def test_own_parameters_leave_the_middle_if_the_first_trial_fails() -> None:
    def objective(trial: optuna.Trial) -> float:
        if trial.suggest_float("own", 0, 1) == 0.5:
            raise MemoryError
        return bowl(trial)

    study = study_of(FederatedSampler(FEDERATION, seed=1))
    study.optimize(objective, n_trials=4, catch=MemoryError)
    assert [trial.state for trial in study.trials].count(TrialState.COMPLETE) == 3


# Objectives that differ from the federation


def test_a_parameter_that_differs_is_refused_before_anything_is_evaluated() -> None:
    evaluated: list[int] = []

    def differs(trial: optuna.Trial) -> float:
        trial.suggest_float("x", 0, 1)
        trial.suggest_float("rate", 1e-3, 1, log=True)
        evaluated.append(trial.number)
        return 0.0

    study = study_of(FederatedSampler(FEDERATION, seed=0))
    study.optimize(bowl, n_trials=4)
    before = study.trials
    with pytest.raises(FederationMismatch) as error:
        study.optimize(differs, n_trials=1)
    assert "'rate': high is 1.0 in the objective and 10.0 in the federation" in str(error.value)
    assert "clip=True" in str(error.value) and "suggest_float('rate', 0.001, 10.0" in str(
        error.value
    )
    assert not evaluated
    assert study.trials[:4] == before and study.trials[4].state is TrialState.FAIL
    study.optimize(bowl, n_trials=3)  # and it goes on
    assert scores(study) == 7


def test_a_narrower_site_searches_its_own_range() -> None:
    """Queries that were only clipped would pile up on its border."""
    names = [f"x{i}" for i in range(3)]
    federation = Federation(Space({n: Float(0, 1) for n in names}, direction="minimize"))

    def objective(trial: optuna.Trial) -> float:
        return sum((trial.suggest_float(n, 0.4, 0.6) - 0.47) ** 2 for n in names)

    for seed in range(2):
        study = study_of(FederatedSampler(federation, clip=True, seed=seed))
        study.optimize(objective, n_trials=15)
        study.sampler = FederatedSampler(federation, clip=True)  # next week
        study.optimize(objective, n_trials=10)
        values = [value for trial in study.trials[1:] for value in trial.params.values()]
        assert sum(value in (0.4, 0.6) for value in values) < 0.4 * len(values)
        assert study.best_value < 3 * 0.02**2


def test_pruned_and_infinite_scores_are_the_same_in_a_rebuilt_agent() -> None:
    """They depend on the scores before them, which are those that ended before."""
    study = study_of(FederatedSampler(FEDERATION, seed=0))
    running = [study.ask() for _ in range(6)]
    values = [bowl(trial) for trial in running]
    running[0].report(9.0, 1)
    study.tell(running[4], values[4])
    study.tell(running[0], state=TrialState.PRUNED)
    study.tell(running[3], float("inf"))
    study.tell(running[2], values[2])
    study.tell(running[1], state=TrialState.PRUNED)
    study.optimize(bowl, n_trials=2)
    again = optuna.load_study(study_name=study.study_name, storage=study._storage)
    again.sampler = FederatedSampler(FEDERATION, seed=0)
    live, rebuilt = synced(study), synced(again)
    told = [sorted(map(repr, ((t.params, t.score) for t in a.trials))) for a in (live, rebuilt)]
    assert told[0] == told[1]
    assert live.message() == rebuilt.message()


def test_trials_of_another_space_are_left_out_with_one_warning() -> None:
    study = study_of(FederatedSampler(FEDERATION, seed=0))
    wide = FloatDistribution(0, 5)
    for x in (0.5, 2.0, 3.0):
        params, distributions = {"x": x, "rate": 1.0}, {"x": wide, "rate": RATE}
        study.add_trial(create_trial(params=params, distributions=distributions, value=x))
    with pytest.warns(UserWarning, match="trial 1 .* 'x' is 2.0, expected a number from 0.0 to 1"):
        study.optimize(bowl, n_trials=2)
    # 0.5 is a point of the federation's space, whatever else it might have been
    assert agent_of(study).trials[0].params["x"] == 0.5
    assert scores(study) == 3


# Trials that are not as usual


def test_old_trials_are_used_at_once() -> None:
    study = study_of(FederatedSampler(FEDERATION, seed=0))
    for i in range(6):
        params: dict[str, Any] = {"x": i / 5, "rate": 1.0}
        value = (i / 5 - 0.3) ** 2
        old = create_trial(params=params, distributions={"x": X, "rate": RATE}, value=value)
        study.add_trial(old)
    study.optimize(bowl, n_trials=1)
    assert sources(study) == [None] * 6 + ["own"]
    agent = agent_of(study)
    assert [trial.source for trial in agent.trials] == ["told"] * 6 + ["own"]
    assert [trial.t for trial in agent.trials][-1] == 1


def test_failed_trials_are_told_as_failed() -> None:
    def objective(trial: optuna.Trial) -> float:
        value = bowl(trial)
        if trial.number == 1:
            raise RuntimeError("the machine was on fire")
        return math.nan if trial.number == 2 else value

    study = study_of(FederatedSampler(FEDERATION, seed=0))
    study.optimize(objective, n_trials=6, catch=(RuntimeError,))
    states = [trial.state for trial in synced(study).trials]
    assert states == ["complete", "failed", "failed", "complete", "complete", "complete"]
    assert sources(study)[:5] == ["initial"] * 5  # those that failed are made up for


def test_pruned_trials_are_told_no_better_than_the_middle() -> None:
    def objective(trial: optuna.Trial) -> float:
        value = bowl(trial)
        if trial.number == 6:
            trial.report(-5.0, 0)  # it looked good, but so do all beginnings
            raise optuna.TrialPruned
        if trial.number == 7:
            trial.report(99.0, 0)
            raise optuna.TrialPruned
        if trial.number == 8:
            raise optuna.TrialPruned
        return value

    study = study_of(FederatedSampler(FEDERATION, seed=0))
    study.optimize(objective, n_trials=10)
    scores = [trial.score for trial in synced(study).trials]
    values = sorted(trial.value for trial in study.trials[:6] if trial.value is not None)
    middle = (values[2] + values[3]) / 2
    assert scores[6:9] == [pytest.approx(middle), 99.0, pytest.approx(middle)]


def test_infinite_values_are_as_the_best_or_the_worst_so_far() -> None:
    told = [math.inf, 2.0, 1.0, 3.0, math.inf, -math.inf, 5.0]

    def objective(trial: optuna.Trial) -> float:
        bowl(trial)
        return told[trial.number]

    study = study_of(FederatedSampler(FEDERATION, seed=0))
    study.optimize(objective, n_trials=len(told))
    scores = [trial.score for trial in synced(study).trials]
    assert scores == [None, 2.0, 1.0, 3.0, 3.0, 1.0, 5.0]


def test_enqueued_trials_are_told_where_they_ran() -> None:
    study = study_of(FederatedSampler(FEDERATION, seed=0))
    study.enqueue_trial({"x": 0.25, "rate": 2.0})
    study.enqueue_trial({"x": 0.5})
    study.optimize(bowl, n_trials=4)
    assert sources(study) == [None, "initial", "initial", "own"]
    shown = [trial.user_attrs.get("fedbo:source") for trial in study.trials]
    assert shown == [None, None, "initial", "own"]
    agent = synced(study)
    complete = [trial for trial in agent.trials if trial.state == "complete"]
    assert [trial.params for trial in complete] == [trial.params for trial in study.trials]
    [asked] = [trial for trial in agent.trials if trial.state == "failed"]  # not where it ran
    assert asked.params["rate"] == study.trials[1].params["rate"] and asked.params["x"] != 0.5


# Workers


def test_two_workers_on_one_storage_know_of_each_other(tmp_path: Path) -> None:
    name, distributions = "shared", {"x": X, "rate": RATE}
    workers = [
        study_of(
            FederatedSampler(FEDERATION, seed=0),
            storage=journal(tmp_path),
            study_name=name,
            load_if_exists=True,
        )
        for _ in range(2)
    ]
    trials = [workers[i % 2].ask(distributions) for i in range(6)]
    points = {tuple(trial.params.values()) for trial in trials}
    assert len(points) == 6  # none was asked for twice, though both have one seed
    for i, trial in enumerate(trials):
        workers[i % 2].tell(trial, trial.params["x"])
    for study in workers:
        study.ask(distributions)
    for study in workers:
        agent = synced(study)
        states = [trial.state for trial in agent.trials]
        assert states.count("complete") == 6 and states.count("pending") == 2
        assert agent.name == agent_of(workers[0]).name


@pytest.mark.parametrize("is_over", [False, True])
def test_workers_that_ask_at_once_try_different_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    """Another worker stores the same query, and perhaps its score, before this one does."""
    study = study_of(FederatedSampler(FEDERATION, seed=0), storage=journal(tmp_path))
    study.optimize(bowl, n_trials=5)
    other = optuna.load_study(study_name=study.study_name, storage=journal(tmp_path))
    ask, theirs = Mirror.ask, list[Asked]()

    def ask_as_another_does(mirror: Mirror, number: int) -> Asked:
        asked = ask(mirror, number)
        if not theirs:
            theirs.append(asked)
            running = other.ask()
            write_asked(other, other.trials[running.number], asked)
            if is_over:
                other.tell(running, 1.0)
        return asked

    monkeypatch.setattr(Mirror, "ask", ask_as_another_does)
    ours = study.ask({"x": X, "rate": RATE}).params
    assert abs(ours["x"] - theirs[0].params["x"]) > 1e-3  # type: ignore[operator]
    stored = read_asked(study.trials[5])
    assert stored is not None and stored.params == ours


def test_a_worker_that_only_seemed_dead_makes_a_new_agent() -> None:
    study = study_of(FederatedSampler(FEDERATION, MemoryExchange(), seed=0))
    study.optimize(bowl, n_trials=4)
    storage = study._storage

    def fails(trial_id: int, state: TrialState, values: Any = None) -> bool:
        storage.set_trial_state_values = original  # type: ignore[method-assign]
        return original(trial_id, TrialState.FAIL)  # as another worker would, meanwhile

    original, storage.set_trial_state_values = (  # type: ignore[method-assign]
        storage.set_trial_state_values,
        fails,
    )
    study.optimize(bowl, n_trials=1)
    study.optimize(bowl, n_trials=1)
    assert study.trials[4].state is TrialState.FAIL
    assert [trial.state for trial in synced(study).trials] == [
        *["complete"] * 4,
        "failed",
        "complete",
    ]


def test_an_agent_rebuilt_from_the_study_knows_what_the_first_one_knew(tmp_path: Path) -> None:
    def objective(trial: optuna.Trial) -> float:
        value = bowl(trial)
        if trial.number % 5 == 3:
            raise optuna.TrialPruned
        if trial.number % 7 == 5:
            raise RuntimeError
        return value if trial.number % 6 else math.inf

    exchange = MemoryExchange()
    study = study_of(FederatedSampler(FEDERATION, exchange), storage=journal(tmp_path))
    study.enqueue_trial({"x": 0.5})
    study.optimize(objective, n_trials=13, catch=(RuntimeError,))
    study.sampler.flush()  # type: ignore[attr-defined]
    first = synced(study)
    message = first.message()
    study.sampler = FederatedSampler(FEDERATION, exchange)
    second = synced(study)
    assert second is not first and second.name == first.name
    complete = [
        [(t.params, t.score, t.source, t.t, t.credit, t.trust) for t in agent.trials]
        for agent in (first, second)
    ]
    assert complete[0] == complete[1]
    assert second.message().content == message.content  # to the last bit: the same noise, too


def test_of_two_agents_that_a_study_was_given_at_once_one_counts(tmp_path: Path) -> None:
    exchange = MemoryExchange()
    study = study_of(FederatedSampler(FEDERATION, exchange))
    study.optimize(bowl, n_trials=1)
    attributes = study._storage.get_study_system_attrs(study._study_id)
    [mine] = [key for key in attributes if key.startswith(RECORD)]
    for token, name in (("0", "a"), ("g", "c")):  # one before it, one after it, in the alphabet
        theirs = attributes[mine] | {"name": name, "entropy": "7"}
        study._storage.set_study_system_attr(study._study_id, RECORD + token, theirs)
    study.optimize(bowl, n_trials=2)
    settle(study)
    assert agent_of(study).name == "a"
    assert scores(study) == 3
    assert "a" in {message.sender for message in heard(exchange, FEDERATION)}


# Copies


def test_a_copy_goes_on_from_the_study(tmp_path: Path) -> None:
    copies: list[Callable[[FederatedSampler], FederatedSampler]] = [
        copy.deepcopy,
        lambda sampler: pickle.loads(pickle.dumps(sampler)),
    ]
    for i, copied in enumerate(copies):
        exchange = FolderExchange(tmp_path / f"exchange-{i}")
        study = study_of(FederatedSampler(FEDERATION, exchange, seed=0))
        study.optimize(bowl, n_trials=4)
        study.sampler = copied(study.sampler)  # type: ignore[arg-type]
        assert len(agent_of(study).trials) == 4  # rebuilt from the study
        study.optimize(bowl, n_trials=2)
        assert scores(study) == 6
        assert sources(study) == ["initial"] * 3 + ["own"] * 3


# Messages


def site(exchange: Any, name: str, n: int, top: float = 0.3, **options: Any) -> optuna.Study:
    sampler = FederatedSampler(FEDERATION, exchange, name=name, seed=len(name), **options)
    study = study_of(sampler)
    study.optimize(lambda trial: bowl(trial) + 0 * top, n_trials=n)
    settle(study)
    return study


def test_peers_help_and_are_named(tmp_path: Path) -> None:
    exchange = FolderExchange(tmp_path / "exchange")
    for i in range(4):
        site(exchange, f"peer-{i}", 12)
    study = site(exchange, "target", 8)
    assert sources(study)[0] == "tip"  # which replaces initial points
    origin = read_origin(study.trials[0])
    assert origin is not None
    assert origin.credit and origin.credit.keys() <= {f"peer-{i}" for i in range(4)}
    assert origin.trust and 0 < sum(origin.trust.values()) <= 1
    assert agent_of(study).trials[0].credit == origin.credit
    shown = study.trials[0].user_attrs
    assert shown["fedbo:source"] == "tip"
    assert {name.split()[0] for name in shown["fedbo:peers"].split(", ")} == {*origin.credit}
    assert "target" not in {agent_of(study).inbox.sender(i) for i in range(4)}


def test_the_next_message_can_be_looked_at_before_it_is_sent() -> None:
    exchange = MemoryExchange()
    for federation, place in ((FEDERATION, exchange), (None, None)):
        study = study_of(FederatedSampler(federation, seed=0))
        sampler = FederatedSampler(federation, place, seed=0)
        assert sampler.preview(study) is None
        study.optimize(bowl, n_trials=5)
        message = sampler.preview(study)
        assert message is not None and message.sequence == 5
        assert sampler.preview(study) == message
        assert exchange.fetch(agent_of(study).federation) == []


def test_no_message_knows_more_than_the_study() -> None:
    """Optuna stores how a trial ended after it has told the sampler."""
    exchange = MemoryExchange()
    study = study_of(FederatedSampler(FEDERATION, exchange, every=1, seed=0))
    study.optimize(bowl, n_trials=3)
    study.sampler.flush()  # type: ignore[attr-defined]
    storage = study._storage
    original = storage.set_trial_state_values

    def full(*_: Any, **__: Any) -> bool:
        raise OSError("no space left")

    trial = study.ask()
    value = bowl(trial)
    storage.set_trial_state_values = full  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no space left"):
        study.tell(trial, value)
    storage.set_trial_state_values = original  # type: ignore[method-assign]
    assert not study.sampler._mail.courier.wait(0.3)  # type: ignore[attr-defined]
    assert [message.t_n for message in heard(exchange, FEDERATION)] == [3]
    study.tell(3, state=TrialState.FAIL)
    study.optimize(bowl, n_trials=1)
    settle(study)
    assert [message.t_n for message in heard(exchange, FEDERATION)] == [4]


def test_a_name_that_another_study_has_is_said(tmp_path: Path) -> None:
    exchange = MemoryExchange()
    first = study_of(FederatedSampler(FEDERATION, exchange, name="site"))
    first.optimize(bowl, n_trials=4)
    first.sampler.flush()  # type: ignore[attr-defined]
    again = study_of(FederatedSampler(FEDERATION, exchange, name="site"))
    with pytest.warns(ExchangeWarning, match="another study of this user publishes under"):
        again.optimize(bowl, n_trials=1)
        settle(again)
    assert [message.sequence for message in heard(exchange, FEDERATION)] == [4]


def test_no_thread_is_left_behind_by_a_study_without_an_exchange() -> None:
    before = {*threading.enumerate()}  # those of other tests may end meanwhile
    study_of(FederatedSampler(FEDERATION)).optimize(bowl, n_trials=3)
    assert {*threading.enumerate()} <= before


def test_of_trials_that_end_at_once_none_is_left_out() -> None:
    """The message of the second is asked for before the first is stored, and instead of its own."""
    exchange = MemoryExchange()
    study = study_of(FederatedSampler(FEDERATION, exchange, every=1, seed=0))
    first, second = study.ask(), study.ask()
    values = {trial.number: bowl(trial) for trial in (first, second)}
    storage, store = study._storage, study._storage.set_trial_state_values
    busy, free, ended, go = (threading.Event() for _ in range(4))

    def store_later(trial_id: int, state: TrialState, values: Any = None) -> bool:
        if trial_id == first._trial_id:
            ended.set()
            assert go.wait(60.0)
        return store(trial_id, state, values)

    def hold() -> Letters:
        busy.set()
        assert free.wait(60.0)
        return Letters()

    storage.set_trial_state_values = store_later  # type: ignore[method-assign]
    courier = study.sampler._mail.courier  # type: ignore[attr-defined]
    courier.go(hold)
    assert busy.wait(60.0)
    other = threading.Thread(target=study.tell, args=(first, values[first.number]))
    other.start()
    assert ended.wait(60.0)
    study.tell(second, values[second.number])
    free.set()
    courier.wait(0.3)  # time enough for a message without the first
    go.set()
    other.join()
    settle(study)
    assert [message.sequence for message in heard(exchange, FEDERATION)] == [2]
