"""What all commands need: checks before any work is done, and how a program ends."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from fedbo.cli import screen

Yes = Annotated[
    bool, typer.Option("--yes", help="Do not ask, for example where there is no terminal.")
]
INTERRUPTED = 130  # the exit code that shells expect after Ctrl-C
PICTURES = (".png", ".pdf", ".svg")
#: The extra of fedbo that installs a module.
_EXTRAS = {
    "alembic": "hub",
    "cryptography": "identity",
    "fastapi": "hub",
    "flwr": "flower",
    "matplotlib": "experiments",
    "optuna": "optuna",
    "sqlalchemy": "hub",
    "uvicorn": "hub",
}


def end(text: str) -> NoReturn:
    """End the program with exit code 1, and say why."""
    typer.echo(screen.lines(text), err=True)
    raise typer.Exit(1)


def refused(problem: str, hint: str) -> typer.BadParameter:
    """Build the error for an argument; ``hint`` is its name."""
    return typer.BadParameter(screen.lines(problem), param_hint=hint)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print each of fedbo's warnings as one line; warnings of other libraries stay as they are."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if category is UserWarning or category.__module__.startswith("fedbo."):
            typer.echo(f"Warning: {screen.lines(str(message))}", err=True)
        else:
            usual(message, category, *rest, **more)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def end_with(error: Exception) -> None:
    """End the program with the text of an error that fedbo expects; do nothing for others."""
    if isinstance(error, ModuleNotFoundError):
        module = str(error.name).partition(".")[0]
        if module in _EXTRAS:
            require(_EXTRAS[module], {module: module})
    elif isinstance(error, OSError) and error.filename is not None:
        end(f"{error.filename} cannot be used: {error.strerror}")
    elif not isinstance(error, BrokenPipeError):
        end(str(error))


def require(extra: str, modules: dict[str, str]) -> None:
    """End the program if a module of this extra, each with its package, is not installed."""
    missing = [package for module, package in modules.items() if find_spec(module) is None]
    if missing:
        end(
            f"This command needs {' and '.join(missing)}, which fedbo does not install by "
            f"default: pip install 'fedbo[{extra}]'"
        )


def sure(question: str, is_sure: bool) -> None:
    """Ask, unless the user said before that nobody need ask; end the program unless it is yes."""
    if is_sure:
        return
    if not _is_terminal():
        end("Nothing was done: there is no terminal to ask at; add --yes.")
    typer.confirm(question, abort=True)


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def writable(option: str, path: Path, endings: tuple[str, ...] = ()) -> None:
    """Refuse a file that cannot be written."""
    folder = path.absolute().parent
    if endings and path.suffix.lower() not in endings:
        problem = f"{path} ends in {path.suffix!r}, expected one of {', '.join(endings)}"
    elif path.is_dir():
        problem = f"{path} is a folder, expected a file"
    elif not folder.is_dir():
        problem = f"the folder {folder} does not exist: create it first"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        problem = f"{path} cannot be written: permission denied"
    else:
        return
    raise refused(problem, option)


def folder(option: str, path: Path) -> None:
    """Refuse a folder that cannot be created or written to."""
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise refused(f"{existing} is a file, expected a folder", option)
    if not os.access(existing, os.W_OK):
        raise refused(f"{path} cannot be written: permission denied in {existing}", option)
