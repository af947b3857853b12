"""``fedbo hub``: the commands to run a hub and to manage it.

Those that manage it work on its database, whether it is running or not.
"""

from __future__ import annotations

import typer

from fedbo.cli import hub_federation, hub_operator, hub_store

app = typer.Typer(no_args_is_help=True, help="Run a hub, and manage its federations and members.")
app.command()(hub_federation.create)
app.command()(hub_federation.invite)
app.command()(hub_federation.members)
app.command()(hub_federation.revoke)
app.command()(hub_federation.remove)
app.command()(hub_federation.epoch)
app.add_typer(hub_operator.app, name="operator")
app.command()(hub_store.audit)
app.command()(hub_store.backup)
app.command()(hub_store.restore)
