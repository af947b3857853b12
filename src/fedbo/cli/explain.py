"""``fedbo explain``: what a saved agent owes to its peers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbo.cli import checks


def explain(
    agent_file: Annotated[Path, typer.Argument(help="A file that Agent.save wrote.")],
    plot: Annotated[
        Path | None, typer.Option(help="Draw it into this file: .png, .pdf or .svg.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write the tables, every query too, into this folder.")
    ] = None,
    draws: Annotated[
        int, typer.Option(help="Replays that the estimate of trials saved is made of.", min=1)
    ] = 32,
) -> None:
    """Say where an agent's queries came from, what peers gave, and what that saved.

    It only reads the file: the agent goes on as if nothing had been asked.
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
        problem = f"{agent_file} cannot be read ({error.strerror}): give what Agent.save wrote"
        raise typer.BadParameter(problem, param_hint="AGENT_FILE") from None
    except ValueError as error:  # a file that is refused, an agent without scores
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    explain_screen.report(console, explanation)
    if plot is not None:
        from fedbo.insight import figure as explain_figure

        explain_figure.draw(explanation, plot)
        typer.echo(f"The picture is in {plot}.")
    if csv is not None:
        explanation.to_csv(csv)
        typer.echo(f"The tables are in {csv}.")
