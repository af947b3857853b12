"""``fedbo explain``: what a saved agent owes to its peers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbo.cli import checks


def explain(
    agent_file: Annotated[Path, typer.Argument(help="A file written by Agent.save.")],
    plot: Annotated[
        Path | None, typer.Option(help="Draw a figure into this file: .png, .pdf or .svg.")
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(help="Write all tables, with every query, into this folder."),
    ] = None,
    draws: Annotated[
        int,
        typer.Option(help="How many replays without peers the estimate is based on.", min=1),
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
    from rich.console import Console

    from fedbo.agent import Agent
    from fedbo.cli import explain_screen

    console = Console()
    try:
        agent = Agent.load(agent_file)
        with console.status("Replaying the trials without peers"):
            explanation = agent.explain(draws)
    except OSError as error:
        problem = (
            f"{agent_file} cannot be read ({error.strerror}): give a file that Agent.save wrote"
        )
        raise checks.refused(problem, "AGENT_FILE") from None
    except ValueError as error:  # the file is refused, or the agent has no scores
        checks.end(str(error))
    explain_screen.report(console, explanation)
    if plot is not None:
        from fedbo.insight import figure

        figure.draw(explanation, plot)
        typer.echo(f"The figure is in {plot}.")
    if csv is not None:
        explanation.to_csv(csv)
        typer.echo(f"The tables are in {csv}.")
