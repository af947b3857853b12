"""``fedbo hub``: the commands to run a hub, to manage it, and to be a member of one.

Those that manage it work on its database, whether it is running or not.
"""

from __future__ import annotations

import typer

from fedbo.cli import (
    hub_federation,
    hub_invitations,
    hub_member,
    hub_operator,
    hub_release,
    hub_serve,
    hub_store,
)

_MEMBER = "For members"

app = typer.Typer(no_args_is_help=True, help="Run a hub, manage it, or be a member of one.")
app.command()(hub_serve.serve)
app.command()(hub_federation.create)
app.command()(hub_federation.invite)
app.command()(hub_invitations.invitations)
app.command()(hub_federation.members)
app.command()(hub_federation.revoke)
app.command()(hub_federation.remove)
app.command()(hub_federation.epoch)
app.command()(hub_release.release)
app.command()(hub_release.releases)
app.command()(hub_release.reconcile)
app.add_typer(hub_operator.app, name="operator")
app.command()(hub_store.audit)
app.command()(hub_store.backup)
app.command()(hub_store.restore)
app.command(rich_help_panel=_MEMBER)(hub_member.memberships)
app.command(rich_help_panel=_MEMBER)(hub_member.rotate)
app.command(rich_help_panel=_MEMBER)(hub_member.rekey)
app.command(rich_help_panel=_MEMBER)(hub_member.leave)
