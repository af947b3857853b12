"""Optuna's distributions as fedbo's parameters and back, and how two of them differ, in a sentence.

A federation's choices are strings, numbers and bools, no two of them equal, because a file has to
hold them and peers to agree on them. Optuna's may be None, or 1 beside True. So a study that has no
federation speaks through a `Translation`, in which such choices have labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import BaseTrial

from fedbo.space import Categorical, Float, Int, Parameter
from fedbo.space.axis import Value, to_builtin

SearchSpace = dict[str, BaseDistribution]

HERE, THERE = "in the objective", "in the federation"


def parameter_of(name: str, distribution: BaseDistribution) -> Parameter:
    """The parameter of a federation that an objective with this distribution fits.

    >>> parameter_of("C", FloatDistribution(1e-4, 10, log=True))
    Float(low=0.0001, high=10.0, log=True)
    """
    try:
        if isinstance(distribution, FloatDistribution):
            low, high, log = distribution.low, distribution.high, distribution.log
            return Float(low, high, log=log, step=distribution.step)
        if isinstance(distribution, IntDistribution):
            step = distribution.step
            return Int(distribution.low, distribution.high, log=distribution.log, step=step)
        if isinstance(distribution, CategoricalDistribution):
            return Categorical([to_builtin(choice) for choice in distribution.choices])
    except ValueError as error:
        raise ValueError(
            f"parameter {name!r} with {distribution} cannot be a federation's: {error}"
        ) from None
    raise ValueError(
        f"parameter {name!r} has {distribution!r}, expected a float, an int or a categorical one"
    )


def distribution_of(parameter: Parameter) -> BaseDistribution:
    """The distribution with which an objective suggests a federation's parameter.

    >>> distribution_of(Int(1, 9, step=2))
    IntDistribution(high=9, log=False, low=1, step=2)
    """
    if isinstance(parameter, Categorical):
        return CategoricalDistribution(tuple(parameter.choices))
    if isinstance(parameter, Int):
        low, high = parameter.low, parameter.high
        return IntDistribution(low, high, log=parameter.log, step=parameter.step)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.log, step=parameter.step)


def suggest(trial: BaseTrial, name: str, parameter: Parameter) -> Value:
    """Suggest a federation's parameter in a trial, exactly as the federation has it."""
    if isinstance(parameter, Categorical):
        choices: Sequence[Any] = tuple(parameter.choices)
        choice: Value = trial.suggest_categorical(name, choices)
        return choice
    if isinstance(parameter, Int):
        low, high, step = parameter.low, parameter.high, parameter.step
        return trial.suggest_int(name, low, high, log=parameter.log, step=step)
    return trial.suggest_float(
        name, parameter.low, parameter.high, log=parameter.log, step=parameter.step
    )


def difference(
    name: str, distribution: BaseDistribution, parameter: Parameter, *, clip: bool = False
) -> str | None:
    """How an objective's distribution differs from the federation's, and what to do; else None.

    With ``clip``, a range inside the federation's is none.

    >>> print(difference("C", FloatDistribution(0, 1), Float(0, 2)))
    parameter 'C': high is 1.0 in the objective and 2.0 in the federation. Suggest it as
    trial.suggest_float('C', 0.0, 2.0), or agree on a new federation with this site's values; this
    site's range is inside the federation's: FederatedSampler(..., clip=True) accepts that
    """
    differences = list(_differences(distribution, distribution_of(parameter)))
    if not differences:
        return None
    inside = _inside(distribution, parameter)
    if inside and clip:
        return None
    advice = (
        f"Suggest it as {_call(name, parameter)}, or agree on a new federation with this site's "
        "values"
    )
    if inside:
        advice += (
            "; this site's range is inside the federation's: FederatedSampler(..., clip=True) "
            "accepts that"
        )
    return f"parameter {name!r}: {', '.join(differences)}. {advice}"


def _differences(ours: BaseDistribution, theirs: BaseDistribution) -> Iterator[str]:
    if _kind(ours) != _kind(theirs):
        yield f"it is {_kind(ours)} {HERE} and {_kind(theirs)} {THERE}"
    elif isinstance(ours, CategoricalDistribution) and isinstance(theirs, CategoricalDistribution):
        if set(map(_told_apart, ours.choices)) != set(map(_told_apart, theirs.choices)):
            yield f"choices are {list(ours.choices)} {HERE} and {list(theirs.choices)} {THERE}"
    else:
        for field in ("low", "high", "log", "step"):
            here, there = getattr(ours, field), getattr(theirs, field)
            if here != there:
                yield f"{field} is {here} {HERE} and {there} {THERE}"


