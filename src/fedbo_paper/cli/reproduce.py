"""The command ``fedbo reproduce``: the paper's experiments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from fedbo.cli import checks
from fedbo_paper.cli import extras
from fedbo_paper.cli.where import Where


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="fig1, fig2, fig3, fig4, appendix, published, or all of these; dp for DP-FTS-DE."
        ),
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
        int | None,
        typer.Option(help="Number of jobs at once; one per core or worker by default.", min=1),
    ] = None,
    backend: Annotated[
        Literal["processes", "dask", "ray"],
        typer.Option(help="Where jobs run: in processes of this machine, or on a cluster."),
    ] = "processes",
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="The cluster's address, such as tcp://10.0.0.1:8786 for Dask, or auto for Ray. "
            "Without one, Ray is started on this machine.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0)] = 0,
    seeds: Annotated[
        int | None, typer.Option(help="dp: number of seeds; --seed is the first of them.", min=1)
    ] = None,
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
        typer.Option(
            help="The data folder; FEDBO_DATA or the cache folder by default. Workers of a "
            "cluster use the same path."
        ),
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
    where = Where(backend, scheduler, jobs)
    where.check()
    data = None if data is None else data.absolute()  # workers may be in other folders
    if name == "dp":
        others = {"--only": only, "--maximiser": maximiser, "--box": box, "--epochs": epochs}
        others |= {"--preset": preset == "default" or None, "--stand-in": stand_in or None}
        _refuse("dp", others)
        _compare(quick, seeds, where, seed, scoring, data, out)
        return
    _refuse(name, {"--seeds": seeds})
    from rich.console import Console

    from fedbo_paper.cli import reproduce_screen as screen
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
    with _errors_as_sentences():
        outcome = screen.run(console, selections, out, data, where)
    if outcome is None:
        raise typer.Exit(checks.INTERRUPTED)
    screen.report(console, outcome, selections)


def _compare(
    quick: bool,
    seeds: int | None,
    where: Where,
    seed: int,
    scoring: Literal["decision", "probability"] | None,
    data: Path | None,
    out: Path,
) -> None:
    """Compare DP-FTS-DE with its relatives and with one private release."""
    extras.require_accountant()
    from rich.console import Console

    from fedbo_paper.cli import reproduce_screen as screen
    from fedbo_paper.dp import comparison
    from fedbo_paper.problems.problems import Landmine

    asked = comparison.Comparison(problem=Landmine(scoring=scoring or "decision"), first_seed=seed)
    if quick:
        asked = comparison.quick(asked)
    if seeds is not None:
        asked = msgspec.structs.replace(asked, seeds=seeds)
    console = Console()
    with _errors_as_sentences():
        outcome = screen.compare(console, asked, out, data, where)
    if outcome is None:
        raise typer.Exit(checks.INTERRUPTED)
    screen.report_comparison(console, outcome, out)


def _refuse(name: str, options: Mapping[str, object]) -> None:
    """Refuse options that were given and that this experiment does not have."""
    if given := [option for option, value in options.items() if value is not None]:
        raise typer.BadParameter(f"{', '.join(given)}: not an option of {name}; leave it out")


@contextmanager
def _errors_as_sentences() -> Iterator[None]:
    """End the program with a sentence if data or workers are missing, or a process is killed."""
    from concurrent.futures import BrokenExecutor

    from fedbo.files import FileRefused
    from fedbo_paper.data import MissingData
    from fedbo_paper.harness.workers import WorkersFailed

    try:
        yield
    except (MissingData, FileRefused, OSError, WorkersFailed) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    except BrokenExecutor as error:
        typer.echo(
            f"A process ended unexpectedly, perhaps because memory ran out ({error}). Finished "
            "work is kept: run the same command to resume. Fewer --jobs need less memory.",
            err=True,
        )
        raise typer.Exit(1) from None
