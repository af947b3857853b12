"""The agent of a study that was loaded: there before the first query, and nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest

from fedbo import Federation, Float, Space
from fedbo.exchange import FolderExchange
from fedbo.optuna import FederatedSampler, private, record

FEDERATION = Federation(Space({"x": Float(0, 1)}, direction="minimize"), features=20)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "state"))
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


def square(trial: optuna.Trial) -> float:
    return (trial.suggest_float("x", 0, 1) - 0.3) ** 2


def run(sampler: FederatedSampler, trials: int = 6) -> optuna.Study:
    study = optuna.create_study(study_name="a", storage="sqlite:///site.db", sampler=sampler)
    study.optimize(square, n_trials=trials)
    sampler.flush()
    return study


def load(sampler: FederatedSampler) -> optuna.Study:
    return optuna.load_study(study_name="a", storage="sqlite:///site.db", sampler=sampler)


@pytest.mark.parametrize("federation", [FEDERATION, None])
def test_a_loaded_study_has_its_agent_before_the_first_query(
    federation: Federation | None,
) -> None:
    first = run(FederatedSampler(federation, "exchange", name="site-a", seed=0)).sampler
    assert isinstance(first, FederatedSampler) and first.agent is not None
    before = Path("site.db").read_bytes()
    sampler = FederatedSampler(federation, "exchange", every=1)
    study = load(sampler)
    assert sampler.agent is not None
    assert sampler.agent is sampler.agent
    assert sampler.agent.name == "site-a"
    told = [(trial.params, trial.score, trial.origin) for trial in first.agent.trials]
    assert [(trial.params, trial.score, trial.origin) for trial in sampler.agent.trials] == told
    assert sampler.agent.message() == first.agent.message()
    assert Path("site.db").read_bytes() == before
    study.optimize(square, n_trials=2)
    sampler.flush()
    assert len(sampler.agent.trials) == 8
    [entry] = FolderExchange("exchange").fetch(sampler.agent.federation)
    assert (entry.sender, entry.t_n) == ("site-a", 8)


def test_looking_at_the_agent_changes_no_query() -> None:
    run(FederatedSampler(FEDERATION, seed=0))
    optuna.copy_study(
        from_study_name="a", from_storage="sqlite:///site.db", to_storage="sqlite:///copy.db"
    )
    ways = []
    for place in ("site", "copy"):
        sampler = FederatedSampler(FEDERATION)
        study = optuna.load_study(study_name="a", storage=f"sqlite:///{place}.db", sampler=sampler)
        if place == "site":
            assert sampler.agent is not None
        study.optimize(square, n_trials=3)
        ways.append([trial.params for trial in study.trials])
    assert ways[0] == ways[1]


def test_a_study_without_a_query_has_no_agent() -> None:
    sampler = FederatedSampler(FEDERATION)
    assert sampler.agent is None
    study = optuna.create_study(sampler=sampler)
    assert sampler.agent is None
    study.add_trial(optuna.trial.create_trial(value=1.0))
    assert sampler.agent is None
    assert record.identity(study) is None
    both = FederatedSampler()
    two = optuna.create_study(sampler=both, directions=["minimize", "maximize"])
    assert (both.agent, two.sampler) == (None, both)


def test_a_sampler_of_several_studies_does_not_choose_one() -> None:
    run(FederatedSampler(FEDERATION, seed=0))
    sampler = FederatedSampler(FEDERATION)
    first = load(sampler)
    assert private.study_of(sampler) is first
    held = [{"sampler": sampler}, (sampler,)]  # not studies
    assert private.study_of(sampler) is first and len(held) == 2
    again = optuna.load_study(study_name="a", storage=first._storage, sampler=sampler)
    assert private.study_of(sampler) in (first, again)
    other = optuna.create_study(sampler=sampler)
    assert private.study_of(sampler) is None
    assert sampler.agent is None
    other.sampler = optuna.samplers.RandomSampler()
    vars(first)  # its attributes are then in a dictionary of their own
    assert private.study_of(sampler) in (first, again)


def test_narrower_ranges_are_known_before_the_first_query() -> None:
    study = optuna.create_study(study_name="a", sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(lambda trial: trial.suggest_float("x", 0.2, 0.4), n_trials=2)
    sampler = FederatedSampler(FEDERATION, clip=True, seed=0)
    assert sampler.preview(study) is not None
    agent = sampler._agent_of(study).look()
    assert agent is not None
    assert all(0.2 <= agent.agent.ask().params["x"] <= 0.4 for _ in range(4))
    assert record.identity(study) is None
