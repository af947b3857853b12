"""``fedbo ledger``: every message that left this machine, and what was in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedbo.cli import checks, screen
from fedbo.exchange import Entry, ExchangeError, Ledger
from fedbo.message import Fingerprint, Message

_ROW = 10  # numbers in a line
_NARROWEST = {"when": 10, "agent": 8, "to": 12}  # columns that shrink in a narrow terminal


def ledger(
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only messages of this agent.")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            help="The log to read; by default releases.jsonl in FEDBO_STATE, or in the user's "
            "state folder."
        ),
    ] = None,
    show: Annotated[
        int | None, typer.Option(metavar="N", help="Show the content of message N.", min=1)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with contents in base64.")
    ] = False,
) -> None:
    """List every message that left this machine: when, where to, and how much was in it."""
    if log is not None and not log.is_file():
        raise checks.refused(f"there is no file {log}", "--log")
    try:
        book = Ledger(log)
        with checks.warnings_as_lines():
            every = dict(enumerate(book.read(), start=1))
    except ExchangeError as error:
        checks.end(str(error))
    entries = {number: entry for number, entry in every.items() if agent in (None, entry.agent)}
    if show is not None and show not in entries:
        of = "" if agent is None else f" of {agent!r}"
        known = f"expected {min(entries)} to {max(entries)}" if entries else "there are none"
        checks.end(f"--show {show}: no message{of} has this number in {book.path}; {known}")
    if as_json:
        typer.echo(_json(entries if show is None else {show: entries[show]}))
    elif show is not None:
        try:
            _show_entry(Console(), show, entries[show])
        except ValueError as error:
            checks.end(f"The content cannot be read: {error}. --json prints it as it was sent.")
    elif entries:
        _list(Console(), entries, book.path)
    else:
        text = f"No message has left this machine: {book.path} has no entry."
        if others := ", ".join(sorted({entry.agent for entry in every.values()})):
            text = f"No message of {agent!r} has left, only of {others}: see {book.path}."
        typer.echo(screen.printable(text))


def show_message(console: Console, message: Message, about: Mapping[str, str]) -> None:
    """Print a whole message: its header, and all its numbers in rows.

    Args:
        console: Where to print.
        message: The message.
        about: Rows to print first; they replace rows of the header with the same name.
    """
    header = {
        "agent": message.sender,
        "federation": str(Fingerprint(message.fingerprint)),
        "epoch": f"{message.epoch}",
        "counter": f"{message.sequence}",
        "trials": f"{message.t_n:,}",
        "size": f"{screen.count(message.numbers, 'number')} ({message.kind}), "
        f"{screen.count(message.nbytes, 'byte')}",
    }
    if message.kind == "belief+incumbent":
        header["incumbent"] = f"{message.incumbent:.6g}, the best standardised score"
    rows = {**about, **header, **about}  # those of ``about`` come first, and replace others
    screen.show(console, screen.pairs(rows))
    if message.kind == "weights":
        _vector(console, "omega, a draw of the feature weights", message.omega)
        return
    _vector(console, "nu, the mean of the feature weights", message.nu)
    screen.say(console, "\ncovariance of the feature weights, lower triangle by rows", "bold")
    for i, row in enumerate(message.covariance):
        _rows(console, row[: i + 1], f"{i}")


def _list(console: Console, entries: Mapping[int, Entry], path: Path) -> None:
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
        cells = (f"{number}", _local(entry.when), entry.agent, entry.to, entry.federation[:8])
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
            "A message is undelivered if the exchange could not be reached, or had a later message "
            "under this name.",
        )


def _show_entry(console: Console, number: int, entry: Entry) -> None:
    screen.say(console, f"Message {number}, {entry.action} {_local(entry.when)}", "bold")
    if entry.action != "withdrawn":
        show_message(console, entry.message(), {"to": entry.to})
        return
    about = {"to": entry.to, "agent": entry.agent, "federation": entry.federation}
    screen.show(console, screen.pairs(about))
    screen.say(console, "The exchange stopped handing out the message; nothing was sent.")


def _json(entries: Mapping[int, Entry]) -> str:
    rows = [{"number": number} | msgspec.to_builtins(entry) for number, entry in entries.items()]
    text = msgspec.json.format(msgspec.json.encode(rows)).decode()
    # JSON does not escape these control characters, and a terminal may obey them.
    return re.sub("[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _local(when: str) -> str:
    return datetime.fromisoformat(when).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _vector(console: Console, title: str, values: NDArray[np.float32]) -> None:
    screen.say(console, f"\n{title}", "bold")
    for i in range(0, len(values), _ROW):
        _rows(console, values[i : i + _ROW], f"{i}")


def _rows(console: Console, values: NDArray[np.float32], label: str) -> None:
    """Print the values in lines of ten; the first line has a label."""
    for i in range(0, len(values), _ROW):
        cells = "".join(f"{value:9.4f}" for value in values[i : i + _ROW])
        console.print(Text(f"{label if i == 0 else '':>6} {cells}"), soft_wrap=True)
