"""Optuna's private names: fedbo uses them in one file, and a version that lacks one is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial

from fedbo.optuna import private

MOVE = f"Optuna {optuna.__version__} has no {{}} any more: change src/fedbo/optuna/private.py"


def a_study() -> tuple[optuna.Study, FrozenTrial]:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    return study, study.trials[0]


def test_cached_trials_are_those_at_the_beginning_of_a_trial() -> None:
    study, _ = a_study()
    try:
        assert len(private.get_trials(study, cached=True)) == 1
        study.add_trial(optuna.trial.create_trial(value=1.0))
        assert len(private.get_trials(study, cached=True)) == 1
    except TypeError:
        pytest.fail(MOVE.format("Study._get_trials(use_cache=True)"))
    assert len(private.get_trials(study)) == 2


def test_the_same_study_is_known_by_its_storage() -> None:
    study, _ = a_study()
    again = optuna.load_study(study_name=study.study_name, storage=study._storage)
    assert private.is_same_study(study, again)
    other = optuna.create_study(storage=study._storage)
    assert not private.is_same_study(study, other)
    assert not private.is_same_study(study, a_study()[0])


def fixed_params() -> bool:
    study, trial = a_study()
    study.enqueue_trial({"x": 0.5})
    return private.is_enqueued(study.trials[1]) and not private.is_enqueued(trial)


def no_name() -> bool:
    named = optuna.create_study(study_name="a")
    return private.is_unnamed(a_study()[0]) and not private.is_unnamed(named)


def constraints() -> bool:
    trial = optuna.trial.create_trial(value=1.0, system_attrs={"constraints": [0.5, -1.0]})
    return private.constraints(trial) == {"0": 0.5, "1": -1.0} and not private.constraints(
        optuna.trial.create_trial(value=1.0)
    )


@pytest.mark.parametrize(
    ("what", "holds"),
    [
        ("system attribute 'fixed_params'", fixed_params),
        ("system attribute 'constraints'", constraints),
        ("study names 'no-name-...'", no_name),
    ],
)
def test_what_optuna_writes_is_as_fedbo_reads_it(what: str, holds: Callable[[], bool]) -> None:
    assert holds(), MOVE.format(what)


def test_no_other_file_uses_private_names_of_optuna() -> None:
    pattern = r"\b(study|trial|optuna)\._[a-z]|from optuna\S*\._|fixed_params|\"no-name-"
    uses = [
        f"{path.name}: {line.strip()}"
        for path in sorted(Path(private.__file__).parent.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(pattern, line)
    ]
    assert uses and all(use.startswith("private.py: ") for use in uses), uses
