"""Conversion between Optuna's distributions and fedbo's parameters, and how two of them differ.

The choices of a federation are strings, numbers, bools and None, and no two of them are equal,
because they are written to a file. A parameter whose choices are others is not tuned by fedbo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from fedbo.space import Categorical, Float, Int, Parameter, Space
from fedbo.space.axis import Value, to_builtin
from fedbo.space.space import MOST_DIMENSIONS

SearchSpace = dict[str, BaseDistribution]

_SHOWN = 200  # characters of a distribution that cannot be used
_LISTED = 8  # names that an error lists
_FIELDS = ("low", "high", "log", "step")


def parameter_of(name: str, distribution: BaseDistribution) -> Parameter:
    """Convert a distribution of Optuna to a parameter of a federation."""
    try:
        if isinstance(distribution, CategoricalDistribution):
            return Categorical([to_builtin(choice) for choice in distribution.choices])
        if isinstance(distribution, FloatDistribution | IntDistribution):
            kind: type[Parameter] = Float if isinstance(distribution, FloatDistribution) else Int
            return kind(**{field: getattr(distribution, field) for field in _FIELDS})
    except ValueError as error:
        text = str(distribution)
        text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        raise ValueError(
            f"parameter {name!r} with {text} cannot be part of a federation: {error}"
        ) from None
    raise ValueError(
        f"parameter {name!r} has {distribution!r}, expected a float, an int or a categorical one"
    )


def describe(distribution: BaseDistribution) -> str:
    """Describe the values of a distribution.

    >>> describe(FloatDistribution(1e-3, 1, log=True))
    'float 0.001 to 1.0 on a log scale'
    """
    if isinstance(distribution, CategoricalDistribution):
        return f"{list(distribution.choices)}"
    kind = "float" if isinstance(distribution, FloatDistribution) else "int"
    low, high, log, step = (getattr(distribution, f) for f in ("low", "high", "log", "step"))
    scale = " on a log scale" if log else ""
    steps = f" in steps of {step}" if step not in (None, 1) else ""
    return f"{kind} {low} to {high}{scale}{steps}"


def distribution_of(parameter: Parameter) -> BaseDistribution:
    """Convert a parameter of a federation to a distribution of Optuna."""
    if isinstance(parameter, Categorical):
        return CategoricalDistribution(tuple(parameter.choices))
    kind = IntDistribution if isinstance(parameter, Int) else FloatDistribution
    return kind(**{field: getattr(parameter, field) for field in _FIELDS})


def middle(name: str, distribution: BaseDistribution) -> Value | None:
    """Return the middle of a range on its scale, or the first choice; None if fedbo cannot tune it.

    >>> middle("x", FloatDistribution(0.0, 2.0)), middle("kind", CategoricalDistribution("ab"))
    (1.0, 'a')
    """
    parameters, _ = tunable({name: distribution})
    if not parameters:
        return None
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[0]
    space = Space(parameters)
    return space.decode(space.snap(np.full((1, space.dimensions), 0.5))[0])[name]


def misfit(
    distribution: BaseDistribution,
    parameter: Parameter,
    *,
    clip: bool = False,
    where: str = "the objective",
) -> str:
    """Return how a distribution differs from a federation's parameter; empty if it does not.

    If ``clip``, the values of the distribution may also be only some of the parameter's.

    >>> [misfit(FloatDistribution(0, high), Float(0, 2), clip=True) for high in (3, 1)]
    ['high is 3.0 in the objective and 2.0 in the federation', '']
    """
    theirs = distribution_of(parameter)
    if clip and _is_inside(distribution, parameter):
        return ""
    if _kind(distribution) != _kind(theirs):
        pairs: list[tuple[str, Any, Any]] = [("it is", _kind(distribution), _kind(theirs))]
    elif isinstance(distribution, CategoricalDistribution):
        assert isinstance(theirs, CategoricalDistribution)
        is_same = set(map(_key, distribution.choices)) == set(map(_key, theirs.choices))
        choices = [*distribution.choices], [*theirs.choices]
        pairs = [] if is_same else [("choices are", *choices)]
    else:
        values = [(f"{f} is", getattr(distribution, f), getattr(theirs, f)) for f in _FIELDS]
        pairs = [(name, a, b) for name, a, b in values if a != b]
    return ", ".join(f"{name} {a} in {where} and {b} in the federation" for name, a, b in pairs)


def advice(name: str, distribution: BaseDistribution, parameter: Parameter) -> str:
    """Say how an objective's distribution differs from the federation's, and what to do.

    >>> print(advice("C", FloatDistribution(0, 1), Float(0, 2)))
    parameter 'C': high is 1.0 in the objective and 2.0 in the federation. Suggest it as
    trial.suggest_float('C', 0.0, 2.0), or agree on a new federation with this site's values. This
    site's range is inside the federation's: FederatedSampler(..., clip=True) accepts that
    """
    hint = (
        ". This site's range is inside the federation's: FederatedSampler(..., clip=True) accepts "
        "that"
    )
    return (
        f"parameter {name!r}: {misfit(distribution, parameter)}. Suggest it as "
        f"{_call(name, parameter)}, or agree on a new federation with this site's values"
        f"{hint if _is_inside(distribution, parameter) else ''}"
    )


def _kind(distribution: BaseDistribution) -> str:
    if isinstance(distribution, CategoricalDistribution):
        return "a categorical"
    return "an int" if isinstance(distribution, IntDistribution) else "a float"


def _key(choice: Any) -> tuple[str, Any]:
    """A key that is the same for 1 and 1.0, and different for 1 and True."""
    choice = to_builtin(choice)
    is_number = isinstance(choice, int | float) and not isinstance(choice, bool)
    return ("number" if is_number else type(choice).__name__, choice)


def _is_inside(distribution: BaseDistribution, parameter: Parameter) -> bool:
    """Whether all values of the distribution are values of the parameter."""
    theirs = distribution_of(parameter)
    if isinstance(parameter, Categorical) or _kind(distribution) != _kind(theirs):
        return False
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    if (distribution.log, distribution.step) != (parameter.log, parameter.step):
        return False
    axis = parameter.axis()
    return None not in (axis.encode(distribution.low), axis.encode(distribution.high))


def _call(name: str, parameter: Parameter) -> str:
    """The code that suggests the parameter."""
    if isinstance(parameter, Categorical):
        return f"trial.suggest_categorical({name!r}, {list(parameter.choices)})"
    kind, default = ("int", 1) if isinstance(parameter, Int) else ("float", None)
    step = f", step={parameter.step}" if parameter.step != default else ""
    log = ", log=True" if parameter.log else ""
    return f"trial.suggest_{kind}({name!r}, {parameter.low}, {parameter.high}{step}{log})"


def quoted(names: Sequence[str]) -> str:
    """List names.

    >>> quoted(["a", "b", "c"])
    "'a', 'b' and 'c'"
    """
    shown = [repr(name) for name in names[:_LISTED]]
    if len(names) > _LISTED:
        shown.append(f"{len(names) - _LISTED} more")
    *first, last = shown
    return f"{', '.join(first)} and {last}" if first else last


def tunable(search_space: Mapping[str, BaseDistribution]) -> tuple[dict[str, Parameter], list[str]]:
    """Convert a study's own search space; return what fedbo can tune, and why not the rest.

    >>> tunable({"depth": CategoricalDistribution([True, None]), "n": IntDistribution(1, 10**13)})
    ({'depth': Categorical(choices=(True, None))}, ["parameter 'n' ... is too fine ..."])
    """
    parameters: dict[str, Parameter] = {}
    refusals: list[str] = []
    dimensions = 0
    for name, distribution in search_space.items():
        try:
            parameter = parameter_of(name, distribution)
            size = Space({name: parameter}).dimensions
            if dimensions + size > MOST_DIMENSIONS:
                raise ValueError(f"parameter {name!r} is beyond {MOST_DIMENSIONS} dimensions")
        except ValueError as error:
            refusals.append(str(error))
        else:
            parameters[name] = parameter
            dimensions += size
    return parameters, refusals
