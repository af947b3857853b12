"""``fedbo ledger``: every message that left this machine, and what was in it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from fedbo.cli import checks


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
    from rich.console import Console

    from fedbo.cli import ledger_screen, screen
    from fedbo.exchange import ExchangeError, Ledger

    if log is not None and not log.is_file():
        raise checks.refused(f"there is no file {log}", "--log")
    book = Ledger(log)
    try:
        with checks.warnings_as_lines():
            every = dict(enumerate(book.read(), start=1))
    except ExchangeError as error:
        checks.end(str(error))
    entries = {number: entry for number, entry in every.items() if agent in (None, entry.agent)}
    if show is not None and show not in entries:
        checks.end(_no_such(show, entries, agent, book.path))
    if as_json:
        typer.echo(ledger_screen.as_json(entries if show is None else {show: entries[show]}))
    elif show is not None:
        try:
            ledger_screen.content(Console(), show, entries[show])
        except ValueError as error:
            checks.end(f"The content cannot be read: {error}. --json prints it as it was sent.")
    elif entries:
        ledger_screen.table(Console(), entries, book.path)
    else:
        agents = {entry.agent for entry in every.values()}
        typer.echo(screen.printable(_nothing(agent, agents, book.path)))


def _no_such(number: int, entries: Collection[int], agent: str | None, path: Path) -> str:
    of = "" if agent is None else f" of {agent!r}"
    known = f"expected {min(entries)} to {max(entries)}" if entries else "there are none"
    return f"--show {number}: no message{of} has this number in {path}; {known}"


def _nothing(agent: str | None, agents: Collection[str], path: Path) -> str:
    if not agents:
        return f"No message has left this machine: {path} has no entry."
    return f"No message of {agent!r} has left, only of {', '.join(sorted(agents))}: see {path}."
