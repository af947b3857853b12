"""``fedbo federation``: create and show the file that all sites agree on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedbo.cli import checks

if TYPE_CHECKING:
    from fedbo.space import Direction, Space

app = typer.Typer(no_args_is_help=True, help="Create or show the file that all sites agree on.")


@app.command()
def new(
    out: Annotated[Path, typer.Argument(help="The file to write.")] = Path("federation.toml"),
    from_study: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="STORAGE NAME", help="Take the space from the finished trials of this study."
        ),
    ] = None,
    from_space: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take the space from this TOML file.")
    ] = None,
    features: Annotated[
        int,
        typer.Option(help="How many random features sites share; more are more precise.", min=1),
    ] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the shared features.", min=0)] = 0,
    kind: Annotated[
        Literal["weights", "belief", "belief+incumbent"],
        typer.Option(
            help="What sites send: weights (for PTS and FTS), belief (RGPE) or belief+incumbent "
            "(TAF)."
        ),
    ] = "weights",
    direction: Annotated[
        Literal["maximize", "minimize"] | None,
        typer.Option(
            help="Direction of the score, if the file of --from-space does not say; maximize by "
            "default."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Create the file that every site of a federation needs.

    From a study: fedbo federation new --from-study sqlite:///site.db my-study

    From a file: fedbo federation new --from-space space.toml, where the file has one table for each
    parameter, or is the [space] part of another federation file:

    \b
      direction = "minimize"
      C = { type = "float", low = 1e-4, high = 10.0, log = true }
      depth = { type = "int", low = 1, high = 8 }
      kernel = { type = "categorical", choices = ["rbf", "linear"] }
    """
    if (from_study is None) == (from_space is None):
        raise checks.refused("give exactly one of the two", "--from-study / --from-space")
    if from_study is not None and direction is not None:
        raise checks.refused("the study has a direction: leave this option out", "--direction")
    checks.writable("OUT", out)
    if out.exists() and not force:
        problem = (
            f"{out} exists, and sites may rely on it: choose another name, or overwrite it with "
            "--force"
        )
        raise checks.refused(problem, "OUT")
    from rich.console import Console

    from fedbo.cli import federation_screen
    from fedbo.federation import Federation

    left_out: list[str] = []
    try:
        if from_study is not None:
            space, left_out = _space_of_study(*from_study)
        else:
            assert from_space is not None
            space = _space_in_file(from_space, direction)
        federation = Federation(space, features=features, seed=seed, kind=kind)
        federation.save(out)
    except (ValueError, OSError) as error:
        checks.end(str(error))
    console = Console()
    federation_screen.report(console, federation, out)
    federation_screen.next_steps(console, out, left_out)


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="The federation file.")] = Path("federation.toml"),
) -> None:
    """Show what a federation file says, and what a site that joins will send."""
    from rich.console import Console

    from fedbo.cli import federation_screen

    federation_screen.report(Console(), checks.federation("FILE", file), file)


def _space_in_file(path: Path, direction: Direction | None) -> Space:
    from fedbo.cli import space_file

    try:
        return space_file.read(path, direction)
    except OSError as error:
        problem = f"{path} cannot be read ({error.strerror})"
        raise checks.refused(problem, "--from-space") from None


def _space_of_study(storage: str, name: str) -> tuple[Space, list[str]]:
    checks.require("optuna", {"optuna": "optuna"})
    from fedbo.optuna.studies import space_of

    return space_of(storage, name)
