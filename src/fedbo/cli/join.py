"""``fedbo join``: tune an objective in a federation, without a script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from fedbo.cli import checks

if TYPE_CHECKING:
    import optuna

    from fedbo.exchange import Exchange
    from fedbo.federation import Federation


def join(
    exchange: Annotated[
        str, typer.Argument(help="Where sites exchange messages: a folder that all of them reach.")
    ],
    storage: Annotated[
        str, typer.Option(help="Where the study keeps its trials, such as sqlite:///site.db.")
    ],
    federation: Annotated[Path, typer.Option(help="The federation file of all sites.")] = Path(
        "federation.toml"
    ),
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="The function to tune. It is called with the federation's parameters by name, or "
            "with Optuna's trial if its only required argument is named trial, and returns the "
            "score.",
        ),
    ] = None,
    trials: Annotated[
        int,
        typer.Option(
            help="How many finished trials the study shall have in total. Pruned trials count, "
            "failed ones do not.",
            min=1,
        ),
    ] = 50,
    study: Annotated[
        str | None,
        typer.Option(
            help="The name of the study; by default that of the federation file, without .toml."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The name of this site among its peers; random by default.")
    ] = None,
    every: Annotated[int, typer.Option(help="Send a message after this many trials.", min=1)] = 1,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of a new study. Do not set it if privacy matters: whoever knows it can "
            "remove the noise from the messages.",
            min=0,
        ),
    ] = None,
    clip: Annotated[
        bool,
        typer.Option(
            "--clip", help="Accept an objective with narrower ranges than the federation's."
        ),
    ] = False,
    preview: Annotated[
        bool, typer.Option("--preview", help="Only show the next message; send and run nothing.")
    ] = False,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Only withdraw this site's message; run nothing.")
    ] = False,
) -> None:
    """Tune an objective in an Optuna study that takes part in a federation.

    To resume after Ctrl-C or a crash, run the same command again. To have several workers, run it
    several times at once on one storage. Ctrl-C lets the running trial finish; a second Ctrl-C
    abandons it.
    """
    checks.require("optuna", {"optuna": "optuna"})
    if preview and withdraw:
        raise checks.refused("give at most one of the two", "--preview / --withdraw")
    if objective is None and not (preview or withdraw):
        problem = (
            "give the function to tune, such as train:score for the function score in train.py"
        )
        raise checks.refused(problem, "--objective")
    from optuna import logging

    from fedbo.exchange import ExchangeError, exchange_at
    from fedbo.optuna.join import StorageFailed

    logging.set_verbosity(logging.ERROR)  # this command reports by itself
    agreed = checks.federation("--federation", federation)
    try:
        place = exchange_at(exchange)
    except ExchangeError as error:
        raise checks.refused(str(error), "EXCHANGE") from None
    given = _Given(place, agreed, storage, study or federation.stem or "fedbo", name)
    try:
        with checks.warnings_as_lines():
            if preview:
                _preview(given, seed)
            elif withdraw:
                _withdraw(given)
            else:
                assert objective is not None
                _run(given, objective, trials, seed=seed, every=every, clip=clip)
    except (ValueError, ExchangeError, StorageFailed) as error:
        hint = " (here: --clip)" if "clip=True" in str(error) else ""
        checks.end(f"{error}{hint}")


class _Given(NamedTuple):
    """Which exchange, federation and study were given, and the name of the site."""

    exchange: Exchange
    federation: Federation
    storage: str
    study: str
    name: str | None

    def find(self) -> optuna.Study | None:
        """Find the study; None if it does not exist. Raises if it does not fit."""
        from fedbo.optuna import join, studies

        there = studies.find(self.storage, self.study)
        if there is not None:
            join.check(there, self.federation, self.name)
        return there

    def __str__(self) -> str:
        from fedbo.optuna import studies

        return f"study {self.study!r} in {studies.shown(self.storage)}"


def _run(
    given: _Given, address: str, trials: int, *, seed: int | None, every: int, clip: bool
) -> None:
    from rich.console import Console

    from fedbo.cli.join_screen import JoinScreen
    from fedbo.optuna import join, objective, studies

    federation, ledger = given.federation, join.CountedLedger()
    function = objective.load(address, federation.space)
    sampler = join.sampler(
        federation,
        given.exchange,
        name=given.name,
        seed=seed,
        every=every,
        clip=clip,
        ledger=ledger,
    )
    given.find()  # raises, before anything is created, if it does not fit
    study = studies.create(given.storage, given.study, federation.space.direction, sampler)
    site = join.Site(study, sampler, function, ledger)
    watching = JoinScreen(Console(), site, trials)
    watching.introduce(given.exchange, studies.shown(given.storage))
    ending = watching.run()
    if ending != "done":
        raise typer.Exit(checks.INTERRUPTED if ending == "stopped" else 1)


def _preview(given: _Given, seed: int | None) -> None:
    from rich.console import Console

    from fedbo.cli import ledger_screen, screen
    from fedbo.exchange import Ledger
    from fedbo.optuna import join, record

    study, message = given.find(), None
    if study is not None:
        message = join.sampler(given.federation, None, name=given.name, seed=seed).preview(study)
    console, to = Console(), given.exchange.address
    if study is None or message is None:
        missing = given if study is None else f"score in {given}"
        screen.say(console, f"There is no {missing}, so there is nothing to send yet.")
        return
    is_out = any(
        entry.message() == message
        for entry in Ledger().read(message.sender)
        if entry.to == to and entry.action == "sent"
    )
    has_asked = record.identity(study) is not None
    about = {} if has_asked or given.name else {"agent": "a random name, chosen at the first trial"}
    screen.say(console, f"The message that would be sent to {screen.printable(to)} now", "bold")
    ledger_screen.message(console, message, about)
    remark = "The next finished trial changes it."
    if is_out:
        remark = "This very message was sent before: see fedbo ledger."
    elif not has_asked and seed is None:
        remark = (
            "The study has not run a trial in this federation yet. The noise is drawn again at "
            "the first one, so the numbers will differ."
        )
    screen.say(console, f"\nNothing was sent. {remark}")


def _withdraw(given: _Given) -> None:
    from rich.console import Console

    from fedbo.cli import screen
    from fedbo.exchange import Ledger
    from fedbo.optuna import record

    study = given.find()
    known = None if study is None else record.identity(study)
    sender = given.name if known is None else known.name
    if sender is None:
        raise ValueError(
            f"{given} has not run a trial, so it has no name among peers: give the storage of a "
            "study that has, or the name with --name"
        )
    ledger, console, place = Ledger(), Console(), given.exchange
    if not ledger.withdraw(place, given.federation, sender):
        screen.say(
            console,
            f"There is no message of {sender!r} for this federation in {place.address}, so there "
            "is nothing to withdraw.",
        )
        return
    screen.say(
        console,
        f"The message of {sender!r} was withdrawn from {place.address}. Peers that have read it "
        f"may keep it, and what they learnt from it. The withdrawal is recorded in {ledger.path}. "
        "If the study continues, it sends a new message after its next trial.",
    )
