"""``fedbo explain``: what a saved agent owes to its peers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fedbo.agent import Agent
from fedbo.cli import checks, screen
from fedbo.insight.explain import Explanation, texts
from fedbo.table import Table

_ROWS = 12  # shown of a long table


def explain(
    agent_file: Annotated[Path, typer.Argument(help="A file written by Agent.save.")],
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

    The file is only read; the agent in it does not change.
    """
    if plot is not None:
        checks.require("experiments", {"matplotlib": "matplotlib"})
        checks.writable("--plot", plot, checks.PICTURES)
    if csv is not None:
        checks.folder("--csv", csv)
    console = Console()
    try:
        agent = Agent.load(agent_file)
        with console.status("Replaying the trials without peers"):
            explanation = agent.explain(draws)
    except OSError as error:
        expected = "a file that Agent.save wrote"
        raise checks.unreadable("AGENT_FILE", agent_file, error, expected) from None
    except ValueError as error:  # the file is refused, or the agent has no scores
        checks.end(str(error))
    _report(console, explanation)
    if plot is not None:
        from fedbo.insight import figure

        figure.draw(explanation, plot)
        typer.echo(f"The figure is in {plot}.")
    if csv is not None:
        explanation.to_csv(csv)
        typer.echo(f"The tables are in {csv}.")


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
