"""Optuna's private names: fedbo uses them in one file, and a version that lacks one is named."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial

from fedbo.optuna import private

FOLDER = Path(private.__file__).parent
MOVE = f"Optuna {optuna.__version__} has no {{}} any more: change src/fedbo/optuna/private.py"


def a_study() -> tuple[optuna.Study, FrozenTrial]:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    return study, study.trials[0]


@pytest.mark.parametrize("name", ["_storage", "_study_id", "_get_trials"])
def test_a_study_has_the_private_names_that_fedbo_uses(name: str) -> None:
    study, _ = a_study()
    study.pruner = optuna.pruners.HyperbandPruner(max_resource=2)
    seen = [study]  # and what a sampler is given instead when there are brackets

    class Watching(optuna.samplers.RandomSampler):
        def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
            seen.append(study)

    study.sampler = Watching()
    study.optimize(lambda trial: trial.report(1.0, 1) or trial.suggest_float("x", 0, 1), n_trials=2)
    assert len(seen) == 3
    for one in seen:
        assert hasattr(one, name), MOVE.format(f"{type(one).__name__}.{name}")


def test_a_trial_has_the_private_name_that_fedbo_uses() -> None:
    assert hasattr(a_study()[1], "_trial_id"), MOVE.format("FrozenTrial._trial_id")


@pytest.mark.parametrize(
    "name", ["get_study_system_attrs", "set_study_system_attr", "set_trial_system_attr"]
)
def test_a_storage_has_the_methods_that_fedbo_uses(name: str) -> None:
    assert hasattr(BaseStorage, name), MOVE.format(f"BaseStorage.{name}")


def test_attributes_are_stored() -> None:
    study, _ = a_study()
    study.ask()
    private.set_study_attribute(study, "fedbo:test", {"a": 1})
    private.set_trial_attribute(study, private.get_trials(study)[1], "fedbo:test", [2])
    assert private.study_attributes(study)["fedbo:test"] == {"a": 1}
    assert private.get_trials(study)[1].system_attrs["fedbo:test"] == [2]


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


@pytest.mark.parametrize(
    ("what", "holds"),
    [("system attribute 'fixed_params'", fixed_params), ("study names 'no-name-...'", no_name)],
)
def test_what_optuna_writes_is_as_fedbo_reads_it(what: str, holds: Callable[[], bool]) -> None:
    assert holds(), MOVE.format(what)


def private_uses(source: str) -> Iterator[int]:
    """The lines that use a private name of something else, of Optuna's samplers, or a key."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and re.match("_[^_]", node.attr):
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not is_own or hasattr(optuna.samplers.TPESampler, node.attr):
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("optuna"):
            if re.search(
                r"(^|[. ])_", " ".join([node.module or "", *(a.name for a in node.names)])
            ):
                yield node.lineno
        elif isinstance(node, ast.Constant) and node.value in ("fixed_params", "no-name-"):
            yield node.lineno


def test_no_other_file_uses_private_names_of_optuna() -> None:
    assert [*private_uses((FOLDER / "private.py").read_text(encoding="utf-8"))]
    found = [
        f"{path.relative_to(FOLDER)}, line {line}"
        for path in sorted(FOLDER.rglob("*.py"))
        if path.name != "private.py"
        for line in private_uses(path.read_text(encoding="utf-8"))
    ]
    assert not found, f"use a function of src/fedbo/optuna/private.py in {'; '.join(found)}"
