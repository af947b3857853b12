"""The terminal of a contest: its options, its progress, its tables, and its results as JSON."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from fedbo_paper.data import MissingData
from fedbo_paper.data.places import user_folder
from fedbo_paper.harness import screen, workers
from fedbo_paper.harness.intervals import Effect

T = TypeVar("T")

console = Console(stderr=True)
out = Console(width=None if sys.stdout.isatty() else 200)


# Options


def parser(description: str | None) -> argparse.ArgumentParser:
    """Create a parser whose help is a module's docstring, with the options --json and --jobs."""
    first, _, rest = (description or "").partition("\n")
    result = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    text = "also write the figures to this file"
    result.add_argument("--json", type=_writable, metavar="OUT", help=text)
    cores, text = os.cpu_count() or 1, "number of processes; default: one for each core"
    result.add_argument("--jobs", type=positive, default=cores, metavar="J", help=text)
    return result


def contest_parser(description: str | None, *, trials: int = 50) -> argparse.ArgumentParser:
    """Create a parser with the options of all contests.

    Args:
        description: The docstring of the module.
        trials: The default of --trials.
    """
    result = parser(description)
    add = result.add_argument
    add("--seeds", type=positive, default=10, metavar="N", help="runs on a target; default: 10")
    text = "tasks that are targets, default: all; a target's peers may be any other tasks"
    add("--targets", choices=("even", "odd", "all"), default="all", help=text)
    text = f"trials of each run, the initial points included; default: {trials}"
    add("--trials", type=positive, default=trials, metavar="N", help=text)
    folder = user_folder() / "benchmarks"
    text = "folder where finished runs are stored, so that a stopped contest goes on"
    add("--cache", type=Path, default=folder, metavar="DIR", help=text)
    return result


def some(names: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Create a parser of names that are separated by commas."""

    def read(text: str) -> tuple[str, ...]:
        wanted = [name.strip() for name in text.split(",")]
        for name in wanted:
            if name not in names:
                raise argparse.ArgumentTypeError(
                    f"{name!r} is unknown, expected some of {', '.join(names)}"
                )
        return tuple(name for name in names if name in wanted)

    return read


def positive(text: str) -> int:
    """Parse a whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def positives(text: str) -> list[float]:
    """Parse numbers above 0 that are separated by commas; they may be "inf"."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = [0.0]
    if not all(value > 0.0 for value in values):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers above 0")
    return values


def _writable(text: str) -> Path:
    """Parse a path, and check before hours of work that its folder exists."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no folder {path.parent}; make it first")
    return path


# Work


def work(stage: str, calls: Sequence[Callable[[], T]], jobs: int) -> list[T]:
    """Run the calls in parallel, show the progress, and return the results in the calls' order."""
    results: dict[int, T] = {}
    with screen.bars(console) as bars:
        bar = bars.add_task(f"{stage:<16}", total=len(calls))
        for i, result in workers.run(calls, jobs):
            results[i] = result
            bars.advance(bar)
    return [results[i] for i in range(len(calls))]


def run(main: Callable[[], None]) -> None:
    """Run a command. Missing data and Ctrl-C end it with a message."""
    try:
        main()
    except MissingData as error:
        raise refuse(str(error)) from None
    except KeyboardInterrupt:
        workers.stop()
        say("Stopped. Finished runs are stored: the same command goes on from there.")
        sys.exit(130)


# Results


def say(text: str) -> None:
    """Print a line about the run to standard error."""
    console.print(text, highlight=False, soft_wrap=True)


def refuse(text: str) -> SystemExit:
    """Create the exception that ends a command with an error message."""
    return SystemExit(f"{Path(sys.argv[0]).name}: {text}")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to standard output."""
    out.print(f"\n{title}", highlight=False, soft_wrap=True)
    shown = screen.table(*columns)
    for row in rows:
        shown.add_row(*row)
    out.print(shown)


def estimate(effect: Effect, digits: int = 2) -> str:
    """Format an estimate with its interval.

    >>> estimate(Effect(0.5, 0.25, 1.0, n=25))
    '0.50 [0.25, 1.00]'
    """
    if math.isnan(effect.value):
        return "–"
    value, low, high = (f"{x:.{digits}f}" for x in (effect.value, effect.low, effect.high))
    return f"{value} [{low}, {high}]"


def finish(result: dict[str, Any], path: Path | None) -> None:
    """Write the figures as JSON, a line for each key, if a file was given.

    Estimates become [value, low, high]; NaN and infinity become null.
    """
    if path is not None:
        lines = (f"{json.dumps(key)}: {json.dumps(_builtin(result[key]))}" for key in result)
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _builtin(value: Any) -> Any:
    if isinstance(value, Effect):
        value = [value.value, value.low, value.high]
    if isinstance(value, dict):
        return {key: _builtin(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_builtin(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
