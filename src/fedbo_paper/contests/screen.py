"""Benchmarks in a terminal: how far they are, and what came of them."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from fedbo_paper.harness import workers

console = Console(stderr=True)
out = Console(width=None if sys.stdout.isatty() else 140)

#: A function, its arguments, and how many runs it stands for.
Call = tuple[Callable[..., Any], tuple[Any, ...], int]


def work(stage: str, calls: Sequence[Call], jobs: int) -> Iterator[Any]:
    """What the calls return, in the order in which they end, with progress in runs meanwhile."""
    from joblib import Parallel, delayed

    first = os.getpid()
    tasks = [delayed(_apart)(first, call) for call in calls]
    with _Bar(stage, sum(runs for *_, runs in calls)) as advance:
        finished = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(tasks)
        for result, runs in finished:
            advance(runs)
            yield result


def _apart(first: int, call: Call) -> tuple[Any, int]:
    """A call in a process of its own, where Ctrl-C is left to the first process."""
    if os.getpid() != first and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    function, arguments, runs = call
    return function(*arguments), runs


class _Bar:
    """A bar in a terminal, a line for every tenth elsewhere."""

    def __init__(self, stage: str, total: int) -> None:
        self.stage, self.total, self.done, self.start = stage, total, 0, time.monotonic()
        self.bars = Progress(
            TextColumn("{task.description:<16}"),
            BarColumn(bar_width=36),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("passed,"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            disable=not console.is_terminal,
        )
        self.task = self.bars.add_task(stage, total=total)

    def __enter__(self) -> Callable[[int], None]:
        self.bars.start()
        return self._advance

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def _advance(self, runs: int) -> None:
        before, self.done = self.done, self.done + runs
        self.bars.update(self.task, completed=self.done)
        tenth = 10 * self.done // self.total > 10 * before // self.total
        if not console.is_terminal and tenth:
            passed = time.monotonic() - self.start
            left = passed * (self.total / self.done - 1)
            say(
                f"{self.stage}: {self.done} of {self.total}, {passed:.0f} s passed, {left:.0f} left"
            )


def say(text: str) -> None:
    """A line about the run, beside its results."""
    console.print(text, highlight=False, soft_wrap=True)


def refuse(text: str) -> SystemExit:
    """To be raised where the command cannot be done."""
    return SystemExit(f"{Path(sys.argv[0]).name}: {text}")


def run(main: Callable[[], None]) -> None:
    """Run a command; Ctrl-C ends it and its processes."""
    try:
        main()
    except KeyboardInterrupt:
        workers.stop()
        say("Stopped. Runs of outside samplers are kept: the same command goes on from there.")
        sys.exit(130)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    out.print(f"\n{title}", highlight=False, soft_wrap=True)
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for i, name in enumerate(columns):
        shown.add_column(name, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        shown.add_row(*row)
    out.print(shown)


def number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"


def estimate(values: Sequence[float], digits: int = 2) -> str:
    """A point with its interval."""
    if math.isnan(values[0]):
        return "–"
    point, low, high = (f"{value:.{digits}f}" for value in values)
    return f"{point} [{low}, {high}]"


def write_json(path: Path, result: object) -> None:
    """Write the figures; what is not a number becomes null."""
    path.write_text(json.dumps(_plain(result), indent=2, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
