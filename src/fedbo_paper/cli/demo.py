"""``fedbo demo``: a whole federation on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbo.cli import checks
from fedbo_paper.cli.reproduce import PACKAGES


def demo(
    agents: Annotated[int, typer.Option(help="Number of sites, 2 to 24, a process each.")] = 10,
    trials: Annotated[
        int, typer.Option(help="Trials of each site, including its initial points.")
    ] = 15,
    repeats: Annotated[
        int, typer.Option(help="How often everything is repeated, for the intervals.")
    ] = 20,
    seed: Annotated[
        int, typer.Option(help="Random seed: the same seed gives the same result.")
    ] = 0,
    out: Annotated[Path, typer.Option(help="The figure to write: .png, .pdf or .svg.")] = Path(
        "fedbo-demo.png"
    ),
    csv: Annotated[Path | None, typer.Option(help="Write every trial to this file.")] = None,
    browser: Annotated[bool, typer.Option(help="Open the hub's page in a browser.")] = False,
    stay: Annotated[
        bool, typer.Option("--stay", help="Keep the hub and its page running until Ctrl-C.")
    ] = False,
) -> None:
    """Run a hub and its members on this machine, and compare them alone and together."""
    checks.require("experiments", PACKAGES)
    checks.require("hub", {"fastapi": "fastapi", "sqlalchemy": "sqlalchemy", "httpx": "httpx"})
    checks.writable("--out", out, checks.PICTURES)
    if csv is not None:
        checks.writable("--csv", csv)
    from rich.console import Console

    from fedbo_paper.demo import figure, screen
    from fedbo_paper.demo.demo import Demo
    from fedbo_paper.demo.processes import ProcessFailed
    from fedbo_paper.demo.run import on_stage

    try:
        wanted = Demo(agents=agents, trials=trials, repeats=repeats, seed=seed)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    console = Console()
    try:
        with on_stage(console, wanted) as show:
            outcome = show.play(browser=browser)
            if outcome.repeats:
                screen.report(console, outcome)
                figure.draw(outcome, out)
                typer.echo(f"The figure is in {out}.")
                if csv is not None:
                    outcome.table.to_csv(csv)
                    typer.echo(f"Every trial is in {csv}.")
            if stay and outcome.repeats == wanted.repeats:
                show.stay()
    except ProcessFailed as error:
        checks.end(str(error))
    if outcome.repeats < wanted.repeats:
        raise typer.Exit(checks.INTERRUPTED)
