"""Everything that fedbo uses of Optuna without it being part of Optuna's public API.

No other file of fedbo does so, and `tests/optuna_front/test_private.py` names what is missing when
a new version of Optuna changes any of it. Optuna 5 has no public equivalent for these names:

================================  ==================================================================
``Study._storage``,               to read and write system attributes, which `Study` gives no access
``Study._study_id``               to, and to tell whether two `Study` objects are the same study
``FrozenTrial._trial_id``         the key of a trial in its storage, to write its system attributes
``Study._get_trials``             all trials of a study: with the Hyperband pruner, `get_trials` has
                                  those of one bracket only. With ``use_cache``, the storage is read
                                  once in a trial, however many samplers work on it.
``fixed_params``                  the system attribute of a trial that was enqueued
``no-name-``                      how the names of studies begin that were given none
================================  ==================================================================
"""

from __future__ import annotations

from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial


def get_trials(study: Study, *, cached: bool = False) -> list[FrozenTrial]:
    """Return all trials of a study by number; if ``cached``, as of the beginning of this trial."""
    return study._get_trials(deepcopy=False, use_cache=cached)


def is_same_study(a: Study, b: Study) -> bool:
    """Tell whether two objects stand for the same study in the same storage object."""
    return a._storage is b._storage and a._study_id == b._study_id


def study_attributes(study: Study) -> dict[str, Any]:
    """Return the system attributes of a study."""
    return study._storage.get_study_system_attrs(study._study_id)


def set_study_attribute(study: Study, key: str, value: Any) -> None:
    """Write a system attribute of a study."""
    study._storage.set_study_system_attr(study._study_id, key, value)


def set_trial_attribute(study: Study, trial: FrozenTrial, key: str, value: Any) -> None:
    """Write a system attribute of a trial of the study."""
    study._storage.set_trial_system_attr(trial._trial_id, key, value)


def is_enqueued(trial: FrozenTrial) -> bool:
    """Tell whether some of the trial's values were given by `Study.enqueue_trial`."""
    return bool(trial.system_attrs.get("fixed_params"))


def is_unnamed(study: Study) -> bool:
    """Tell whether Optuna made up the study's name."""
    return study.study_name.startswith("no-name-")
