"""Everything that fedbo uses of Optuna and that is not part of Optuna's public API.

Optuna 5 has no public equivalent. No other file of fedbo uses private names, and
`tests/optuna_front/test_private.py` fails if a new version of Optuna changes one of these:

=========================  ========================================================================
``Study._storage``,        To read and write system attributes, and to tell whether two objects are
``Study._study_id``        the same study.
``_backend``               The storage that has an address, behind the cache of Optuna.
``FrozenTrial._trial_id``  To write the system attributes of a trial.
``Study._get_trials``      To get all trials: with the Hyperband pruner, `Study.get_trials` returns
                           those of one bracket. A cache saves reading the storage twice in a trial.
``fixed_params``           The system attribute that marks a trial as enqueued.
``no-name-``               The beginning of the names that Optuna makes up.
``Study.sampler``          A study does not tell its sampler that it has it before the first trial.
                           `study_of` looks for the study among the objects that refer to a sampler.
=========================  ========================================================================
"""

from __future__ import annotations

import gc
from typing import Any

from optuna.samplers import BaseSampler
from optuna.storages import RDBStorage
from optuna.study import Study
from optuna.trial import FrozenTrial


def get_trials(study: Study, *, cached: bool = False) -> list[FrozenTrial]:
    """Return all trials of a study by number; if ``cached``, as of the beginning of this trial."""
    return study._get_trials(deepcopy=False, use_cache=cached)


def is_same_study(a: Study, b: Study) -> bool:
    """Tell whether two objects stand for the same study in the same storage object."""
    return a._storage is b._storage and a._study_id == b._study_id


def storage_address(study: Study) -> str | None:
    """Return the address of a study's database, with its password; None if it is in none."""
    storage = getattr(study._storage, "_backend", study._storage)
    if not isinstance(storage, RDBStorage):
        return None
    is_in_memory = storage.url.startswith("sqlite") and not storage.engine.url.database
    return None if is_in_memory or ":memory:" in storage.url else str(storage.url)


def study_of(sampler: BaseSampler) -> Study | None:
    """Return the study that has this sampler; None if there is no study, or more than one."""
    holders = gc.get_referrers(sampler)  # the study, or the dictionary of its attributes
    holders += [owner for held in holders if type(held) is dict for owner in gc.get_referrers(held)]
    studies = {id(held): held for held in holders if issubclass(type(held), Study)}
    found = [study for study in studies.values() if study.sampler is sampler]
    return found[0] if found and all(is_same_study(found[0], study) for study in found) else None


def study_attributes(study: Study) -> dict[str, Any]:
    return study._storage.get_study_system_attrs(study._study_id)


def set_study_attribute(study: Study, key: str, value: Any) -> None:
    study._storage.set_study_system_attr(study._study_id, key, value)


def set_trial_attribute(study: Study, trial: FrozenTrial, key: str, value: Any) -> None:
    study._storage.set_trial_system_attr(trial._trial_id, key, value)


def is_enqueued(trial: FrozenTrial) -> bool:
    """Tell whether some of the trial's values were given by `Study.enqueue_trial`."""
    return bool(trial.system_attrs.get("fixed_params"))


def is_unnamed(study: Study) -> bool:
    """Tell whether Optuna made up the study's name."""
    return study.study_name.startswith("no-name-")
