"""How commands print: sentences, tables, counts and sizes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedbo.outside import printable as printable

_WIDTH = 88  # of sentences, at most
_AGES = {"day": 86400.0, "hour": 3600.0, "minute": 60.0}


def lines(text: str) -> str:
    """Escape control characters, but keep line breaks."""
    return "\n".join(map(printable, text.split("\n")))


def say(text: str, style: str = "", indent: int = 0, *, err: bool = False) -> None:
    """Print a sentence as it is: nothing in it counts as markup or can move the cursor."""
    console, sentence = Console(stderr=err), Text(lines(text), style=style)
    indented = Padding(sentence, (0, 0, 0, indent)) if indent else sentence
    console.print(indented, width=min(_WIDTH, console.width))


def copied(line: str, *, err: bool = False) -> None:
    """Print a line to copy; it is not broken, whatever the width of the terminal."""
    Console(stderr=err).print(Text(f"\n  {printable(line)}\n"), soft_wrap=True)


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; its columns of numbers are aligned to the right."""
    rows = [*rows]
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 2, 0, 0))
    for i, title in enumerate(titles):
        is_number = all(row[i] == "" or isinstance(row[i], int) for row in rows)
        grid.add_column(title, overflow="fold", justify="right" if is_number else "left")
    for row in rows:
        texts = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row)
        grid.add_row(*(Text(printable(text)) for text in texts))
    Console().print(Padding(grid, (0, 0, 0, 2)))


def facts(texts: Mapping[str, str]) -> None:
    """Print names and their texts, between empty lines."""
    grid = Table.grid(padding=(0, 3, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in texts.items():
        grid.add_row(printable(name), Text(printable(text)))
    Console().print(Padding(grid, (1, 0, 1, 2)))


def count(n: int, noun: str) -> str:
    """Say how many things there are.

    >>> count(1, "trial"), count(5150, "number")
    ('1 trial', '5,150 numbers')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def moment(when: float) -> str:
    """Say when something is, to the minute, in local time and with its distance from UTC.

    >>> len(moment(1e9)) == len("2001-09-09 01:46+00:00")
    True
    """
    return datetime.fromtimestamp(when, UTC).astimezone().isoformat(" ", "minutes")


def size(nbytes: int) -> str:
    """Say how many bytes there are.

    >>> size(450), size(20_650), size(200_020_050)
    ('450 bytes', '20.6 kB', '200.0 MB')
    """
    if nbytes < 1000:
        return count(nbytes, "byte")
    return f"{nbytes / 1e3:.1f} kB" if nbytes < 1e6 else f"{nbytes / 1e6:.1f} MB"


def age(when: float | None) -> str:
    """Say how long ago this was, in the largest unit that fits.

    >>> age(time.time() - 7300), age(None)
    ('2 hours', '')
    """
    if when is None:
        return ""
    seconds = time.time() - when
    for unit, length in _AGES.items():
        if seconds >= length:
            return count(int(seconds // length), unit)
    return count(int(seconds), "second") if seconds >= 0 else "in the future"
