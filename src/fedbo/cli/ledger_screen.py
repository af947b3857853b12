"""What left this machine, in a terminal: the list, and the content of one message."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedbo.cli import screen
from fedbo.exchange import Entry
from fedbo.message import Message

_ROW = 10  # numbers in a line
_NARROWEST = {"when": 10, "agent": 8, "to": 12}  # columns that give way in a narrow terminal


def table(console: Console, ledger: Mapping[int, Entry], path: Path) -> None:
    """Print one line for each, by number, and what all of them come to."""
    grid = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for name in ("no.", "when", "agent", "to", "federation", "trials", "numbers", "bytes", "what"):
        right = name in ("no.", "trials", "numbers", "bytes")
        narrow = _NARROWEST.get(name)
        grid.add_column(
            name,
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=narrow is None,
            min_width=narrow,
        )
    for number, one in ledger.items():
        sent = one.action == "sent"
        counts = (f"{one.t_n:,}", f"{one.numbers:,}", f"{one.nbytes:,}") if sent else ("", "", "")
        cells = (f"{number}", local(one.when), one.agent, one.to, one.federation[:8], *counts)
        texts = (Text(screen.printable(cell)) for cell in cells)
        grid.add_row(*texts, Text(one.action, style="" if sent else "yellow"))
    console.print(grid)
    console.print()
    signs = [{"sent": 1, "undelivered": -1}.get(one.action, 0) for one in ledger.values()]
    total = sum(sign * one.nbytes for sign, one in zip(signs, ledger.values(), strict=True))
    screen.say(
        console,
        f"{screen.count(sum(signs), 'message')} handed out, {screen.size(total)} in all; the "
        f"log is {screen.printable(str(path))}. fedbo ledger --show N prints what was in one.",
    )
    if -1 in signs:
        screen.say(
            console,
            "Undelivered ones were sent, and not taken: the place could not be reached, or had a "
            "later message under this name.",
        )


def content(console: Console, number: int, release: Entry) -> None:
    """Print the header and the numbers of one message."""
    done = "handed out" if release.action == "sent" else release.action
    screen.title(console, f"Number {number}, {done} {local(release.when)}")
    rows = {"to": release.to}
    if release.action == "withdrawn":
        rows |= {"agent": release.agent, "federation": release.federation}
        console.print(Padding(screen.pairs(rows), (0, 0, 0, 2)))
        screen.say(console, "From then on its message was handed out no more; nothing left then.")
        return
    message(console, release.message(), rows)


def message(console: Console, given: Message, about: Mapping[str, str] | None = None) -> None:
    """Print a message whole: what its header says, and all its numbers in rows.

    What is said ``about`` it comes first, and stands for what the header says of the same.
    """
    rows = dict(about or {})
    rows |= {name: text for name, text in header(given).items() if name not in rows}
    console.print(Padding(screen.pairs(rows), (0, 0, 0, 2)))
    if given.kind == "weights":
        _vector(console, "omega, a draw of the weights of the features", given.omega)
        return
    _vector(console, "nu, the mean of the weights of the features", given.nu)
    console.print()
    screen.say(console, "covariance of the weights, its lower triangle row by row", "bold")
    for i, row in enumerate(given.covariance):
        _rows(console, row[: i + 1], f"{i}")


def header(given: Message) -> dict[str, str]:
    """What a message says beside its numbers."""
    from fedbo.message.fingerprint import Fingerprint

    rows = {
        "agent": given.sender,
        "federation": str(Fingerprint(given.fingerprint)),
        "epoch": f"{given.epoch}",
        "counter": f"{given.sequence}",
        "trials": f"{given.t_n:,} behind it",
        "size": f"{screen.count(given.numbers, 'number')} ({given.kind}), "
        f"{screen.count(given.nbytes, 'byte')}",
    }
    if given.kind == "belief+incumbent":
        rows["incumbent"] = f"{given.incumbent:.6g}, best standardised score"
    return rows


def as_json(ledger: Mapping[int, Entry]) -> str:
    """The ledger as a JSON list, each with its number."""
    rows = [{"number": number} | msgspec.to_builtins(one) for number, one in ledger.items()]
    text = msgspec.json.format(msgspec.json.encode(rows)).decode()
    # JSON leaves these as they are, and a terminal may obey them.
    return re.sub("[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text)


def local(when: str) -> str:
    """A moment in the log, in this machine's time."""
    return datetime.fromisoformat(when).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _vector(console: Console, title: str, values: NDArray[np.float32]) -> None:
    console.print()
    screen.say(console, title, "bold")
    for i in range(0, len(values), _ROW):
        _rows(console, values[i : i + _ROW], f"{i}")


def _rows(console: Console, values: Sequence[float] | NDArray[np.float32], label: str) -> None:
    """The values in lines of ten, the first one labelled."""
    for i in range(0, len(values), _ROW):
        cells = "".join(f"{value:9.4f}" for value in values[i : i + _ROW])
        console.print(Text(f"{label if i == 0 else '':>6} {cells}"), soft_wrap=True)
