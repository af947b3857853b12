"""What fedbo uses of Optuna beyond its public API, and what differs between Optuna 4.5 and 5.

Optuna has no public equivalent. No other file of fedbo uses private names, and
`tests/optuna_front/test_private.py` fails if a new version of Optuna changes one of these:

=========================  ========================================================================
``Study._storage``,        To read and write system attributes, and to tell whether two objects are
``Study._study_id``        the same study.
``FrozenTrial._trial_id``  To write the attributes of a trial.
``Study._get_trials``      To get all trials: with the Hyperband pruner, `Study.get_trials` returns
                           those of one bracket. A cache saves reading the storage twice in a trial.
``fixed_params``           The system attribute that marks a trial as enqueued.
``no-name-``               The beginning of the names that Optuna makes up.
``constraints``            The system attribute with what a ``constraints_func`` has returned.
=========================  ========================================================================
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study
from optuna.trial import FrozenTrial

_HAS_CACHE = "use_cache" in inspect.signature(IntersectionSearchSpace.calculate).parameters


def get_trials(study: Study, *, cached: bool = False) -> list[FrozenTrial]:
    """Return all trials of a study by number; if ``cached``, as of the beginning of this trial."""
    return study._get_trials(deepcopy=False, use_cache=cached)


def intersection(
    space: IntersectionSearchSpace, study: Study, *, cached: bool
) -> dict[str, BaseDistribution]:
    """Return the parameters that all complete trials share; Optuna 4 always reads the storage."""
    return space.calculate(study, use_cache=cached) if _HAS_CACHE else space.calculate(study)


def is_same_study(a: Study, b: Study) -> bool:
    """Tell whether two objects stand for the same study in the same storage object."""
    return a._storage is b._storage and a._study_id == b._study_id


def study_attributes(study: Study) -> dict[str, Any]:
    return study._storage.get_study_system_attrs(study._study_id)


def set_study_attribute(study: Study, key: str, value: Any) -> None:
    study._storage.set_study_system_attr(study._study_id, key, value)


def set_trial_attribute(study: Study, trial: FrozenTrial, key: str, value: Any) -> None:
    study._storage.set_trial_system_attr(trial._trial_id, key, value)


def show_trial_attribute(study: Study, trial: FrozenTrial, key: str, value: str) -> None:
    """Set a user attribute, which Optuna's dashboard and data frames show."""
    study._storage.set_trial_user_attr(trial._trial_id, key, value)


def constraints(trial: FrozenTrial) -> dict[str, float]:
    """Return a trial's constraints by name; those of a ``constraints_func`` have numbers."""
    if hasattr(FrozenTrial, "constraints"):
        return trial.constraints
    return {str(i): c for i, c in enumerate(trial.system_attrs.get("constraints") or [])}


def set_constraints(study: Study, trial: FrozenTrial, values: Sequence[float]) -> None:
    """Store what a ``constraints_func`` has returned for a trial, as Optuna's samplers do."""
    constraints = [float(value) for value in values]
    if any(map(math.isnan, constraints)):
        raise ValueError(
            f"constraints_func returned {constraints} for trial {trial.number}, expected numbers, "
            "of which none is above 0 if the trial is feasible"
        )
    set_trial_attribute(study, trial, "constraints", constraints)


def is_enqueued(trial: FrozenTrial) -> bool:
    """Tell whether some of the trial's values were given by `Study.enqueue_trial`."""
    return bool(trial.system_attrs.get("fixed_params"))


def is_unnamed(study: Study) -> bool:
    """Tell whether Optuna made up the study's name."""
    return study.study_name.startswith("no-name-")
