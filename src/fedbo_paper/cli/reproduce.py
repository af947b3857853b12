"""The command ``fedbo reproduce``: the paper's experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fedbo.cli import checks
from fedbo_paper.cli import extras


def reproduce(
    name: Annotated[
        str, typer.Argument(help="fig1, fig2, fig3, fig4, appendix, published, or all.")
    ],
    only: Annotated[
        str | None,
        typer.Option(help="Only one experiment of it: landmine, glass, har, agents, ..."),
    ] = None,
    preset: Annotated[
        Literal["paper", "default", "both"],
        typer.Option(help="The paper's settings, the library's own, or both."),
    ] = "paper",
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a small part only, to see that everything works.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Number of processes; one per core by default.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0)] = 0,
    maximiser: Annotated[
        Literal["refine", "direct"] | None,
        typer.Option(help="How maxima are found: refine by default, direct for published."),
    ] = None,
    scoring: Annotated[
        Literal["decision", "probability"] | None,
        typer.Option(
            help="Landmine: AUC of decision values, or of the paper's noisy probabilities."
        ),
    ] = None,
    box: Annotated[
        Literal["linear", "log"] | None,
        typer.Option(help="Scale on which parameters are searched."),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Training epochs of the logistic regressions (glass, har).", min=1),
    ] = None,
    stand_in: Annotated[
        bool, typer.Option("--stand-in", help="Glass: use made-up data instead of the real data.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="The data folder; FEDBO_DATA or the cache folder by default."),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(help="Folder for tables, figures and the report; later results are added."),
    ] = Path("results"),
) -> None:
    """Run the paper's experiments and report which of its claims hold.

    Finished work is kept in the output folder: an interrupted command resumes where it stopped, and
    figures and presets that are run one after the other appear in one report.
    """
    extras.require()
    checks.folder("--out", out)
    from concurrent.futures import BrokenExecutor

    from joblib import cpu_count
    from rich.console import Console

    from fedbo.files import FileRefused
    from fedbo_paper.cli import reproduce_screen as screen
    from fedbo_paper.data import MissingData
    from fedbo_paper.experiments.selection import wanted
    from fedbo_paper.experiments.spec import PRESETS

    given = {"scoring": scoring, "box": box, "epochs": epochs, "stand_in": stand_in or None}
    try:
        selections = wanted(
            [name],
            only=only,
            presets=PRESETS if preset == "both" else (preset,),
            quick=quick,
            seed=seed,
            maximiser=maximiser,
            problem={key: value for key, value in given.items() if value is not None},
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    console = Console()
    try:
        outcome = screen.run(console, selections, out, data, jobs or cpu_count())
    except (MissingData, FileRefused, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    except BrokenExecutor as error:
        typer.echo(
            f"A process ended unexpectedly, perhaps because memory ran out ({error}). Finished "
            "work is kept: run the same command to resume. Fewer --jobs need less memory.",
            err=True,
        )
        raise typer.Exit(1) from None
    if outcome is None:
        raise typer.Exit(checks.INTERRUPTED)
    screen.report(console, outcome, selections)
