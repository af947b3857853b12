"""Progress bars and tables that experiments, contests and the demo show in a terminal."""

from __future__ import annotations

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


def bars(console: Console) -> Progress:
    """Create an empty set of progress bars; each bar is one task of it."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("passed,"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
    )


def table(*columns: str, **options: Any) -> Table:
    """Create an empty table for numbers: narrow, and without an outer border.

    Args:
        columns: Titles of the first columns. The first one is aligned left, the others right.
        options: Options of `rich.table.Table`.
    """
    result = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), **options)
    for i, title in enumerate(columns):
        result.add_column(title, justify="right" if i else "left", no_wrap=True)
    return result
