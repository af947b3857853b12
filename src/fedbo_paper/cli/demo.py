"""``fedbo demo``: a whole federation on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbo.cli import checks
from fedbo_paper.cli import extras


def demo(
    agents: Annotated[int, typer.Option(help="Number of agents, 2 to 24.")] = 10,
    trials: Annotated[
        int, typer.Option(help="Trials of each agent, including 3 initial points.")
    ] = 25,
    repeats: Annotated[
        int, typer.Option(help="How often everything is repeated, for standard errors.")
    ] = 10,
    seed: Annotated[
        int, typer.Option(help="Random seed: the same seed gives the same result.")
    ] = 0,
    jobs: Annotated[int, typer.Option(help="Number of processes.", min=1)] = 2,
    out: Annotated[Path, typer.Option(help="The figure to write: .png, .pdf or .svg.")] = Path(
        "fedbo-demo.png"
    ),
    csv: Annotated[Path | None, typer.Option(help="Write every trial to this file.")] = None,
) -> None:
    """Run a whole federation on this machine, and compare its agents alone and together."""
    extras.require()
    checks.writable("--out", out, checks.PICTURES)
    if csv is not None:
        checks.writable("--csv", csv)
    from rich.console import Console

    from fedbo_paper.demo import figure as demo_figure
    from fedbo_paper.demo import screen as demo_screen
    from fedbo_paper.demo.demo import Demo

    try:
        wanted = Demo(agents=agents, trials=trials, repeats=repeats, seed=seed)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    console = Console()
    outcome = demo_screen.run(console, wanted, jobs)
    if outcome.repeats:
        demo_screen.report(console, outcome)
        demo_figure.draw(outcome, out)
        typer.echo(f"The figure is in {out}.")
        if csv is not None:
            outcome.table.to_csv(csv)
            typer.echo(f"Every trial is in {csv}.")
    if outcome.repeats < wanted.repeats:
        raise typer.Exit(checks.INTERRUPTED)
