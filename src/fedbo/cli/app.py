"""The command line: mounts the commands of fedbo and those that other packages register.

A package adds commands by an entry point of the group ``fedbo.commands``: a function becomes the
command of that name, a `typer.Typer` a group of commands.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated

import typer

from fedbo.cli import explain, federation, join, ledger  # light: load the rest when asked

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(federation.app, name="federation")
app.command()(join.join)
app.command()(ledger.ledger)
app.command()(explain.explain)
for _entry in sorted(entry_points(group="fedbo.commands"), key=lambda entry: entry.name):
    _command = _entry.load()
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_entry.name)
    else:
        app.command(_entry.name)(_command)


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
