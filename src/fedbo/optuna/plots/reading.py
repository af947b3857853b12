"""What all figures read from studies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from fedbo.optuna import private
from fedbo.optuna.plots.figure import Floats

MARGIN = 0.06  # of the height of a panel, above and below
ENDLESS = 1e300  # larger values are treated as infinite: nothing can be drawn with them
_LONGEST_NAME = 24


def sign_of(studies: Sequence[Study]) -> float:
    """Return 1 if all studies maximise and -1 if all minimise; refuse any others."""
    for study in studies:
        if len(study.directions) != 1:
            raise ValueError(
                f"study {study.study_name!r} has {len(study.directions)} objectives, expected one"
            )
    names = {study.direction: study.study_name for study in studies}
    if len(names) > 1:
        raise ValueError(
            f"study {names[StudyDirection.MAXIMIZE]!r} maximises and "
            f"{names[StudyDirection.MINIMIZE]!r} minimises, so they cannot be compared: give "
            "studies with the same direction"
        )
    return 1.0 if StudyDirection.MAXIMIZE in names else -1.0


def begun_trials(study: Study) -> list[FrozenTrial]:
    """Return all trials up to the last that was begun; the n-th has number n."""
    trials = study.get_trials(deepcopy=False)
    while trials and trials[-1].state == TrialState.WAITING:
        trials = trials[:-1]
    return trials


def best_so_far(trials: Sequence[FrozenTrial], sign: float) -> Floats:
    """Return the best value after each of the trials; NaN before there is one."""
    values = np.array([countable(trial) for trial in trials], dtype=np.float64)
    return sign * np.fmax.accumulate(sign * values) + 0.0  # no −0


def countable(trial: FrozenTrial) -> float:
    """Return a trial's value; NaN if it is infinite, breaks a constraint, or does not exist."""
    if trial.state != TrialState.COMPLETE or any(c > 0.0 for c in trial.constraints.values()):
        return math.nan
    value = trial.value
    return value if value is not None and abs(value) < ENDLESS else math.nan


def metric_of(study: Study) -> str:
    names = study.metric_names
    return shorten(names[0]) if names else "objective value"


def titled(study: Study, text: str) -> str:
    """Put the study's name in front of a title, unless Optuna made it up."""
    if private.is_unnamed(study):
        return text[:1].upper() + text[1:]
    return f"{shorten(study.study_name)}: {text}"


def shorten(name: str) -> str:
    """Cut a name that is too long for a figure.

    >>> shorten("site-a"), shorten("hospital-of-the-holy-ghost")
    ('site-a', 'hospital-of-the-holy-gh…')
    """
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
