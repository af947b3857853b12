"""``fedbo data``: what data there is, and where to get what there is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from fedbo_paper.data import DataSet
    from fedbo_paper.data.fetch import Report

app = typer.Typer(no_args_is_help=True, help="Show or fetch the real data of the experiments.")

_INTERRUPTED = 130  # what shells expect of a program that Ctrl-C ended

_Folder = Annotated[
    Path | None,
    typer.Option("--data", help="The data folder; else FEDBO_DATA, else the user's cache folder."),
]


@app.command()
def status(folder: _Folder = None) -> None:
    """Show which data sets are there, and whether they are what they should be."""
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
    console.print("Looked in " + " and in ".join(map(str, folders(folder))), soft_wrap=True)
    console.print(table)
    for remark in remarks:
        console.print(remark, markup=False, highlight=False, soft_wrap=True)


def _state(name: str, data_set: DataSet, folder: Path | None) -> tuple[list[str], str]:
    """A data set's cells in the table, and what is to be said below it."""
    from fedbo.files import FileRefused
    from fedbo_paper.data import MissingData, look

    try:
        people = data_set.load(folder)
    except MissingData as error:
        return ["", "", "", "", "not found"], str(error)
    except (FileRefused, OSError) as error:
        return ["", "", "", "failed", str(look(data_set.names, folder))], f"{name}: {error}"
    rows, features = sum(map(len, people)), people[0].X.shape[1]
    where = str(look(data_set.names, folder))
    return [f"{len(people)} {data_set.agents}", f"{rows:,}", f"{features}", "passed", where], ""


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="landmine, har or gleam.")],
    folder: _Folder = None,
) -> None:
    """Download a data set from the address that the paper gives, and verify it."""
    from rich.console import Console

    from fedbo.files import FileRefused
    from fedbo_paper.data import DATA_SETS, folders, look

    if name not in DATA_SETS:
        raise typer.BadParameter(f"{name!r} is no data set, expected {', '.join(DATA_SETS)}")
    data_set, console = DATA_SETS[name], Console()
    target = folders(folder)[0] / data_set.file
    there = look(data_set.names, target.parent)
    if there is None:
        there = target
        _download(console, name, data_set, target)
    try:
        with console.status(f"Reading {there}"):
            people = data_set.load(target.parent)
    except (FileRefused, OSError) as error:
        _say(f"{name} is there, but cannot be used: {error}")
        raise typer.Exit(1) from None
    typer.echo(
        f"{name} is in {there}: {len(people)} {data_set.agents}, {sum(map(len, people)):,} rows."
    )


def _download(console: Console, name: str, data_set: DataSet, target: Path) -> None:
    """Download, or end the program with a sentence that says why not, and what can be done."""
    from fedbo_paper.data.fetch import FetchFailed, download

    typer.echo(f"Downloading {data_set.address}")
    try:
        with _progress(console, target.name) as report:
            download(data_set.address, target, data_set.verify, report)
    except KeyboardInterrupt:
        _say("Stopped: nothing of it was kept.")
        raise typer.Exit(_INTERRUPTED) from None
    except FetchFailed as error:
        _say(
            f"{name} was not fetched: {error}.\nBy hand: get it from {data_set.address}, or from "
            f"wherever it is now, and put {data_set.by_hand} into {target.parent.absolute()}."
        )
        raise typer.Exit(1) from None


@contextmanager
def _progress(console: Console, what: str) -> Iterator[Report]:
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task(what, total=None)

        def report(received: int, total: int | None) -> None:
            bars.update(bar, completed=received, total=total)

        yield report


def _say(text: str) -> None:
    typer.echo(text, err=True)
