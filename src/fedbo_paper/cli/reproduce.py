"""The command ``fedbo reproduce``: the paper's experiments, their progress, and the verdicts."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from fedbo.cli import checks

if TYPE_CHECKING:
    from rich.console import Console

    from fedbo.table import Table
    from fedbo_paper.experiments.runner import Progress, RunCalls
    from fedbo_paper.reproduce import Outcome

_COLOURS = {"holds": "green", "does not hold": "red", "not decided": "yellow"}
_DP = {"dp_accounting": "dp-accounting"}

#: The packages that the experiments need, but the library does not.
PACKAGES = {"sklearn": "scikit-learn", "matplotlib": "matplotlib", "joblib": "joblib"}


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="fig1, fig2, fig3, fig4, appendix, published; dp for DP-FTS-DE; or all of these."
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
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run jobs on the Dask cluster with this scheduler, such as tcp://10.0.0.1:8786, "
            "instead of processes of this machine.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0)] = 0,
    seeds: Annotated[
        int | None,
        typer.Option(help="dp, all: number of seeds of dp; --seed is the first of them.", min=1),
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
        typer.Option(help="Folder for tables, figures, the report and finished work."),
    ] = Path("results"),
) -> None:
    """Run the paper's experiments and report which of its claims hold.

    Finished work is kept in the output folder: an interrupted command resumes where it stopped, and
    a command that needs more runs only the rest.
    """
    checks.require("experiments", PACKAGES)
    if scheduler is not None:
        checks.require("cluster", {"distributed": "distributed"})
    checks.folder("--out", out)
    data = None if data is None else data.absolute()  # workers may be in other folders
    made_up = stand_in or None
    compare = partial(
        _compare, quick, seeds, scheduler, jobs, seed, scoring or "decision", data, out
    )
    if name == "dp":
        others = {"--only": only, "--maximiser": maximiser, "--box": box, "--epochs": epochs}
        others |= {"--preset": preset == "default" or None, "--stand-in": made_up}
        _refuse("dp", others)
        checks.require("privacy", _DP)
        compare()
        return
    has_dp = name == "all" and only is None
    if has_dp:
        checks.require("privacy", _DP)  # before hours of work
    else:
        _refuse(name, {"--seeds": seeds})
    from rich.console import Console

    from fedbo_paper.experiments.spec import PRESETS, wanted
    from fedbo_paper.reproduce import reproduce as run

    options = {"scoring": scoring, "box": box, "epochs": epochs, "stand_in": made_up}
    try:
        selections = wanted(
            name,
            only=only,
            presets=PRESETS if preset == "both" else (preset,),
            quick=quick,
            seed=seed,
            maximiser=maximiser,
            problem={key: value for key, value in options.items() if value is not None},
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    console = Console()
    work = partial(run, selections, out, data=data, command=_command())
    outcome = _run(console, scheduler, jobs, work)
    _report(console, outcome, out)
    if quick:
        console.print("With --quick, runs only show that everything works: no claim is judged.")
    if has_dp and "landmine" in outcome.missing:
        console.print("Skipped: dp, which needs the landmine data too.")
    elif has_dp:
        console.print("Now dp: landmine in the linear box, with settings of its own.")
        compare()


def _command() -> str:
    return shlex.join(["fedbo", *sys.argv[1:]])


def _compare(
    quick: bool,
    seeds: int | None,
    scheduler: str | None,
    jobs: int | None,
    seed: int,
    scoring: Literal["decision", "probability"],
    data: Path | None,
    out: Path,
) -> None:
    """Compare DP-FTS-DE with its relatives and with one private release."""
    from rich.console import Console

    from fedbo_paper.dp import comparison, results
    from fedbo_paper.problems.problems import Landmine

    asked = comparison.Comparison(problem=Landmine(scoring=scoring), first_seed=seed)
    if quick:
        asked = comparison.quick(asked)
    if seeds is not None:
        asked = msgspec.structs.replace(asked, seeds=seeds)
    console = Console()
    work = partial(results.reproduce, asked, out, data=data, command=_command())
    summary = _run(console, scheduler, jobs, work)
    console.print(results.shown(summary))
    console.print(
        f"{asked.seeds} seeds, digest {results.digest(summary)}. "
        f"The report is in {out / 'dp.html'}.",
        soft_wrap=True,
    )


def _refuse(name: str, options: Mapping[str, object]) -> None:
    """Refuse options that were given and that this experiment does not have."""
    if given := [option for option, value in options.items() if value is not None]:
        raise typer.BadParameter(f"{', '.join(given)}: not an option of {name}; leave it out")


def _run(
    console: Console, scheduler: str | None, jobs: int | None, work: Callable[..., Any]
) -> Any:
    """Work with a progress bar; end the program with a sentence if it cannot be done."""
    from concurrent.futures import BrokenExecutor

    from fedbo.errors import FileRefused
    from fedbo_paper.data import MissingData
    from fedbo_paper.harness import workers

    try:
        with _runner(console, scheduler, jobs) as run, _watching(console) as progress:
            return work(run=run, progress=progress)
    except KeyboardInterrupt:
        workers.stop()
        console.print("Stopped. Finished work is kept: run the same command to resume.")
        raise typer.Exit(checks.INTERRUPTED) from None
    except (MissingData, FileRefused, OSError, workers.WorkersFailed) as error:
        checks.end(str(error))
    except BrokenExecutor as error:
        checks.end(
            f"A process ended unexpectedly, perhaps because memory ran out ({error}). Finished "
            "work is kept: run the same command to resume. Fewer --jobs need less memory."
        )


@contextmanager
def _runner(console: Console, scheduler: str | None, jobs: int | None) -> Iterator[RunCalls]:
    """What runs jobs: processes of this machine, or a cluster."""
    from fedbo_paper.harness import workers

    if scheduler is None:
        yield partial(workers.run, jobs=jobs)
        return
    from fedbo_paper.harness.cluster import connected

    with connected(scheduler) as cluster:
        console.print(f"{cluster.name}: {len(cluster.threads())} workers.", soft_wrap=True)
        yield partial(cluster.run, jobs=jobs)


@contextmanager
def _watching(console: Console) -> Iterator[Progress]:
    """A bar for each stage."""
    from rich.progress import TaskID

    from fedbo_paper.harness import screen

    bars = screen.bars(console)
    stages: dict[str, TaskID] = {}

    def show(stage: str, done: int, of: int) -> None:
        if of and stage not in stages:
            stages[stage] = bars.add_task(stage, total=of, completed=done)
        elif of:
            bars.update(stages[stage], completed=done)

    with bars:
        yield show


def _show_published(console: Console, comparison: Table) -> None:
    """Print how far our means are from the published ones, in standard errors."""
    from fedbo_paper.experiments.published import COMPARED
    from fedbo_paper.harness import screen

    title = "fedbo less published, in standard errors of the difference; seconds an iteration"
    table = screen.table("method", *map(str, COMPARED), "here", "there", title=title)
    arms = dict.fromkeys(zip(comparison["method"].tolist(), comparison["M"].tolist(), strict=True))
    for method, M in arms:
        arm = comparison.where(method=method, M=M)
        cells = [f"{distance:+.1f}" for distance in arm["distance"].tolist()]
        seconds = [f"{arm[name][0]:.3g}" for name in ("seconds", "published_seconds")]
        table.add_row(f"{method}, M = {M}" if M else method, *cells, *seconds)
    console.print(table)


def _report(console: Console, outcome: Outcome, out: Path) -> None:
    """Print the verdicts and the published comparison; effects and intervals are in the report."""
    from rich.text import Text

    from fedbo_paper.harness import screen

    for why in outcome.missing.values():
        console.print(Text(f"Skipped: {why}", style="yellow"))
    table = screen.table()
    for title in ("figure", "data", "preset", "verdict", "claim"):
        table.add_column(title, no_wrap=title != "claim")
    for finding in outcome.findings:
        verdict = Text(finding.verdict, style=_COLOURS.get(finding.verdict, ""))
        about = (finding.figure, finding.experiment, finding.preset)
        table.add_row(*about, verdict, finding.claim)
    if table.row_count:
        console.print(table)
    if outcome.comparison.height:
        _show_published(console, outcome.comparison)
    console.print(
        f"{outcome.runs.height:,} trials, digest {outcome.digest} (of everything but CPU times: "
        "the same command gives the same digest)."
    )
    console.print(f"The report is in {out / 'report.html'}.", soft_wrap=True)
