"""The program `fedbo`: its own commands, and those that other packages register.

A package registers a command by an entry point in the group ``fedbo.commands``: a function for one
command, or a `typer.Typer` for a group of commands. They are loaded only when needed.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from fedbo.cli import (
    checks,
    exchange,
    federation,
    flower,
    hub,
    identity,
    join,
    ledger,
    release,
    study,
)

#: In the order of --help.
_OWN = (
    "federation", "study", "join", "hub", "flower", "exchange", "release", "identity", "ledger",
)  # fmt: skip


class _Commands(TyperGroup):
    """Lists the commands of this package first, then those of others by name."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*_OWN, *sorted(_registered().keys() - {*_OWN})]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        entry = _registered().get(cmd_name)
        return own if own is not None or entry is None else _loaded(entry)

    def invoke(self, ctx: Any) -> Any:
        with checks.warnings_as_lines():
            try:
                return super().invoke(ctx)
            except (ValueError, OSError, ModuleNotFoundError) as error:
                if ctx.invoked_subcommand in _OWN:
                    checks.end_with(error)
                raise


def _registered() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group="fedbo.commands")}


def _loaded(entry: EntryPoint) -> Any:
    command, alone = entry.load(), typer.Typer(add_completion=False)
    if isinstance(command, typer.Typer):
        alone.add_typer(command, name=entry.name)
    else:
        alone.command(entry.name)(command)
    return get_group(alone).commands[entry.name]


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(federation.app, name="federation")
app.add_typer(study.app, name="study")
app.command()(join.join)
app.add_typer(hub.app, name="hub")
app.add_typer(flower.app, name="flower")
app.add_typer(exchange.app, name="exchange")
app.command()(release.release)
app.add_typer(identity.app, name="identity")
app.command()(ledger.ledger)


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
    """Federated Bayesian optimisation: sites help one another without sharing a trial."""
