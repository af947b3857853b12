"""The function that `fedbo join` evaluates: found by its name, and called with what is tuned."""

from __future__ import annotations

import importlib
import inspect
import math
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import optuna

from fedbo.optuna.distributions import suggest
from fedbo.space import Space

_KEYWORDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_NAMED = 8  # at most, of what a module or a folder has


class ObjectiveRefused(ValueError):
    """No function to evaluate; the text says what was given and what there is."""


class Objective:
    """What Optuna calls for each trial.

    The user's function is called with the parameters of the space by name; if its only required
    argument is called ``trial``, with Optuna's trial instead. ``trial`` is the trial that was begun
    last, ``value`` what the function returned in it and ``error`` what it raised, so that whoever
    runs it can tell a failure of the function from any other. ``begun`` is called with the number
    of each trial before the function is.
    """

    def __init__(self, function: Callable[..., Any], space: Space, name: str) -> None:
        self.name = name
        self.begun: Callable[[int], None] = lambda _: None
        self.trial: optuna.Trial | None = None
        self.error: BaseException | None = None
        self.value: float | None = None
        self._function, self._space = function, space
        self._takes_trial = _takes_trial(function, space.names)
        if not self._takes_trial:
            _check_arguments(function, space.names, name)

    def __call__(self, trial: optuna.Trial) -> float:
        self.trial, self.error, self.value = trial, None, None
        params = self._space.parameters.items()
        given = {} if self._takes_trial else {name: suggest(trial, name, of) for name, of in params}
        self.begun(trial.number)
        try:
            result = self._function(trial) if self._takes_trial else self._function(**given)
            self.value = _number(result)
        except (Exception, KeyboardInterrupt) as error:
            self.error = error
            raise
        except BaseException as error:  # SystemExit, say: Optuna would leave the trial running
            ended = RuntimeError(f"the objective ended with {error!r}, expected a number")
            self.error = ended.with_traceback(error.__traceback__)
            raise self.error from error
        return self.value


def load(address: str, space: Space) -> Objective:
    """The objective at ``package.module:function``; the current folder counts as importable."""
    module_name, colon, path = address.partition(":")
    if not (colon and module_name and path) or module_name.endswith(".py"):
        raise ObjectiveRefused(
            f"the objective is {address!r}, expected module:function, such as train:score for the "
            "function score in train.py"
        )
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    found: Any = _module(module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            raise ObjectiveRefused(
                f"the objective is {address!r}, but there is no {name!r} in {_title(found)}"
                f"{_functions(found)}"
            )
        found = getattr(found, name)
    if not callable(found):
        raise ObjectiveRefused(
            f"the objective is {address!r}, which is {found!r} and not a function"
        )
    return Objective(found, space, address)


def last_line(error: BaseException) -> str:
    """The last line of the error's traceback, and where in the user's code it was raised."""
    line = "".join(traceback.format_exception_only(error)).strip().splitlines()[0]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not Path(frame.filename).is_relative_to(Path(__file__).parent)
    ]
    if not frames:
        return line
    return f"{line} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"


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
            raise ObjectiveRefused(
                f"there is no module {error.name!r} in {os.getcwd()} or among what is installed"
                f"{_modules()}"
            ) from None
        problem: BaseException = error
    except (Exception, SystemExit) as error:  # whatever the user's module does
        problem = error
    raise ObjectiveRefused(f"module {name!r} cannot be imported: {last_line(problem)}")


def _modules() -> str:
    found = sorted(path.stem for path in Path().glob("*.py") if path.stem.isidentifier())
    return _there_is("; in this folder there is", found)


def _functions(owner: Any) -> str:
    found = [
        name
        for name, value in vars(owner).items()
        if not name.startswith("_")
        and inspect.isroutine(value)
        and getattr(value, "__module__", None) == getattr(owner, "__name__", None)
    ]
    return _there_is("; its functions are", found)


def _there_is(start: str, names: Sequence[str]) -> str:
    more = ", …" if len(names) > _NAMED else ""
    return f"{start} {', '.join(names[:_NAMED])}{more}" if names else ""


def _title(owner: Any) -> str:
    kind = "module" if inspect.ismodule(owner) else "object"
    return f"{kind} {getattr(owner, '__name__', repr(owner))!r}"


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """What it takes, or None where Python cannot say."""
    try:
        return [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return None


def _takes_trial(function: Callable[..., Any], names: Sequence[str]) -> bool:
    required = [p.name for p in _parameters(function) or [] if _is_required(p)]
    return required == ["trial"] and "trial" not in names


def _check_arguments(function: Callable[..., Any], names: Sequence[str], address: str) -> None:
    takes = _parameters(function)
    if takes is None:
        return
    by_name = [p.name for p in takes if p.kind in _KEYWORDS]
    anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in takes)
    lacking = [p.name for p in takes if _is_required(p)]
    lacking = [name for name in lacking if name not in names or name not in by_name]
    refused = [] if anything else [name for name in names if name not in by_name]
    if lacking or refused:
        faults = [
            *([f"it needs {_quoted(lacking)}, which it would not be given"] if lacking else []),
            *([f"it does not take {_quoted(refused)}"] if refused else []),
        ]
        raise ObjectiveRefused(
            f"the objective {address} takes {inspect.signature(function)}, and is called with the "
            f"federation's parameters by name, {_quoted(names)}: {' and '.join(faults)}. Let it "
            "take these, or one argument called trial, for Optuna's trial"
        )


def _is_required(parameter: inspect.Parameter) -> bool:
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and parameter.kind not in variadic


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
