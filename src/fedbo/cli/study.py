"""``fedbo study``: what an Optuna study sends, and what it owes to its peers."""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from fedbo.agent.settings import Settings
from fedbo.cli import checks, screen
from fedbo.cli.ledger import show_message
from fedbo.exchange import Exchange, ExchangeError, HubExchange, Ledger, exchange_at
from fedbo.federation.federation import Federation
from fedbo.insight.explain import Explanation, texts
from fedbo.message import Fingerprint
from fedbo.table import Table

if TYPE_CHECKING:
    from fedbo.optuna.stored import StoredStudy

_ROWS = 12  # shown of a long table
_USUAL = Path("federation.toml")

app = typer.Typer(no_args_is_help=True, help="Publish and explain Optuna studies that exist.")

Storage = Annotated[
    str,
    typer.Option(
        help="Where the study is stored: the URL of a database, such as sqlite:///site.db, or the "
        "file of a JournalStorage."
    ),
]
Name = Annotated[str, typer.Option("--study", help="The name of the study in its storage.")]
To = Annotated[
    str, typer.Option(metavar="ADDRESS", help="A folder, or the https:// address of a hub.")
]
FederationFile = Annotated[
    Path | None,
    typer.Option(
        help="Federation file. By default, that of the hub; for a folder, federation.toml.",
        show_default=False,
    ),
]
PeerName = Annotated[
    str | None,
    typer.Option(
        "--name",
        help="The name among peers of a study that has none yet; random by default. A study keeps "
        "its name.",
    ),
]


@app.command()
def preview(
    storage: Storage,
    study: Name,
    to: To,
    federation: FederationFile = None,
    name: PeerName = None,
    local_epsilon: checks.LocalEpsilon = None,
    no_tips: checks.NoTips = False,
) -> None:
    """Show the message that `fedbo study publish` would send. Nothing is sent or stored."""
    with _ending():
        exchange = _exchange(to)
        agreed = _federation(exchange, federation)
        stored = _stored(storage, study, agreed, name, local_epsilon, no_tips)
        message, record = stored.message(exchange), stored.record
    console, address = Console(), screen.printable(exchange.address)
    screen.say(console, f"The message that would be published at {address}", "bold")
    about = {"to": address}
    if record is None and name is None:
        about["agent"] = "a random name, drawn when it is sent"
    show_message(console, message, about, agreed)
    drawn = " The noise is drawn when it is sent, so the numbers will differ."
    screen.say(console, f"\nNothing was sent.{'' if record else drawn}")


@app.command()
def publish(
    storage: Storage,
    study: Name,
    to: To,
    federation: FederationFile = None,
    name: PeerName = None,
    unsigned: Annotated[
        bool, typer.Option("--unsigned", help="Do not sign the message with this user's key.")
    ] = False,
    local_epsilon: checks.LocalEpsilon = None,
    no_tips: checks.NoTips = False,
) -> None:
    """Publish the message of a study that exists, whichever sampler made it.

    The study may be finished or not, and no trial is run. If nothing new has finished since the
    last time, nothing changes. Later, a FederatedSampler may go on with the study.
    """
    ledger = Ledger()
    with _ending():
        exchange = _exchange(to)
        agreed = _federation(exchange, federation)
        stored = _stored(storage, study, agreed, name, local_epsilon, no_tips)
        published = stored.publish(exchange, signed=False if unsigned else None, ledger=ledger)
    console, message = Console(), published.message
    who, where = screen.printable(message.sender), screen.printable(exchange.address)
    text = f"The message of {who} was published at {where}."
    if not published.is_new:
        text = f"{where} already has this message of {who}: no trial has finished since it left."
    screen.say(console, text, "bold")
    about = screen.count(message.t_n, "trial")
    if message.t_n < published.trials:
        about += f" of {published.trials:,} that are finished"
    rows = {
        "federation": str(Fingerprint(message.fingerprint)),
        "about": about,
        "size": f"{screen.count(message.numbers, 'number')} ({message.kind}), "
        f"{screen.count(message.nbytes, 'byte')}",
        "signature": f"with the key {message.signer}" if message.key else "not signed",
    }
    screen.show(console, screen.pairs(rows), above=1, below=1)
    agent, log = shlex.quote(message.sender), screen.printable(str(ledger.path))
    screen.say(
        console,
        f"fedbo ledger --agent {screen.printable(agent)} lists everything that it sent; the log is "
        f"{log}.",
    )


@app.command()
def withdraw(storage: Storage, study: Name, to: To, federation: FederationFile = None) -> None:
    """Withdraw the message of a study.

    Peers forget it when they look at the exchange again. What they learnt from it stays in their
    trials. If the study goes on, it publishes again.
    """
    with _ending():
        exchange = _exchange(to)
        stored = _stored(storage, study, _federation(exchange, federation))
        was_there = stored.withdraw(exchange)
    where = screen.printable(exchange.address)
    text = f"There is no message of this study in {where}, so there is nothing to withdraw."
    if was_there:
        text = f"The message of this study was withdrawn from {where}."
    screen.say(Console(), text)


