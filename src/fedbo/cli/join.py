"""``fedbo join``: tune an objective in a federation, without a script."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedbo.agent import Settings
from fedbo.cli import checks
from fedbo.exchange import ExchangeError, HubExchange, exchange_at


def join(
    exchange: Annotated[
        str,
        typer.Argument(
            help="Where sites exchange messages: a folder that all of them reach, or the "
            "https:// address of a hub."
        ),
    ],
    invite: Annotated[
        str | None,
        typer.Option(
            metavar="INVITATION",
            help="First become a member of a federation at the hub. Give a file with the "
            "invitation, or - to read it from standard input: other users of this machine can see "
            "what is on the command line.",
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(help="Where the study keeps its trials, such as sqlite:///site.db."),
    ] = None,
    federation: Annotated[
        Path | None,
        typer.Option(
            help="Federation file. By default, a hub's federation is stored there.",
            show_default="federation.toml",
        ),
    ] = None,
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
        typer.Option(help="Run until the study has this many complete or pruned trials.", min=1),
    ] = 50,
    study: Annotated[
        str | None, typer.Option(help="The study; by default named after the federation file.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="The name of this site among its peers; random by default. A study that has "
            "another name is renamed. With --invite, also the name of the member."
        ),
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(
            help="Send a message after this many trials; by default, when a trial is the best so "
            "far, or when there are twice as many trials as in the last message.",
            min=1,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of a new study. Do not set it if privacy matters: with the seed, the noise "
            "can be removed from the messages.",
            min=0,
        ),
    ] = None,
    clip: Annotated[
        bool, typer.Option("--clip", help="Accept narrower ranges than the federation's.")
    ] = False,
    unsigned: Annotated[
        bool, typer.Option("--unsigned", help="Do not sign messages with this user's key.")
    ] = False,
    local_epsilon: checks.LocalEpsilon = None,
    no_tips: checks.NoTips = False,
    progress: Annotated[
        bool,
        typer.Option(
            "--progress",
            help="Report the best score and an estimate of trials saved, for the page of a hub.",
        ),
    ] = False,
    preview: Annotated[
        bool, typer.Option("--preview", help="Only show the next message; send and run nothing.")
    ] = False,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Only withdraw this site's message; run nothing.")
    ] = False,
) -> None:
    """Tune an objective with other sites, through a folder or a hub, or become a hub's member.

    The trials are those of an Optuna study.

    To resume after Ctrl-C or a crash, run the same command again. For several workers, run it
    several times at once with the same storage. Ctrl-C lets the running trial finish; a second
    Ctrl-C abandons it.

    At a hub, --invite makes this site a member, once. Without --storage and --objective, nothing
    is tuned: the command only makes the site a member, and gets the federation file.
    """
    if preview and withdraw:
        raise checks.refused("give at most one of the two", "--preview / --withdraw")
    try:
        place = exchange_at(exchange)
    except ExchangeError as error:
        raise checks.refused(str(error), "EXCHANGE") from None
    is_hub = isinstance(place, HubExchange)
    if invite is not None and not is_hub:
        raise checks.refused("an invitation is for a hub: give its https:// address", "--invite")
    runs = not is_hub or any([storage, objective, preview, withdraw])
    if runs:
        checks.require("optuna", {"optuna": "optuna"})
        if objective is None and not (preview or withdraw):
            problem = "give the function to tune, such as train:score for score in train.py"
            raise checks.refused(problem, "--objective")
        if storage is None:
            problem = "give where the study keeps its trials, such as sqlite:///site.db"
            raise checks.refused(problem, "--storage")
    file = Path("federation.toml") if federation is None else federation
    # A message of a study that was run without a file is withdrawn without one.
    needs_file = not withdraw or federation is not None
    if isinstance(place, HubExchange):
        from fedbo.cli import join_hub

        checks.require("client", {"httpx": "httpx"})
        with checks.warnings_as_lines():
            if invite is not None:
                join_hub.become_member(place, invite, name, file, is_signed=not unsigned)
            elif federation is None or not runs:
                join_hub.update_file(place, file)
        if not runs:
            join_hub.say_next(place, file)
            return
    from optuna import logging

    from fedbo.cli import join_screen
    from fedbo.optuna.join import StorageFailed

    logging.set_verbosity(logging.ERROR)  # this command prints its own reports
    agreed = checks.federation("--federation", file) if needs_file else None
    assert storage is not None
    given = join_screen.Given(place, file, agreed, storage, study or file.stem or "fedbo", name)
    signed = False if unsigned else None
    settings = Settings(local_epsilon=local_epsilon, tips=not no_tips)
    try:
        with checks.warnings_as_lines():
            if preview:
                join_screen.preview(given, seed, signed, settings)
            elif withdraw:
                join_screen.withdraw(given)
            else:
                assert objective is not None
                options: dict[str, Any] = {
                    "seed": seed,
                    "every": every,
                    "clip": clip,
                    "signed": signed,
                }
                options |= {"progress": progress, "settings": settings}
                join_screen.run(given, objective, trials, **options)
    except (ValueError, ExchangeError, StorageFailed) as error:
        checks.end(f"{error}{' (here: --clip)' if 'clip=True' in str(error) else ''}")
