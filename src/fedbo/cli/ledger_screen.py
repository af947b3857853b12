"""The ledger, printed in a terminal: the list of entries, and the content of one message."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedbo.cli import screen
from fedbo.exchange import Entry
from fedbo.message import Fingerprint, Message

_ROW = 10  # numbers in a line
_NARROWEST = {"when": 10, "agent": 8, "to": 12}  # columns that shrink in a narrow terminal


def table(console: Console, entries: Mapping[int, Entry], path: Path) -> None:
    """Print one line for each entry, by number, and the totals."""
    grid = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for name in ("no.", "when", "agent", "to", "federation", "trials", "numbers", "bytes", "what"):
        narrowest = _NARROWEST.get(name)
        grid.add_column(
            name,
            justify="right" if name in ("no.", "trials", "numbers", "bytes") else "left",
            overflow="fold",
            no_wrap=narrowest is None,
            min_width=narrowest,
        )
    for number, entry in entries.items():
        is_sent = entry.action == "sent"
        counts = [f"{n:,}" if is_sent else "" for n in (entry.t_n, entry.numbers, entry.nbytes)]
        cells = (f"{number}", local(entry.when), entry.agent, entry.to, entry.federation[:8])
        grid.add_row(
            *(Text(screen.printable(cell)) for cell in (*cells, *counts)),
            Text(entry.action, style="" if is_sent else "yellow"),
        )
    console.print(grid)
    console.print()
    sent = [entry.nbytes for entry in entries.values() if entry.action == "sent"]
    lost = [entry.nbytes for entry in entries.values() if entry.action == "undelivered"]
    screen.say(
        console,
        f"{screen.count(len(sent) - len(lost), 'message')} left this machine, "
        f"{screen.size(sum(sent) - sum(lost))} in total. The log is {screen.printable(str(path))}. "
        "fedbo ledger --show N prints the content of message N.",
    )
    if lost:
        screen.say(
            console,
            "Undelivered messages were sent, but the exchange could not be reached, or it had a "
            "later message under this name.",
        )


def content(console: Console, number: int, entry: Entry) -> None:
    """Print the header and the numbers of one message."""
    screen.say(console, f"Message {number}, {entry.action} {local(entry.when)}", "bold")
    about = {"to": entry.to}
    if entry.action == "withdrawn":
        about |= {"agent": entry.agent, "federation": entry.federation}
        screen.show(console, screen.pairs(about))
        screen.say(console, "The exchange stopped handing out the message; nothing was sent.")
        return
    message(console, entry.message(), about)


def message(console: Console, given: Message, about: Mapping[str, str] | None = None) -> None:
    """Print a whole message: its header, and all its numbers in rows.

    Args:
        console: Where to print.
        given: The message.
        about: Rows to print first; they replace rows of the header with the same name.
    """
    rows = dict(about or {})
    rows |= {name: text for name, text in header(given).items() if name not in rows}
    screen.show(console, screen.pairs(rows))
    if given.kind == "weights":
        _vector(console, "omega, a draw of the feature weights", given.omega)
        return
    _vector(console, "nu, the mean of the feature weights", given.nu)
    screen.say(console, "\ncovariance of the feature weights, lower triangle by rows", "bold")
    for i, row in enumerate(given.covariance):
        _rows(console, row[: i + 1], f"{i}")


def header(given: Message) -> dict[str, str]:
    """Say what a message has besides its numbers."""
    rows = {
        "agent": given.sender,
        "federation": str(Fingerprint(given.fingerprint)),
        "epoch": f"{given.epoch}",
        "counter": f"{given.sequence}",
        "trials": f"{given.t_n:,}",
        "size": f"{screen.count(given.numbers, 'number')} ({given.kind}), "
        f"{screen.count(given.nbytes, 'byte')}",
    }
    if given.kind == "belief+incumbent":
        rows["incumbent"] = f"{given.incumbent:.6g}, the best standardised score"
    return rows


def as_json(entries: Mapping[int, Entry]) -> str:
    """Write the entries as a JSON list, each with its number."""
    rows = [{"number": number} | msgspec.to_builtins(entry) for number, entry in entries.items()]
    text = msgspec.json.format(msgspec.json.encode(rows)).decode()
    # JSON does not escape these, and a terminal may obey them.
    return re.sub("[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text)


def local(when: str) -> str:
    """Convert a time of the ledger to local time."""
    return datetime.fromisoformat(when).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _vector(console: Console, title: str, values: NDArray[np.float32]) -> None:
    screen.say(console, f"\n{title}", "bold")
    for i in range(0, len(values), _ROW):
        _rows(console, values[i : i + _ROW], f"{i}")


def _rows(console: Console, values: Sequence[float] | NDArray[np.float32], label: str) -> None:
    """Print the values in lines of ten, the first one labelled."""
    for i in range(0, len(values), _ROW):
        cells = "".join(f"{value:9.4f}" for value in values[i : i + _ROW])
        console.print(Text(f"{label if i == 0 else '':>6} {cells}"), soft_wrap=True)
