"""The function that `fedbo join` evaluates: found by its name, and called with its parameters."""

from __future__ import annotations

import importlib
import inspect
import math
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from inspect import Parameter
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution

from fedbo.optuna.distributions import suggest
from fedbo.space import Space

_LISTED = 8  # names of a module or a folder that an error lists


class ObjectiveRefused(ValueError):
    """There is no such function, or it cannot be called with the parameters."""


class Objective:
    """An objective for `optuna.Study.optimize` that calls a user's function.

    The function is called with the parameters of the space by name. If its only required argument
    is called ``trial``, it is called with Optuna's trial instead.
    """

    def __init__(self, function: Callable[..., Any], space: Space, name: str) -> None:
        self.name = name
        self.begun: Callable[[int], None] = lambda _: None  # called with each trial's number
        self.trial: optuna.Trial | None = None  # the last that was begun
        self.error: BaseException | None = None  # what the function raised in that trial
        self.value: float | None = None  # what it returned
        self._function, self._space = function, space
        self._before: dict[str, BaseDistribution] | None = None
        self._takes_trial = _takes_trial(function, space.names, name)

    def __call__(self, trial: optuna.Trial) -> float:
        self.trial, self.error, self.value = trial, None, None
        params = {} if self._takes_trial else self._space.parameters
        before = self._distributions(trial.study) if params else {}
        given = {
            name: suggest(trial, name, parameter, before.get(name))
            for name, parameter in params.items()
        }
        self.begun(trial.number)
        try:
            result = self._function(trial) if self._takes_trial else self._function(**given)
            self.value = _number(result)
        except (Exception, KeyboardInterrupt) as error:
            self.error = error
            raise
        except BaseException as error:  # such as SystemExit: Optuna would leave the trial running
            ended = RuntimeError(f"the objective ended with {error!r}, expected a number")
            self.error = ended.with_traceback(error.__traceback__)
            raise self.error from error
        return self.value

    def _distributions(self, study: optuna.Study) -> dict[str, BaseDistribution]:
        """Return how the first trial of the study that had parameters suggested them."""
        if self._before is None:
            trials = study.get_trials(deepcopy=False)
            self._before = next((dict(t.distributions) for t in trials if t.distributions), None)
        return self._before or {}


def load(address: str, space: Space) -> Objective:
    """Return the objective at ``package.module:function``, which may be in the current folder."""
    module_name, colon, path = address.partition(":")
    if not (colon and module_name and path) or module_name.endswith(".py"):
        raise ObjectiveRefused(
            f"the objective is {address!r}, expected module:function, such as train:score for the "
            "function score in train.py"
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: Any = _module(module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            kind = "module" if inspect.ismodule(found) else "object"
            owner = getattr(found, "__name__", repr(found))
            raise ObjectiveRefused(
                f"the objective is {address!r}, but there is no {name!r} in {kind} {owner!r}"
                f"{_list('; its functions are', _functions(found) if kind == 'module' else [])}"
            )
        found = getattr(found, name)
    if not callable(found):
        raise ObjectiveRefused(
            f"the objective is {address!r}, which is {found!r} and not a function"
        )
    return Objective(found, space, address)


def last_line(error: BaseException) -> str:
    """Return the last line of the error's traceback, and where in the user's code it was raised."""
    line = "".join(traceback.format_exception_only(error)).strip().splitlines()[0]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if not file.is_relative_to(Path(__file__).parent):
            return f"{line} ({file.name}, line {frame.lineno})"
    return line


def _number(result: object) -> float:
    try:
        number = float(result)  # type: ignore[arg-type]  # whatever the user's function returned
    except (TypeError, ValueError):
        raise TypeError(f"the objective returned {result!r}, expected a number") from None
    if math.isnan(number):
        raise ValueError("the objective returned nan, expected a number")
    return number


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            here = sorted(path.stem for path in Path().glob("*.py") if path.stem.isidentifier())
            raise ObjectiveRefused(
                f"there is no module {error.name!r} in {os.getcwd()} or among installed packages"
                f"{_list('; in this folder there is', here)}"
            ) from None
        problem: BaseException = error
    except (Exception, SystemExit) as error:  # whatever the user's module does
        problem = error
    raise ObjectiveRefused(f"module {name!r} cannot be imported: {last_line(problem)}")


def _functions(module: Any) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]


def _list(start: str, names: Sequence[str]) -> str:
    more = ", …" if len(names) > _LISTED else ""
    return f"{start} {', '.join(names[:_LISTED])}{more}" if names else ""


def _takes_trial(function: Callable[..., Any], names: Sequence[str], address: str) -> bool:
    """Whether a function takes Optuna's trial; refuse one that does not take the parameters."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False  # Python cannot say what it takes
    taken = signature.parameters.values()
    variadic = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    required = [p.name for p in taken if p.default is Parameter.empty and p.kind not in variadic]
    if required == ["trial"] and "trial" not in names:
        return True
    by_name = [
        p.name for p in taken if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    ]
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in taken)
    lacking = [name for name in required if name not in names or name not in by_name]
    refused = [] if takes_any else [name for name in names if name not in by_name]
    faults = [f"it needs {_quoted(lacking)}, which it is not given"] if lacking else []
    faults += [f"it does not take {_quoted(refused)}"] if refused else []
    if faults:
        raise ObjectiveRefused(
            f"the objective {address} takes {signature}, but is called with the federation's "
            f"parameters by name, {_quoted(names)}: {' and '.join(faults)}. Change it to take "
            "these, or one argument called trial, for Optuna's trial"
        )
    return False


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
