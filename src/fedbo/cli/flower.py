"""``fedbo flower``: a Flower app of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedbo.cli import checks, screen

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
