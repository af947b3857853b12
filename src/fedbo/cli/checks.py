"""What commands have in common: checks that come before any work, and how a program ends."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from fedbo.federation import Federation

INTERRUPTED = 130  # what shells expect of a program that Ctrl-C ended
PICTURES = (".png", ".pdf", ".svg")


def end(text: str) -> NoReturn:
    """End the program with a sentence that says why."""
    from fedbo.cli import screen

    typer.echo(screen.lines(text), err=True)
    raise typer.Exit(1)


def refused(problem: str, hint: str) -> typer.BadParameter:
    """What is wrong with an argument."""
    from fedbo.cli import screen

    return typer.BadParameter(screen.lines(problem), param_hint=hint)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print fedbo's warnings as a person wants them: the sentence, without a line of code.

    Those of the user's own libraries stay as they are.
    """
    from fedbo.cli import screen

    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if category is UserWarning or category.__module__.startswith("fedbo."):
            typer.echo(f"Warning: {screen.lines(str(message))}", err=True)
        else:
            usual(message, category, *rest, **more)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def require(extra: str, modules: dict[str, str]) -> None:
    """End with a sentence that helps if one of the extra's packages is not installed."""
    missing = [package for module, package in modules.items() if find_spec(module) is None]
    if missing:
        end(
            f"This needs {' and '.join(missing)}, which fedbo does not bring along by itself: "
            f"pip install 'fedbo[{extra}]'"
        )


def writable(option: str, path: Path, endings: tuple[str, ...] = ()) -> None:
    """Refuse, before any work is done, a path that cannot be written to."""
    folder = path.absolute().parent
    if endings and path.suffix.lower() not in endings:
        problem = f"{path} ends in {path.suffix!r}, expected one of {', '.join(endings)}"
    elif path.is_dir():
        problem = f"{path} is a folder, expected a file"
    elif not folder.is_dir():
        problem = f"the folder {folder} does not exist: make it first"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        problem = f"{path} cannot be written: permission denied"
    else:
        return
    raise refused(problem, option)


def folder(option: str, path: Path) -> None:
    """Refuse, before any work is done, a folder that cannot be made or written to."""
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not there.is_dir():
        raise refused(f"{there} is a file, expected a folder", option)
    if not os.access(there, os.W_OK):
        raise refused(f"{path} cannot be written: permission denied in {there}", option)


def federation(option: str, path: Path) -> Federation:
    """The federation in a file, or an end that says what is wrong with it."""
    from fedbo.federation import Federation

    try:
        return Federation.load(path)
    except OSError as error:
        problem = f"{path} cannot be read ({error.strerror}): give a file of fedbo federation new"
        raise refused(problem, option) from None
    except (ValueError, TypeError) as error:  # what is wrong in it
        end(str(error))
