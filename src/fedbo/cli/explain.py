"""``fedbo explain``: what a saved agent or a stored study owes to its peers."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fedbo import caller
from fedbo.agent import Agent
from fedbo.agent.settings import Settings
from fedbo.cli import checks, screen
from fedbo.files import FileRefused
from fedbo.insight.explain import Explanation, texts
from fedbo.table import Table

_ROWS = 12  # shown of a long table
_USUAL = Path("federation.toml")


def explain(
    agent_file: Annotated[
        Path | None,
        typer.Argument(help="A file written by Agent.save; leave it out for a stored study."),
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="Where the study is stored, such as sqlite:///site.db.")
    ] = None,
    study: Annotated[str | None, typer.Option(help="The name of the study.")] = None,
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
            "fedbo_paper.preset:PAPER. A file holds only fedbo's own, and a study none.",
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
    """Show where an agent's queries came from, and how many trials its peers saved.

    The agent is in a file, or it is the agent of a study: give --storage and --study, and the
    --federation that the study was run with. File and study are only read.
    """
    _check_source(agent_file, storage, study, federation)
    if plot is not None:
        checks.require("experiments", {"matplotlib": "matplotlib"})
        checks.writable("--plot", plot, checks.PICTURES)
    if csv is not None:
        checks.folder("--csv", csv)
    given = None if settings is None else _settings(settings)
    console = Console()
    try:
        if agent_file is not None:
            agent = _saved(agent_file, given)
        else:
            assert storage is not None and study is not None
            agent = _stored(storage, study, federation, given)
        with console.status("Replaying the trials without peers"):
            explanation = agent.explain(draws)
    except ValueError as error:  # the file or the study is refused, or there is no score
        checks.end(str(error))
    _report(console, explanation)
    if plot is not None:
        from fedbo.insight import figure

        figure.draw(explanation, plot)
        typer.echo(f"The figure is in {plot}.")
    if csv is not None:
        explanation.to_csv(csv)
        typer.echo(f"The tables are in {csv}.")


def _check_source(
    agent_file: Path | None, storage: str | None, study: str | None, federation: Path | None
) -> None:
    """Refuse anything but a file, or a storage with a study."""
    if agent_file is not None and (storage or study or federation):
        problem = "give a file, or --storage and --study, but not both"
        raise checks.refused(problem, "AGENT_FILE / --storage")
    if agent_file is None and storage is None:
        problem = "give a file that Agent.save wrote, or --storage and --study for a stored study"
        raise checks.refused(problem, "AGENT_FILE / --storage")
    if agent_file is None and study is None:
        raise checks.refused("give the name of the study in this storage", "--study")


def _saved(path: Path, settings: Settings | None) -> Agent:
    try:
        return Agent.load(path, settings=settings)
    except OSError as error:
        expected = "a file that Agent.save wrote"
        raise checks.unreadable("AGENT_FILE", path, error, expected) from None
    except FileRefused as error:
        hint = ""
        if "settings=..." in str(error):
            hint = " (here: --settings fedbo_paper.preset:PAPER)"
        elif "policy=..." in str(error):
            hint = "; then print(agent.explain()) in Python, because this command has no policy"
        checks.end(f"{error}{hint}")


def _stored(storage: str, name: str, federation: Path | None, settings: Settings | None) -> Agent:
    checks.require("optuna", {"optuna": "optuna"})
    from optuna import logging

    from fedbo.optuna import stored, studies

    logging.set_verbosity(logging.ERROR)
    agreed = None if federation is None else checks.federation("--federation", federation)
    found = studies.existing(storage, name)
    if federation is None and stored.had_federation(found) and _USUAL.exists():
        agreed = checks.federation("--federation", _USUAL)
    with caller.collect():  # what there is to say about the study was said when it ran
        return stored.stored_agent(found, agreed, settings)


def _settings(address: str) -> Settings:
    """Return the settings at ``package.module:name``, which may be in the current folder."""
    module, _, name = address.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        expected = "expected module:name, such as fedbo_paper.preset:PAPER"
        raise checks.refused(f"{address!r}: {error}; {expected}", "--settings") from None
    if not isinstance(found, Settings):
        raise checks.refused(f"{address} is {found!r}, expected a fedbo.Settings", "--settings")
    return found


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