@app.command()
def explain(
    storage: Storage,
    study: Name,
    federation: Annotated[
        Path | None,
        typer.Option(
            help="The federation file that the study was run with, if any; federation.toml if the "
            "study had one."
        ),
    ] = None,
    settings: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="The agent's settings if they are not the usual ones, such as "
            "fedbo_paper.preset:PAPER.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw a figure into this file: .png, .pdf or .svg.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write all tables, with every query, into this folder.")
    ] = None,
    draws: Annotated[
        int, typer.Option(help="How many replays without peers the estimate is based on.", min=1)
    ] = 32,
) -> None:
    """Show where a study's queries came from, and how many trials its peers saved.

    The study is only read.
    """
    if plot is not None:
        checks.require("experiments", {"matplotlib": "matplotlib"})
        checks.writable("--plot", plot, checks.PICTURES)
    if csv is not None:
        checks.folder("--csv", csv)
    own = None if settings is None else _settings(settings)
    console = Console()
    with _ending():
        from fedbo.optuna.stored import StoredStudy
        from fedbo.optuna.studies import existing
        from fedbo.optuna.study import read_record

        stored = existing(storage, study)
        record = read_record(stored)
        if federation is None and record is not None and record.federation and _USUAL.exists():
            federation = _USUAL
        agreed = None if federation is None else checks.federation("--federation", federation)
        agent = StoredStudy(stored, agreed, settings=own).agent()
        with console.status("Replaying the trials without peers"):
            explanation = agent.explain(draws)
    _report(console, explanation)
    if plot is not None:
        from fedbo.insight import figure

        figure.draw(explanation, plot)
        typer.echo(f"The figure is in {plot}.")
    if csv is not None:
        explanation.to_csv(csv)
        typer.echo(f"The tables are in {csv}.")


@contextlib.contextmanager
def _ending() -> Iterator[None]:
    """Print warnings as lines, and end the program with the text of an error."""
    checks.require("optuna", {"optuna": "optuna"})
    from optuna import logging

    logging.set_verbosity(logging.ERROR)
    try:
        with checks.warnings_as_lines():
            yield
    except (ValueError, ExchangeError) as error:
        checks.end(str(error))


def _exchange(to: str) -> Exchange:
    try:
        exchange = exchange_at(to)
    except ExchangeError as error:
        raise checks.refused(str(error), "--to") from None
    if isinstance(exchange, HubExchange):
        checks.require("client", {"httpx": "httpx"})
    return exchange


def _federation(exchange: Exchange, file: Path | None) -> Federation:
    """Return the federation in a file; without one, that of the hub, or of federation.toml."""
    if file is None and isinstance(exchange, HubExchange):
        return exchange.member().federation()
    if file is None and not _USUAL.exists():
        problem = (
            "give the file that all sites share. To make one of this study: fedbo federation new "
            "federation.toml --from-study STORAGE STUDY"
        )
        raise checks.refused(problem, "--federation")
    return checks.federation("--federation", file or _USUAL)


def _stored(
    storage: str,
    study: str,
    federation: Federation,
    name: str | None = None,
    local_epsilon: float | None = None,
    no_tips: bool = False,
) -> StoredStudy:
    from fedbo.optuna.stored import StoredStudy
    from fedbo.optuna.studies import existing

    settings = Settings(local_epsilon=local_epsilon, tips=not no_tips)
    return StoredStudy(existing(storage, study), federation, name=name, settings=settings)


def _settings(address: str) -> Settings:
    """Return the settings at ``package.module:name``, which may be in the current folder."""
    module, _, name = address.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        settings = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        expected = "expected module:name, such as fedbo_paper.preset:PAPER"
        raise checks.refused(f"{address!r}: {error}; {expected}", "--settings") from None
    if not isinstance(settings, Settings):
        raise checks.refused(f"{address} is {settings!r}, expected a fedbo.Settings", "--settings")
    return settings


def _report(console: Console, explanation: Explanation) -> None:
    decimals, queries = explanation.decimals, explanation.queries
    screen.say(console, explanation.heading(), indent=2)
    _show(console, "Where the queries came from", explanation.sources, decimals)
    if explanation.peers.height:
        _show(console, "What each peer contributed", explanation.peers, decimals)
    keep = queries["gained"].round(decimals) > 0
    if keep.any():
        names = ("trial", "source", "peers", "score", "gained")
        improving = Table({name: queries[name][keep] for name in names})
        _show(console, "Queries that improved on the best", improving, decimals)
    saved, sentences = explanation.saved, explanation.sentences()
    screen.say(console, "\nWhat collaborating saved", "bold")
    style = "green" if saved is not None and saved.low > 0 else ""
    screen.say(console, sentences[0], style, indent=2)
    for sentence in sentences[1:-1]:
        screen.say(console, sentence, indent=2)
    if saved is not None:
        _show(console, "Best scores so far", saved.gains, decimals)
        console.print()
        screen.say(console, sentences[-1], "dim", indent=2)


def _show(console: Console, title: str, table: Table, decimals: int) -> None:
    screen.say(console, f"\n{title}", "bold")
    grid = screen.grid(*table)
    for column, values in zip(grid.columns, table.values(), strict=True):
        column.justify = "right" if values.dtype.kind in "if" else "left"
    for row in list(zip(*texts(table, decimals), strict=True))[:_ROWS]:
        grid.add_row(*map(Text, row))
    screen.show(console, grid)
    if table.height > _ROWS:
        more = table.height - _ROWS
        screen.say(console, f"… and {more} more: --csv writes all of them", indent=2)