def _kind(distribution: BaseDistribution) -> str:
    if isinstance(distribution, CategoricalDistribution):
        return "a categorical"
    return "an int" if isinstance(distribution, IntDistribution) else "a float"


def _told_apart(choice: Any) -> tuple[str, Any]:
    """A choice as a key: 1 and 1.0 are the same, 1 and True are not."""
    choice = to_builtin(choice)
    number = isinstance(choice, int | float) and not isinstance(choice, bool)
    return ("number" if number else type(choice).__name__, choice)


def _inside(distribution: BaseDistribution, parameter: Parameter) -> bool:
    """Whether all its values are the parameter's, so that any of these can be clipped to it."""
    if isinstance(distribution, CategoricalDistribution) or isinstance(parameter, Categorical):
        return False
    if isinstance(distribution, IntDistribution) != isinstance(parameter, Int):
        return False
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    if (distribution.log, distribution.step) != (parameter.log, parameter.step):
        return False
    axis = parameter.axis()
    return None not in (axis.encode(distribution.low), axis.encode(distribution.high))


def _call(name: str, parameter: Parameter) -> str:
    """The line of an objective that suggests the parameter."""
    if isinstance(parameter, Categorical):
        return f"trial.suggest_categorical({name!r}, {list(parameter.choices)})"
    kind, usual = ("int", 1) if isinstance(parameter, Int) else ("float", None)
    step = f", step={parameter.step}" if parameter.step != usual else ""
    log = ", log=True" if parameter.log else ""
    return f"trial.suggest_{kind}({name!r}, {parameter.low}, {parameter.high}{step}{log})"


def fitted(value: Value, distribution: BaseDistribution) -> Any:
    """A federation's value for this objective: clipped to its range, or its own equal choice.

    >>> fitted(3.5, FloatDistribution(0, 1)), fitted(1, CategoricalDistribution([0.0, 1.0]))
    (1.0, 1.0)
    """
    if isinstance(distribution, CategoricalDistribution):
        return _own_choice(distribution.choices, value)
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    return min(max(value, distribution.low), distribution.high)


def _own_choice(choices: Sequence[Any], value: Any) -> Any:
    same = (choice for choice in choices if _told_apart(choice) == _told_apart(value))
    return next(same, value)


class Translation:
    """A study's own search space, as the parameters of a federation that is made of it.

    Choices that no federation can have go by labels. A parameter that fedbo has no axis for, such
    as an int with too many values, is left out: ``refused`` says why.

    >>> words = Translation({"depth": CategoricalDistribution([None, 3])})
    >>> words.parameters
    {'depth': Categorical(choices=('0: None', '1: 3'))}
    >>> words.inward({"depth": None}), words.outward({"depth": "1: 3"})
    ({'depth': '0: None'}, {'depth': 3})
    """

    def __init__(self, search_space: Mapping[str, BaseDistribution]) -> None:
        self.parameters: dict[str, Parameter] = {}
        self.refused: list[str] = []
        self._labels: dict[str, dict[str, Any]] = {}
        for name, distribution in search_space.items():
            try:
                self.parameters[name] = parameter_of(name, distribution)
            except ValueError as error:
                if not isinstance(distribution, CategoricalDistribution):
                    self.refused.append(str(error))
                    continue
                labels = {
                    f"{i}: {choice!r}": choice for i, choice in enumerate(distribution.choices)
                }
                self._labels[name] = labels
                self.parameters[name] = Categorical([*labels])

    def inward(self, params: Mapping[str, Any]) -> dict[str, Value]:
        """What Optuna calls these, in fedbo's words."""
        return {name: self._label(name, value) for name, value in params.items()}

    def outward(self, params: Mapping[str, Value]) -> dict[str, Any]:
        """What fedbo calls these, in Optuna's words."""
        labels = self._labels
        return {
            name: labels[name][str(value)] if name in labels else value
            for name, value in params.items()
        }

    def _label(self, name: str, value: Any) -> Any:
        if name not in self._labels:
            return value
        known = self._labels[name]
        for same in (_exactly, _nearly):
            for label, choice in known.items():
                if same(choice, value):
                    return label
        return repr(value)  # which no space has: whoever encodes it hears that


def _exactly(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and bool(a == b))


def _nearly(a: Any, b: Any) -> bool:
    """As Optuna compares them: 1 is True, and NaN is NaN."""
    return bool(a == b) or all(isinstance(c, float) and math.isnan(c) for c in (a, b))
