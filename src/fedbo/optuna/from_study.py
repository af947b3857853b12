"""The space of a study that exists, for `fedbo federation new --from-study`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.search_space import intersection_search_space
from optuna.trial import FrozenTrial, TrialState

from fedbo.optuna import studies
from fedbo.optuna.distributions import parameter_of
from fedbo.space import Parameter, Space


def space_of(storage: str, name: str) -> tuple[Space, list[str]]:
    """The space that all finished trials of the study share, and a remark on each other parameter.

    A parameter that is not in the space is one that each site goes on sampling by itself.
    """
    study = studies.existing(storage, name)
    if len(study.directions) > 1:
        raise ValueError(
            f"study {name!r} has {len(study.directions)} objectives, and a federation tunes one"
        )
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not trials:
        raise ValueError(
            f"study {name!r} has no finished trial, and only these tell its parameters: run one, "
            "or write the space down and give it with --from-space"
        )
    common = intersection_search_space(trials)
    parameters: dict[str, Parameter] = {}
    remarks = [*_no_fixed_range(trials, common)]
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
    minimised = study.direction == optuna.study.StudyDirection.MINIMIZE
    return Space(parameters, direction="minimize" if minimised else "maximize"), remarks


def _no_fixed_range(
    trials: Sequence[FrozenTrial], common: dict[str, BaseDistribution]
) -> Iterator[str]:
    """A remark on each parameter that is not the same in all trials."""
    seen: dict[str, list[BaseDistribution]] = {}
    for trial in trials:
        for name, distribution in trial.distributions.items():
            seen.setdefault(name, []).append(distribution)
    for name, distributions in seen.items():
        if name in common:
            continue
        first = distributions[0]
        other = next((given for given in distributions if given != first), None)
        if other is None:
            some = f"{len(distributions)} of {len(trials)}"
            yield f"parameter {name!r} is in {some} finished trials only"
        else:
            ranges = f"{_brief(first)} in one trial and {_brief(other)} in another"
            yield f"parameter {name!r} has no fixed range: {ranges}"


def _brief(distribution: BaseDistribution) -> str:
    if isinstance(distribution, CategoricalDistribution):
        return f"{list(distribution.choices)}"
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    kind = "float" if isinstance(distribution, FloatDistribution) else "int"
    log = " on a log scale" if distribution.log else ""
    step = f" in steps of {distribution.step}" if distribution.step not in (None, 1) else ""
    return f"{kind} {distribution.low} to {distribution.high}{log}{step}"
