"""``fedbo data``: which data sets are here, and how to get the others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbo.cli import checks

if TYPE_CHECKING:
    from fedbo_paper.data import DataSet

app = typer.Typer(no_args_is_help=True, help="Show or download the data of the experiments.")

_Folder = Annotated[
    Path | None,
    typer.Option(
        "--data", help="The data folder; by default FEDBO_DATA, then the user's cache folder."
    ),
]


@app.command()
def status(folder: _Folder = None) -> None:
    """Show which data sets are here, and whether they are complete."""
    from rich.console import Console
    from rich.table import Table

    from fedbo_paper.data import DATA_SETS, folders

    console = Console()
    table = Table("data set", "agents", "rows", "features", "checks")
    table.add_column("where", overflow="fold")
    remarks = []
    for name, data_set in DATA_SETS.items():
        with console.status(f"Reading {name}"):
            cells, remark = _state(name, data_set, folder)
        table.add_row(name, *cells)
        remarks += [remark] if remark else []
    console.print("Searched " + " and ".join(map(str, folders(folder))), soft_wrap=True)
    console.print(table)
    for remark in remarks:
        console.print(remark, markup=False, highlight=False, soft_wrap=True)


def _state(name: str, data_set: DataSet, folder: Path | None) -> tuple[list[str], str]:
    """Return the cells of a data set in the table, and a remark to print below it."""
    from fedbo.errors import FileRefused
    from fedbo_paper.data import MissingData, look

    try:
        people = data_set.load(folder)
    except MissingData as error:
        return ["", "", "", "", "not found"], f"{name}: {error}"
    except (FileRefused, OSError) as error:
        return ["", "", "", "failed", str(look(data_set.NAMES, folder))], f"{name}: {error}"
    rows, features = sum(map(len, people)), people[0].X.shape[1]
    where = str(look(data_set.NAMES, folder))
    return [f"{len(people)} {data_set.AGENTS}", f"{rows:,}", f"{features}", "passed", where], ""


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="landmine, har or gleam.")],
    folder: _Folder = None,
) -> None:
    """Download a data set from the address in the paper, and verify it."""
    from fedbo.errors import FileRefused
    from fedbo_paper.data import DATA_SETS, folders, look

    if name not in DATA_SETS:
        raise checks.refused(f"{name!r} is not one of {', '.join(DATA_SETS)}", "NAME")
    data_set = DATA_SETS[name]
    target = folders(folder)[0] / data_set.ARCHIVE
    path = look(data_set.NAMES, target.parent)
    if path is None:
        path = target
        _download(name, data_set, target)
    try:
        people = data_set.load(target.parent)
    except (FileRefused, OSError) as error:
        checks.end(f"{name} is here, but cannot be used: {error}")
    typer.echo(
        f"{name} is in {path}: {len(people)} {data_set.AGENTS}, {sum(map(len, people)):,} rows."
    )


def _download(name: str, data_set: DataSet, target: Path) -> None:
    """Download, or end the program and say what went wrong and what to do."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from fedbo_paper.data.fetch import FetchFailed, download

    typer.echo(f"Downloading {data_set.ADDRESS}")
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    try:
        with Progress(*columns, transient=True) as bars:
            bar = bars.add_task(target.name, total=None)
            download(
                data_set.ADDRESS,
                target,
                data_set.verify,
                lambda received, total: bars.update(bar, completed=received, total=total),
            )
    except KeyboardInterrupt:
        typer.echo("Stopped. The incomplete file was removed.", err=True)
        raise typer.Exit(checks.INTERRUPTED) from None
    except FetchFailed as error:
        checks.end(
            f"{name} was not downloaded: {error}.\nTo do it by hand, get it from "
            f"{data_set.ADDRESS}, or from wherever it is now, and put {data_set.BY_HAND} into "
            f"{target.parent.absolute()}."
        )
