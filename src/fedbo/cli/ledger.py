"""``fedbo ledger``: every message that left this machine, and what was in it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from fedbo.cli import checks


def ledger(
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only what this agent handed out.")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="The log to read; else the one in FEDBO_STATE, else this user's."),
    ] = None,
    show: Annotated[
        int | None, typer.Option(metavar="N", help="Show the content of number N.", min=1)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, for machines; contents are in base64.")
    ] = False,
) -> None:
    """List every message that was handed out: when, to where, how much; and show what was in it."""
    from rich.console import Console

    from fedbo.cli import ledger_screen, screen
    from fedbo.exchange import ExchangeError, Ledger

    if log is not None and not log.is_file():
        raise checks.refused(f"there is no file {log}", "--log")
    book = Ledger(log)
    try:
        with checks.warnings_as_lines():
            every = dict(enumerate(book.read(), start=1))
    except (ExchangeError, OSError) as error:
        checks.end(f"{book.path} cannot be read: {error}")
    wanted = {number: one for number, one in every.items() if agent in (None, one.agent)}
    if show is not None and show not in wanted:
        checks.end(_no_such(show, wanted, agent, book.path))
    if as_json:
        chosen = wanted if show is None else {show: wanted[show]}
        typer.echo(ledger_screen.as_json(chosen))
    elif show is not None:
        try:
            ledger_screen.content(Console(), show, wanted[show])
        except ValueError as error:
            checks.end(f"Its content cannot be read: {error}. --json has it as it was sent.")
    elif wanted:
        ledger_screen.table(Console(), wanted, book.path)
    else:
        typer.echo(
            screen.printable(_nothing(agent, {one.agent for one in every.values()}, book.path))
        )


def _no_such(number: int, wanted: Collection[int], agent: str | None, path: Path) -> str:
    of = "" if agent is None else f" of {agent!r}"
    there = f"expected one from {min(wanted)} to {max(wanted)}" if wanted else "it has none"
    return f"--show {number}: no message{of} has this number in {path}; {there}"


def _nothing(agent: str | None, agents: Collection[str], path: Path) -> str:
    if not agents:
        return f"No message was ever handed out from here: looked in {path}."
    return f"Nothing was handed out by {agent!r}, only by {', '.join(sorted(agents))}: see {path}."
