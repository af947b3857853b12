"""``fedbo study``: what an Optuna study sends, and what it owes to its peers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedbo.agent.settings import Settings
from fedbo.cli import checks, screen
from fedbo.cli.ledger import show_message
from fedbo.exchange import Exchange, HubExchange, Ledger, exchange_at
from fedbo.federation.federation import Federation
from fedbo.message import Fingerprint

if TYPE_CHECKING:
    from optuna import Study

    from fedbo.optuna.stored import StoredStudy

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
NoTips = Annotated[
    bool,
    typer.Option(
        "--no-tips",
        help="Name no tip, roughly the best point, in messages. Give it every time.",
    ),
]


@app.command()
def preview(
    storage: Storage,
    study: Name,
    to: To,
    federation: FederationFile = None,
    name: PeerName = None,
    no_tips: NoTips = False,
) -> None:
    """Show the message that `fedbo study publish` would send. Nothing is sent or stored."""
    exchange = exchange_at(to)
    agreed = federation_at(exchange, federation)
    stored = _stored(storage, study, agreed, name, no_tips)
    message, record = stored.message(exchange), stored.record
    screen.say(f"The message that would be published at {exchange.address}", "bold")
    about = {"to": exchange.address}
    if record is None and name is None:
        about["agent"] = "a random name, drawn when it is sent"
    show_message(message, about, agreed)
    drawn = " The noise is drawn when it is sent, so the numbers will differ."
    screen.say(f"\nNothing was sent.{'' if record else drawn}")


@app.command()
def publish(
    storage: Storage,
    study: Name,
    to: To,
    federation: FederationFile = None,
    name: PeerName = None,
    no_tips: NoTips = False,
) -> None:
    """Publish the message of a study that exists, whichever sampler made it.

    The study may be finished or not, and no trial is run. If nothing new has finished since the
    last time, nothing changes. Later, a FederatedSampler may go on with the study.
    """
    ledger, exchange = Ledger(), exchange_at(to)
    agreed = federation_at(exchange, federation)
    stored = _stored(storage, study, agreed, name, no_tips)
    published = stored.publish(exchange, ledger=ledger)
    message, where = published.message, exchange.address
    text = f"The message of {message.sender} was published at {where}."
    if not published.is_new:
        text = f"{where} already has this message of {message.sender}: no trial has finished since."
    screen.say(text, "bold")
    about = screen.count(message.t_n, "trial")
    if message.t_n < published.trials:
        about += f" of {published.trials:,} that are finished"
    screen.facts(
        {
            "federation": str(Fingerprint(message.fingerprint)),
            "about": about,
            "size": f"{screen.count(message.nbytes, 'byte')} ({message.kind})",
            "signature": f"with the key {message.signer}",
        }
    )
    screen.say(f"fedbo ledger lists everything that was sent; the log is {ledger.path}.")


@app.command()
def withdraw(storage: Storage, study: Name, to: To, federation: FederationFile = None) -> None:
    """Withdraw the message of a study.

    Peers forget it when they look at the exchange again. What they learnt from it stays in their
    trials. If the study goes on, it publishes again.
    """
    exchange = exchange_at(to)
    stored = _stored(storage, study, federation_at(exchange, federation))
    if stored.withdraw(exchange):
        screen.say(f"The message of this study was withdrawn from {exchange.address}.")
    else:
        screen.say(f"{exchange.address} has no message of this study: nothing was withdrawn.")


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
        from fedbo.insight import figure

        checks.writable("--plot", plot, checks.PICTURES)
    if csv is not None:
        checks.folder("--csv", csv)
    opened = _existing(storage, study)
    from fedbo.optuna.stored import StoredStudy
    from fedbo.optuna.study import read_record

    record = read_record(opened)
    if federation is None and record is not None and record.federation and _USUAL.exists():
        federation = _USUAL
    agent = StoredStudy(opened, None if federation is None else Federation.load(federation)).agent()
    with Console().status("Replaying the trials without peers"):
        explanation = agent.explain(draws)
    typer.echo(screen.lines(str(explanation)))
    if plot is not None:
        figure.draw(explanation, plot)
        typer.echo(f"The figure is in {plot}.")
    if csv is not None:
        explanation.to_csv(csv)
        typer.echo(f"The tables are in {csv}.")


def federation_at(exchange: Exchange, file: Path | None) -> Federation:
    """Return the federation in a file; without one, that of the hub, or of federation.toml."""
    if file is None and isinstance(exchange, HubExchange):
        return exchange.member().federation()
    if file is None and not _USUAL.exists():
        problem = (
            "give the file that all sites share. To make one of this study: fedbo federation new "
            "federation.toml --from-study STORAGE STUDY"
        )
        raise checks.refused(problem, "--federation")
    return Federation.load(file or _USUAL)


def _stored(
    storage: str,
    study: str,
    federation: Federation,
    name: str | None = None,
    no_tips: bool = False,
) -> StoredStudy:
    existing = _existing(storage, study)
    from fedbo.optuna.stored import StoredStudy

    settings = Settings(tips=not no_tips)
    return StoredStudy(existing, federation, name=name, settings=settings)


def _existing(storage: str, study: str) -> Study:
    """Return a study that exists; what Optuna has to say of it is not shown."""
    from optuna import logging

    from fedbo.optuna.studies import existing

    logging.set_verbosity(logging.ERROR)
    return existing(storage, study)
