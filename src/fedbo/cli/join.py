"""``fedbo join``: tune here, help there, without a script."""

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
        str, typer.Argument(help="Where messages travel: a folder that all sites reach.")
    ],
    storage: Annotated[
        str, typer.Option(help="Where the study's trials are kept, such as sqlite:///site.db.")
    ],
    federation: Annotated[Path, typer.Option(help="The file that all sites were given.")] = Path(
        "federation.toml"
    ),
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="What is tuned: called with the federation's parameters by name, or with Optuna's "
            "trial if its only required argument is called trial; returns the score.",
        ),
    ] = None,
    trials: Annotated[
        int,
        typer.Option(
            help="How many finished trials the study is to have in all: complete or pruned, not "
            "failed.",
            min=1,
        ),
    ] = 50,
    study: Annotated[
        str | None,
        typer.Option(
            help="Its name in the storage; else that of the federation file, without .toml."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What peers know this site by; drawn if not given.")
    ] = None,
    every: Annotated[int, typer.Option(help="Hand out a message after so many trials.", min=1)] = 1,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Decides everything random in a new study. Who knows it knows the noise in its "
            "messages: leave it out where that matters.",
            min=0,
        ),
    ] = None,
    clip: Annotated[
        bool,
        typer.Option(
            "--clip", help="Accept an objective whose ranges are inside the federation's."
        ),
    ] = False,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show the next message; send nothing, run nothing.")
    ] = False,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Take this site's message back; run nothing.")
    ] = False,
) -> None:
    """Tune an objective in an Optuna study that takes part in a federation.

    Run it again to go on where it was, after Ctrl-C or a crash; run it several times at once on one
    storage to have several workers. Ctrl-C lets the running trial finish; once more gives it up.
    """
    checks.require("optuna", {"optuna": "optuna"})
    if preview and withdraw:
        raise typer.BadParameter("give one of them", param_hint="--preview / --withdraw")
    if objective is None and not (preview or withdraw):
        problem = "say what is to be tuned, such as train:score for the function score in train.py"
        raise typer.BadParameter(problem, param_hint="--objective")
    from optuna import logging

    from fedbo.exchange import ExchangeError, exchange_at
    from fedbo.optuna.join import StorageFailed

    logging.set_verbosity(logging.ERROR)  # what it would say is said here
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
    """Where a site's messages and its study are, and who it is."""

    exchange: Exchange
    federation: Federation
    storage: str
    study: str
    name: str | None

    def find(self) -> optuna.Study | None:
        """The study, if it exists and fits."""
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
    given.find()  # refuses, before anything is made
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
        lacks = "" if study is None else "score in "
        screen.say(console, f"There is no {lacks}{given}, so there is nothing to hand out yet.")
        return
    log = [one for one in Ledger().read(message.sender) if one.to == to and one.action == "sent"]
    is_out = any(one.message() == message for one in log)
    has_asked = record.identity(study) is not None
    about = {} if has_asked or given.name else {"agent": "drawn when the study first asks"}
    screen.title(console, f"The message that would go to {screen.printable(to)} now")
    ledger_screen.message(console, message, about)
    remark = "With the next finished trial it becomes another one."
    if is_out:
        remark = "This very message was handed out before: see fedbo ledger."
    elif not has_asked and seed is None:
        remark = (
            "The study has not asked for a trial in this federation yet: when it first does, the "
            "noise is drawn anew, and the numbers become others."
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
            f"{given} has never asked for a trial, so it has no name among peers: give the storage "
            "of one that has, or the name with --name"
        )
    ledger, console, place = Ledger(), Console(), given.exchange
    if not ledger.withdraw(place, given.federation, sender):
        screen.say(
            console,
            f"There is no message of {sender!r} for this federation in {place.address}: nothing "
            "to take back.",
        )
        return
    screen.say(
        console,
        f"The message of {sender!r} is taken back from {place.address}: nobody gets it there any "
        "more. Peers that have read it may keep it, and what they learnt from it. The log "
        f"{ledger.path} says when it was withdrawn. If the study goes on, it hands out a new "
        "message after its next trial.",
    )
