"""``fedbo reproduce``: the paper's experiments."""

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
        typer.Option(help="One experiment of it: landmine, glass, har, agents, ..."),
    ] = None,
    preset: Annotated[
        Literal["paper", "default", "both"],
        typer.Option(help="The paper's settings, the library's own, or one after the other."),
    ] = "paper",
    quick: Annotated[
        bool, typer.Option("--quick", help="A small part, to see that everything works.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(help="How many processes work at once; all cores.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides everything random.", min=0)] = 0,
    maximiser: Annotated[
        Literal["refine", "direct"] | None,
        typer.Option(
            help="What maximises: refine, but for published, which has the paper's DIRECT."
        ),
    ] = None,
    scoring: Annotated[
        Literal["decision", "probability"] | None,
        typer.Option(help="Landmine: AUC of decision values, or the paper's noisy probabilities."),
    ] = None,
    box: Annotated[
        Literal["linear", "log"] | None, typer.Option(help="Scale of the searched ranges.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Of the logistic regressions (glass, har).", min=1)
    ] = None,
    stand_in: Annotated[
        bool, typer.Option("--stand-in", help="Glass: made-up data instead of the real.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="Where the data lie; else FEDBO_DATA, else the cache.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="A folder for tables, pictures and the report; it collects.")
    ] = Path("results"),
) -> None:
    """Run the paper's experiments, and say which of its claims hold.

    What is finished is kept in the folder: a command that was stopped goes on where it was, and
    figures and presets that were run one after the other meet in one report.
    """
    extras.require()
    checks.folder("--out", out)
    from concurrent.futures import BrokenExecutor

    from joblib import cpu_count
    from rich.console import Console

    from fedbo.files import FileRefused
    from fedbo_paper.cli import reproduce_screen as screen
    from fedbo_paper.data import MissingData
    from fedbo_paper.experiments.reproduce import wanted
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
            f"A process died, maybe for want of memory ({error}). What is finished is kept: the "
            "same command goes on from here; fewer --jobs need less memory.",
            err=True,
        )
        raise typer.Exit(1) from None
    if outcome is None:
        raise typer.Exit(checks.INTERRUPTED)
    screen.report(console, outcome, selections)
