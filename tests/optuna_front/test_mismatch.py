"""Objectives that do not suggest what the federation has, and where warnings point."""

from __future__ import annotations

import inspect
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution

from fedbo import Categorical, Federation, Float, Space
from fedbo.caller import warn
from fedbo.exchange import ExchangeError, ExchangeWarning, MemoryExchange
from fedbo.exchange.latest import Content
from fedbo.optuna import FederatedSampler
from fedbo.optuna.stored import StoredStudy
from fedbo.trust import Trusted

pytestmark = pytest.mark.usefixtures("patient")

FEDERATION = Federation(
    Space({"lr": Float(1e-4, 1, log=True), "depth": Float(1, 8)}, direction="minimize"), features=20
)


def study_in(federation: Federation | None, exchange: Any = None) -> optuna.Study:
    return optuna.create_study(sampler=FederatedSampler(federation, exchange, seed=0))


def misspelt(trial: optuna.Trial) -> float:
    return trial.suggest_float("LR", 1e-4, 1, log=True) + trial.suggest_float("Depth", 1, 8)


def right(trial: optuna.Trial) -> float:
    return trial.suggest_float("lr", 1e-4, 1, log=True) + trial.suggest_float("depth", 1, 8)


def texts(caught: Any) -> list[str]:
    return [str(warning.message) for warning in caught]


def scores(study: optuna.Study) -> int:
    message = study.sampler.preview(study)  # type: ignore[attr-defined]
    return 0 if message is None else message.t_n


# Names


def test_an_objective_without_the_names_is_told_after_its_first_trial() -> None:
    study = study_in(FEDERATION, MemoryExchange())
    with pytest.warns(UserWarning) as caught:
        line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
        study.optimize(misspelt, n_trials=1)
    [text] = texts(caught)
    assert text.startswith(
        "in trial 0, the objective does not suggest 'depth' and 'lr' of the federation, but 'LR' "
        "and 'Depth'. The score counts at the values that were asked for if another trial"
    )
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, line)]
    study.optimize(misspelt, n_trials=11)  # warnings are errors here
    assert scores(study) == 0


# Parameters that only some trials need

CONDITIONAL = Federation(
    Space(
        {"arm": Categorical(["a", "b"]), "x": Float(0, 1), "y": Float(0, 1)}, direction="minimize"
    ),
    features=20,
)


def branch(trial: optuna.Trial) -> float:
    y = trial.suggest_float("y", 0, 1)
    if trial.suggest_categorical("arm", ["a", "b"]) == "a":
        return 2.0
    return y + trial.suggest_float("x", 0, 1)


def test_a_trial_without_a_parameter_counts_once_another_one_suggests_it() -> None:
    study = study_in(CONDITIONAL)
    study.enqueue_trial({"arm": "a"})
    study.enqueue_trial({"arm": "b"})
    with pytest.warns(UserWarning, match="does not suggest 'x' of the federation"):
        study.optimize(branch, n_trials=1)
    assert scores(study) == 0
    study.optimize(branch, n_trials=1)  # which does
    assert scores(study) == 2
    asked = study.trials[0].system_attrs["fedbo:query"]["params"]["x"]
    told = [trial for trial in study.sampler.agent.trials if trial.score == 2.0]  # type: ignore
    assert [trial.params["x"] for trial in told] == [asked]
    study.optimize(branch, n_trials=6)  # and that is no other warning
    assert scores(study) == 8


def test_an_old_trial_that_fedbo_did_not_ask_for_never_counts() -> None:
    study = study_in(FEDERATION)
    ranges: dict[str, Any] = {"depth": FloatDistribution(1, 8), "rate": FloatDistribution(0, 1)}
    old = {"depth": 2.0, "rate": 0.5}
    study.add_trial(optuna.trial.create_trial(value=1.0, params=old, distributions=ranges))
    with pytest.warns(UserWarning, match="in trial 0, the objective does not suggest 'lr'") as seen:
        study.optimize(right, n_trials=3)
    assert len(seen) == 1
    assert scores(study) == 3


# Where warnings point


class Warns(MemoryExchange):
    """An exchange that warns, as one does that finds messages of another federation."""

    def fetch(self, federation: Federation) -> list[Trusted]:
        warn("3 messages of another federation are here", ExchangeWarning)
        return super().fetch(federation)

    def publish(self, content: Content) -> bool:
        raise ExchangeError("the drive is full; free some space there")


def test_warnings_of_the_courier_reach_the_program_that_runs_the_study() -> None:
    study = study_in(FEDERATION, Warns())
    with pytest.warns(ExchangeWarning) as caught:
        study.optimize(right, n_trials=4)
        study.sampler.flush()  # type: ignore[attr-defined]
    assert "3 messages of another federation are here" in texts(caught)
    assert {warning.filename for warning in caught} == {__file__}
    assert len(caught) == 2  # the other one is that nothing was published


def test_what_was_said_in_a_run_is_not_said_by_an_explanation() -> None:
    study = study_in(FEDERATION)
    with pytest.warns(UserWarning, match="does not suggest"):
        study.optimize(misspelt, n_trials=1)
        study.optimize(right, n_trials=3)
    assert StoredStudy(study, FEDERATION).agent().trials  # warnings are errors here
