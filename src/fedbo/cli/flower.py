"""``fedbo flower``: a Flower app of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fedbo.cli import checks, screen

_PLACES = ("", "*/", "*/*/", "*/*/*/")  # of agents, below a folder

app = typer.Typer(no_args_is_help=True, help="Run a federation on Flower.")


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="A folder that is new or empty.")],
) -> None:
    """Write a Flower app that runs as it stands, to be filled with your own objective."""
    checks.require("flower", {"flwr": "flwr"})
    from fedbo.flower.new import NotWritten, write_app

    try:
        written = write_app(folder)
    except (NotWritten, OSError) as error:
        checks.end(str(error))
    console = Console()
    package = written[-1].parent.name
    screen.say(console, f"{folder} has a Flower app now. What a node evaluates is in:")
    screen.say(console, f"  {package}/objective.py")
    screen.say(console, "It runs as it stands, with ten simulated nodes:")
    screen.say(console, f"  cd {folder}")
    screen.say(console, '  flwr run . --stream --federation-config "num-supernodes=10"')


@app.command()
def sites(
    folder: Annotated[
        Path | None, typer.Argument(help="Where to look; by default fedbo's own folder for Flower.")
    ] = None,
) -> None:
    """List the agents of sites in a folder: their trials, and the best one of each."""
    from fedbo.agent.agent import Agent
    from fedbo.state import state_folder

    place = state_folder() / "flower" if folder is None else folder
    paths = [path for pattern in _PLACES for path in sorted(place.glob(f"{pattern}agent.fedbo"))]
    if not paths:
        checks.end(f"{place} has no agent.fedbo in it or up to three levels below: name the folder")
    table = screen.grid("site", "trials", "failed", "best score", "at")
    for path in paths:
        try:
            agent = Agent.load(path)
        except (ValueError, OSError) as error:
            checks.end(str(error))
        failed = sum(trial.state == "failed" for trial in agent.trials)
        best = agent.best
        score = "" if best is None else f"{best.score:.6g}"
        at = "" if best is None else ", ".join(f"{k} = {_short(v)}" for k, v in best.params.items())
        cells = (agent.name, str(len(agent.trials)), str(failed), score, at)
        table.add_row(*(Text(screen.printable(cell)) for cell in cells))  # no markup
    screen.show(Console(), table)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
