"""The command line: parses, calls, prints."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_EXPERIMENTS = {"sklearn": "scikit-learn", "matplotlib": "matplotlib", "joblib": "joblib"}
_PICTURES = (".png", ".pdf", ".svg")
_INTERRUPTED = 130  # what shells expect of a program that Ctrl-C ended


def _version(wanted: bool) -> None:
    if wanted:
        from fedbo import __version__

        typer.echo(f"fedbo {__version__}")
        raise typer.Exit


@app.callback()
def _fedbo(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Federated Bayesian optimisation: agents help one another without showing a trial."""


@app.command()
def demo(
    agents: Annotated[int, typer.Option(help="How many agents, from 2 to 24.")] = 10,
    trials: Annotated[
        int, typer.Option(help="Trials of each agent, the 3 initial points included.")
    ] = 25,
    repeats: Annotated[
        int, typer.Option(help="How often all of it is run, for standard errors.")
    ] = 10,
    seed: Annotated[
        int, typer.Option(help="Decides everything random: the same seed, the same outcome.")
    ] = 0,
    jobs: Annotated[int, typer.Option(help="How many processes work at once.", min=1)] = 2,
    out: Annotated[Path, typer.Option(help="The picture: .png, .pdf or .svg.")] = Path(
        "fedbo-demo.png"
    ),
    csv: Annotated[Path | None, typer.Option(help="Write every trial to this file.")] = None,
) -> None:
    """Run a whole federation on this machine: its agents alone, and together."""
    _require("experiments", _EXPERIMENTS)
    _writable("--out", out, _PICTURES)
    if csv is not None:
        _writable("--csv", csv)
    from rich.console import Console

    from fedbo.experiments import demo_figure, demo_screen
    from fedbo.experiments.demo import Demo

    try:
        wanted = Demo(agents=agents, trials=trials, repeats=repeats, seed=seed)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    console = Console()
    outcome = demo_screen.run(console, wanted, jobs)
    if outcome.repeats:
        demo_screen.report(console, outcome)
        demo_figure.draw(outcome, out)
        typer.echo(f"The picture is in {out}.")
        if csv is not None:
            outcome.table.to_csv(csv)
            typer.echo(f"Every trial is in {csv}.")
    if outcome.repeats < wanted.repeats:
        raise typer.Exit(_INTERRUPTED)


def _require(extra: str, modules: dict[str, str]) -> None:
    """End with a sentence that helps if one of the extra's packages is not installed."""
    missing = [package for module, package in modules.items() if find_spec(module) is None]
    if missing:
        typer.echo(
            f"This needs {' and '.join(missing)}, which fedbo does not bring along by itself: "
            f"pip install 'fedbo[{extra}]'",
            err=True,
        )
        raise typer.Exit(1)


def _writable(option: str, path: Path, endings: tuple[str, ...] = ()) -> None:
    """Refuse, before any work is done, a path that cannot be written to."""
    folder = path.absolute().parent
    if endings and path.suffix.lower() not in endings:
        problem = f"{path} ends in {path.suffix!r}, expected one of {', '.join(endings)}"
    elif path.is_dir():
        problem = f"{path} is a folder, expected a file"
    elif not folder.is_dir():
        problem = f"the folder {folder} does not exist: make it first"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        problem = f"{path} cannot be written: permission denied"
    else:
        return
    raise typer.BadParameter(problem, param_hint=option)
