"""``fedbo publish``: a study that exists leaves its message, once, and runs no trial."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedbo.agent import Settings
from fedbo.caller import warn
from fedbo.cli import checks, screen
from fedbo.cli.ledger import show_message
from fedbo.exchange import Exchange, ExchangeError, ExchangeWarning, exchange_at
from fedbo.federation import Federation
from fedbo.message import Fingerprint, Message

if TYPE_CHECKING:
    from fedbo.optuna.publish import Publication, Published


def publish(
    storage: Annotated[
        str, typer.Option(help="Where the study is stored, such as sqlite:///site.db.")
    ],
    study: Annotated[str, typer.Option(help="The name of the study.")],
    to: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Where to publish: a folder, or the https:// address of a hub.",
        ),
    ],
    federation: Annotated[
        Path | None,
        typer.Option(
            help="Federation file. By default, that of the hub; for a folder, the study's own "
            "parameters make the federation."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="The name of the study among its peers; random by default. A study that has "
            "another name is renamed."
        ),
    ] = None,
    unsigned: Annotated[
        bool, typer.Option("--unsigned", help="Do not sign the message with this user's key.")
    ] = False,
    preview: Annotated[
        bool, typer.Option("--preview", help="Only show the message; send nothing.")
    ] = False,
    local_epsilon: checks.LocalEpsilon = None,
    no_tips: checks.NoTips = False,
    scalars: Annotated[
        bool,
        typer.Option(
            "--scalars",
            help="Also share fitted length scales and noise, from which sites agree on a new "
            "epoch. Only a hub carries them.",
        ),
    ] = False,
) -> None:
    """Publish the message of an Optuna study that exists, whichever sampler made it.

    The study may be finished or not, and no trial is run. If nothing new has finished since the
    last time, nothing changes. Later, fedbo join may go on with the study.
    """
    checks.require("optuna", {"optuna": "optuna"})
    from optuna import logging

    from fedbo.optuna import studies
    from fedbo.optuna.publish import Publication

    logging.set_verbosity(logging.ERROR)
    agreed = None if federation is None else checks.federation("--federation", federation)
    try:
        place = exchange_at(to)
    except ExchangeError as error:
        raise checks.refused(str(error), "--to") from None
    console, signed = Console(), False if unsigned else None
    try:
        with checks.warnings_as_lines():
            found = studies.existing(storage, study)
            agreed = _agreed(place, agreed)
            settings = Settings(local_epsilon=local_epsilon, tips=not no_tips)
            publication = Publication(
                found, place, agreed, name=name, signed=signed, settings=settings
            )
            if preview:
                _show(console, publication)
            else:
                _report(console, publication, publication.publish(scalars=scalars))
    except (ValueError, ExchangeError) as error:
        checks.end(str(error))


def _agreed(place: Exchange, given: Federation | None) -> Federation | None:
    """Return the federation to publish for; None if the study's own parameters make it."""
    from fedbo.exchange.hub.exchange import HubExchange

    if not isinstance(place, HubExchange):
        return given
    checks.require("client", {"httpx": "httpx"})
    if given is None:
        mine = place.site()
        theirs = mine.federation()
        if fault := mine.membership.agreed.mismatch(theirs.fingerprint, same_epoch=False):
            raise ValueError(
                f"nothing was published: the federation at {mine.membership.place} is not the one "
                f"that you have joined ({fault}); ask whoever runs the hub"
            )
        return theirs
    if (latest := place.latest(given)).epoch > given.epoch:
        warn(
            f"epoch {latest.epoch} of the federation has begun at {place.address}, and the file is "
            f"of epoch {given.epoch}: few peers may still hear it. Leave out --federation to "
            "publish in the latest epoch",
            ExchangeWarning,
        )
    return given


def _show(console: Console, publication: Publication) -> None:
    """Print the message that would be published."""
    message, hindrance = publication.preview()
    to = screen.printable(publication.exchange.address)
    title = f"The message that would be published at {to}"
    if hindrance:
        title = f"This message would not be published at {to}: {hindrance}."
    screen.say(console, title, "yellow" if hindrance else "bold")
    known = publication.known
    about = {} if known or publication.name else {"agent": "a random name, drawn when it is sent"}
    show_message(console, message, about, publication.federation)
    remark = "" if known else " The noise is drawn when it is sent, so the numbers will differ."
    screen.say(console, f"\nNothing was sent.{remark}")


def _report(console: Console, publication: Publication, done: Published) -> None:
    """Print what has left, or that nothing has."""
    message, place = done.message, publication.exchange
    who, to = screen.printable(message.sender), screen.printable(place.address)
    text = f"The message of {who} was published at {to}."
    if not done.is_new:
        text = f"{to} already has this message of {who}: no trial has finished since it was sent."
    screen.say(console, text, "bold")
    screen.show(console, screen.pairs(_rows(message, done)), above=1, below=1)
    if not (done.is_new or done.are_scalars_new):
        screen.say(console, "Nothing was changed.")
    elif done.scalars is not None and not done.are_scalars_new:
        screen.say(console, "Its scalars have not changed, and were not sent again.")
    screen.say(
        console,
        f"fedbo ledger --agent {screen.printable(shlex.quote(message.sender))} lists everything "
        f"that it sent; the log is {screen.printable(str(publication.ledger.path))}.",
    )


def _rows(message: Message, done: Published) -> dict[str, str]:
    trials = screen.count(message.t_n, "trial")
    if message.t_n < done.trials:
        trials += f" of {done.trials:,} that are finished"
    rows = {
        "federation": f"{Fingerprint(message.fingerprint)}, epoch {message.epoch}",
        "about": trials,
        "size": f"{screen.count(message.numbers, 'number')} ({message.kind}), "
        f"{screen.count(message.nbytes, 'byte')}",
        "signature": f"with the key {message.signer}" if message.key else "not signed",
    }
    if done.are_scalars_new and done.scalars is not None:
        numbers = len(done.scalars.length_scales) + 1
        size = screen.count(len(done.scalars.encode()), "byte")
        rows["scalars"] = f"{screen.count(numbers, 'number')}, {size}"
    return rows
