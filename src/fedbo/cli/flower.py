"""``fedbo flower``: a Flower app of one's own."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fedbo.agent.agent import Agent
from fedbo.cli import checks, screen
from fedbo.state import state_folder

app = typer.Typer(no_args_is_help=True, help="Run a federation on Flower.")


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="A folder that is new or empty.")],
) -> None:
    """Write a Flower app that runs as it stands, to be filled with your own objective."""
    from fedbo.flower.new import write_app

    package = write_app(folder)[-1].parent.name
    screen.say(
        f"{folder} has a Flower app now. What a node evaluates is in {package}/objective.py. It "
        "runs as it stands, with ten simulated nodes:"
    )
    app_path = shlex.quote(str(folder))
    screen.copied(f'flwr run {app_path} --stream --federation-config "num-supernodes=10"')


@app.command()
def sites(
    folder: Annotated[
        Path | None, typer.Argument(help="Where to look; by default fedbo's own folder for Flower.")
    ] = None,
) -> None:
    """List the agents of sites in a folder: their trials, and the best one of each."""
    place = state_folder() / "flower" if folder is None else folder
    rows = []
    for path in sorted(place.rglob("agent.fedbo")):
        agent = Agent.load(path)
        failed = sum(trial.state == "failed" for trial in agent.trials)
        score, at = "", ""
        if agent.best is not None:
            score = f"{agent.best.score:.6g}"
            at = ", ".join(f"{name} = {value!r}" for name, value in agent.best.params.items())
        rows.append((agent.name, len(agent.trials), failed, score, at))
    if not rows:
        checks.end(f"{place} has no agent.fedbo in it: name the folder")
    screen.table(("site", "trials", "failed", "best score", "at"), rows)
