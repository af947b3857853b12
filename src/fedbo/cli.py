"""The command line: parses, calls, prints."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedbo.commands import checks, federation, join, releases  # light: load the rest when asked
from fedbo.experiments.data import commands as data_commands

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data_commands.app, name="data")
app.add_typer(federation.app, name="federation")
app.command()(join.join)
app.command()(releases.releases)

_EXPERIMENTS = {"sklearn": "scikit-learn", "matplotlib": "matplotlib", "joblib": "joblib"}
_PICTURES = (".png", ".pdf", ".svg")


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
    checks.writable("--out", out, _PICTURES)
    if csv is not None:
        checks.writable("--csv", csv)
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
        raise typer.Exit(checks.INTERRUPTED)


@app.command()
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
    _require("experiments", _EXPERIMENTS)
    checks.folder("--out", out)
    from concurrent.futures import BrokenExecutor

    from joblib import cpu_count
    from rich.console import Console

    from fedbo.experiments.data import MissingData
    from fedbo.experiments.paper import screen
    from fedbo.experiments.paper.reproduce import wanted
    from fedbo.experiments.paper.spec import PRESETS
    from fedbo.files import FileRefused

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


@app.command()
def explain(
    agent_file: Annotated[Path, typer.Argument(help="A file that Agent.save wrote.")],
    plot: Annotated[
        Path | None, typer.Option(help="Draw it into this file: .png, .pdf or .svg.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write the tables, every query too, into this folder.")
    ] = None,
    draws: Annotated[
        int, typer.Option(help="Replays that the estimate of trials saved is made of.", min=1)
    ] = 32,
) -> None:
    """Say where an agent's queries came from, what peers gave, and what that saved.

    It only reads the file: the agent goes on as if nothing had been asked.
    """
    if plot is not None:
        _require("experiments", {"matplotlib": "matplotlib"})
        checks.writable("--plot", plot, _PICTURES)
    if csv is not None:
        checks.folder("--csv", csv)
    from rich.console import Console

    from fedbo.agent import Agent
    from fedbo.experiments import explain_screen

    console = Console()
    try:
        agent = Agent.load(agent_file)
        with console.status("Replaying the trials without peers"):
            explanation = agent.explain(draws)
    except OSError as error:
        problem = f"{agent_file} cannot be read ({error.strerror}): give what Agent.save wrote"
        raise typer.BadParameter(problem, param_hint="AGENT_FILE") from None
    except ValueError as error:  # a file that is refused, an agent without scores
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    explain_screen.report(console, explanation)
    if plot is not None:
        from fedbo.experiments import explain_figure

        explain_figure.draw(explanation, plot)
        typer.echo(f"The picture is in {plot}.")
    if csv is not None:
        explanation.to_csv(csv)
        typer.echo(f"The tables are in {csv}.")


def _require(extra: str, modules: dict[str, str]) -> None:
    checks.require(extra, modules, find_spec)
