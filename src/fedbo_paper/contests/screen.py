"""Progress and tables of a contest in the terminal, and its results as JSON."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from fedbo_paper.data import MissingData
from fedbo_paper.harness import screen, workers
from fedbo_paper.harness.intervals import Effect

T = TypeVar("T")

console = Console(stderr=True)
out = Console(width=None if sys.stdout.isatty() else 200)


def work(stage: str, calls: Sequence[Callable[[], T]], jobs: int) -> list[T]:
    """Run the calls in parallel, show the progress, and return the results in the calls' order."""
    results: dict[int, T] = {}
    with progress(stage, len(calls)) as show:
        for i, result in workers.run(calls, jobs):
            results[i] = result
            show(len(results))
    return [results[i] for i in range(len(calls))]


@contextmanager
def progress(stage: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar in a terminal; elsewhere print a line for every tenth."""
    if console.is_terminal:
        with screen.bars(console) as bars:
            task = bars.add_task(f"{stage:<16}", total=total)
            yield lambda done: bars.update(task, completed=done)
        return
    start, tenths = time.monotonic(), 0

    def show(done: int) -> None:
        nonlocal tenths
        if 10 * done // total > tenths:
            tenths = 10 * done // total
            passed = time.monotonic() - start
            left = passed * (total / done - 1)
            say(f"{stage}: {done} of {total}, {passed:.0f} s passed, {left:.0f} s left")

    yield show


def say(text: str) -> None:
    """Print a line about the run to standard error."""
    console.print(text, highlight=False, soft_wrap=True)


def refuse(text: str) -> SystemExit:
    """Create the exception that ends a command with an error message."""
    return SystemExit(f"{Path(sys.argv[0]).name}: {text}")


def run(main: Callable[[], None]) -> None:
    """Run a command. Missing data and Ctrl-C end it with a message."""
    try:
        main()
    except MissingData as error:
        raise refuse(str(error)) from None
    except KeyboardInterrupt:
        workers.stop()
        say("Stopped. Finished runs of samplers from outside are kept and will not run again.")
        sys.exit(130)


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
    value, low, high = (f"{each:.{digits}f}" for each in (effect.value, effect.low, effect.high))
    return f"{value} [{low}, {high}]"


def finish(result: object, path: Path | None) -> None:
    """Write the figures, if a file was given.

    Estimates become [value, low, high]; NaN and infinity become null.
    """
    if path is not None:
        path.write_text(_formatted(_builtin(result)) + "\n")


def _formatted(value: Any, indent: str = "") -> str:
    """Format a value as JSON, with indents; a list that holds no other lists takes one line."""
    deeper = indent + "  "
    if isinstance(value, dict) and value:
        parts = [f"{json.dumps(key)}: {_formatted(each, deeper)}" for key, each in value.items()]
        left, right = "{}"
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        parts = [_formatted(each, deeper) for each in value]
        left, right = "[]"
    else:
        return json.dumps(value, allow_nan=False)
    return f"{left}\n{deeper}" + f",\n{deeper}".join(parts) + f"\n{indent}{right}"


def _builtin(value: Any) -> Any:
    if isinstance(value, Effect):
        value = [value.value, value.low, value.high]
    if isinstance(value, dict):
        return {key: _builtin(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_builtin(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
