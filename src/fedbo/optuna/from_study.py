"""The space of a study that exists, for `fedbo federation new --from-study`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.search_space import intersection_search_space
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from fedbo.optuna import studies
from fedbo.optuna.distributions import SearchSpace, parameter_of
from fedbo.space import Parameter, Space


def space_of(storage: str, name: str) -> tuple[Space, list[str]]:
    """Return the space that all finished trials of a study share.

    Returns:
        The space, and a remark on each parameter that is not in it. Each site goes on sampling
        these parameters by itself.
    """
    study = studies.existing(storage, name)
    if len(study.directions) > 1:
        raise ValueError(
            f"study {name!r} has {len(study.directions)} objectives, and a federation tunes one"
        )
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not trials:
        raise ValueError(
            f"study {name!r} has no finished trial, so its parameters are not known: run one, or "
            "describe the space in a file and give it with --from-space"
        )
    common = intersection_search_space(trials)
    parameters: dict[str, Parameter] = {}
    remarks = [*_remarks(trials, common)]
    for parameter, distribution in common.items():
        if distribution.single():
            remarks.append(f"parameter {parameter!r} has one value only, {_brief(distribution)}")
            continue
        try:
            parameters[parameter] = parameter_of(parameter, distribution)
        except ValueError as error:
            remarks.append(str(error))
    if not parameters:
        lines = [f"study {name!r} has no parameter that sites can share:", *remarks]
        raise ValueError("\n  ".join(lines))
    is_minimised = study.direction == StudyDirection.MINIMIZE
    return Space(parameters, direction="minimize" if is_minimised else "maximize"), remarks


def _remarks(trials: Sequence[FrozenTrial], common: SearchSpace) -> Iterator[str]:
    """A remark on each parameter that is not the same in all trials."""
    seen: dict[str, list[BaseDistribution]] = {}
    for trial in trials:
        for name, distribution in trial.distributions.items():
            if name not in common:
                seen.setdefault(name, []).append(distribution)
    for name, (first, *rest) in seen.items():
        other = next((given for given in rest if given != first), None)
        if other is None:
            some = f"{1 + len(rest)} of {len(trials)}"
            yield f"parameter {name!r} is in {some} finished trials only"
        else:
            ranges = f"{_brief(first)} in one trial and {_brief(other)} in another"
            yield f"parameter {name!r} has no fixed range: {ranges}"


def _brief(distribution: BaseDistribution) -> str:
    if isinstance(distribution, CategoricalDistribution):
        return f"{list(distribution.choices)}"
    kind = "float" if isinstance(distribution, FloatDistribution) else "int"
    low, high, log, step = (getattr(distribution, f) for f in ("low", "high", "log", "step"))
    scale = " on a log scale" if log else ""
    steps = f" in steps of {step}" if step not in (None, 1) else ""
    return f"{kind} {low} to {high}{scale}{steps}"
