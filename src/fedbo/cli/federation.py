"""``fedbo federation``: the one file that agents agree on, made and explained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedbo.cli import checks

if TYPE_CHECKING:
    from fedbo.space import Direction, Space

app = typer.Typer(no_args_is_help=True, help="Make or explain the file that agents agree on.")


@app.command()
def new(
    out: Annotated[Path, typer.Argument(help="The file to write.")] = Path("federation.toml"),
    from_study: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="STORAGE NAME", help="Take the space of this Optuna study's finished trials."
        ),
    ] = None,
    from_space: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take the space that this TOML file has.")
    ] = None,
    features: Annotated[
        int, typer.Option(help="How many numbers stand for what a site believes.", min=1)
    ] = 100,
    seed: Annotated[int, typer.Option(help="Of the shared features.", min=0)] = 0,
    kind: Annotated[
        Literal["weights", "belief", "belief+incumbent"],
        typer.Option(
            help="What sites hand out: weights (PTS, FTS), belief (RGPE), belief+incumbent (TAF)."
        ),
    ] = "weights",
    direction: Annotated[
        Literal["maximize", "minimize"] | None,
        typer.Option(help="Of the score, where the file of --from-space says none; maximize."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
) -> None:
    """Write the one file that every site of a federation is given.

    From a study: fedbo federation new --from-study sqlite:///site.db my-study

    From a file: fedbo federation new --from-space space.toml, where the file is the space part of
    another federation file, or has a table for each parameter:

    \b
      direction = "minimize"
      C = { type = "float", low = 1e-4, high = 10.0, log = true }
      depth = { type = "int", low = 1, high = 8 }
      kernel = { type = "categorical", choices = ["rbf", "linear"] }
    """
    if (from_study is None) == (from_space is None):
        problem = "give one of them: the study, or the file, that has the space"
        raise typer.BadParameter(problem, param_hint="--from-study / --from-space")
    if from_study is not None and direction is not None:
        raise typer.BadParameter("a study has its own: leave it out", param_hint="--direction")
    checks.writable("OUT", out)
    if out.exists() and not force:
        problem = (
            f"{out} exists, and sites may rely on it: choose another name, or write over it with "
            "--force"
        )
        raise checks.refused(problem, "OUT")
    from rich.console import Console

    from fedbo.cli import federation_screen
    from fedbo.federation import Federation

    try:
        if from_space is not None:
            space, remarks = _of_file(from_space, direction), list[str]()
        else:
            assert from_study is not None
            space, remarks = _of_study(*from_study)
        federation = Federation(space, features=features, seed=seed, kind=kind)
        federation.save(out)
    except (ValueError, OSError) as error:
        checks.end(str(error))
    console = Console()
    federation_screen.report(console, federation, out)
    federation_screen.next_steps(console, out, remarks)


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="The federation file.")] = Path("federation.toml"),
) -> None:
    """Say what a federation file agrees on, and what leaves a site that joins."""
    from rich.console import Console

    from fedbo.cli import federation_screen

    federation_screen.report(Console(), checks.federation("FILE", file), file)


def _of_file(path: Path, direction: Direction | None) -> Space:
    from fedbo.cli import space_file

    try:
        return space_file.read(path, direction)
    except OSError as error:
        problem = f"{path} cannot be read ({error.strerror})"
        raise checks.refused(problem, "--from-space") from None


def _of_study(storage: str, name: str) -> tuple[Space, list[str]]:
    checks.require("optuna", {"optuna": "optuna"})
    from fedbo.optuna.from_study import space_of

    return space_of(storage, name)
