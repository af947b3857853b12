"""How commands put things in a terminal: sentences, tables, counts and sizes."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDTH = 88  # of sentences, or the terminal's where that is narrower


def printable(text: str) -> str:
    """Text of others, such as a peer's name or a path, so that it cannot move the cursor.

    >>> printable("Zürich \\x1b[2J")
    'Zürich \\\\x1b[2J'
    """
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def lines(text: str) -> str:
    """The same of text that may have several lines."""
    return "\n".join(map(printable, text.split("\n")))


def say(console: Console, text: str, style: str = "") -> None:
    """Print a sentence; nothing in it is markup, nor does it move the cursor."""
    console.print(Text(lines(text), style=style), width=width(console))


def width(console: Console) -> int:
    """Of sentences."""
    return min(_WIDTH, console.width)


def title(console: Console, text: str) -> None:
    say(console, text, "bold")


def grid(*columns: str) -> Table:
    """A table of the usual look, with columns of text."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def pairs(rows: Mapping[str, str]) -> Table:
    """Names and what belongs to them; under an empty name stands a remark on the row above."""
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows.items():
        table.add_row(printable(name), Text(printable(text), style="" if name else "dim"))
    return table


def count(n: int, noun: str) -> str:
    """A number of things.

    >>> count(1, "trial"), count(5150, "number")
    ('1 trial', '5,150 numbers')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def size(nbytes: int) -> str:
    """A number of bytes.

    >>> size(450), size(20_650), size(200_020_050)
    ('450 bytes', '20.6 kB', '200.0 MB')
    """
    if nbytes < 1000:
        return count(nbytes, "byte")
    return f"{nbytes / 1e3:.1f} kB" if nbytes < 1e6 else f"{nbytes / 1e6:.1f} MB"
