"""``fedbo hub``: the commands to run a hub, to manage it, and to be a member of one.

Those that manage it work on its database, whether it is running or not.
"""

from __future__ import annotations

import typer

from fedbo.cli import hub_manage, hub_member, hub_release, hub_serve

_MEMBER = "For members"

app = typer.Typer(no_args_is_help=True, help="Run a hub, manage it, or be a member of one.")
app.command()(hub_serve.serve)
app.command()(hub_manage.create)
app.command()(hub_manage.update)
app.command()(hub_manage.delete)
app.command()(hub_manage.invite)
app.command()(hub_manage.invitations)
app.command()(hub_manage.members)
app.command()(hub_manage.revoke)
app.command()(hub_manage.remove)
app.command()(hub_manage.admit)
app.command()(hub_release.release)
app.command()(hub_release.releases)
app.command()(hub_manage.audit)
app.command()(hub_manage.prune)
app.command()(hub_serve.backup)
app.command()(hub_serve.restore)
app.command()(hub_serve.upgrade)
app.command(rich_help_panel=_MEMBER)(hub_member.memberships)
app.command(rich_help_panel=_MEMBER)(hub_member.rotate)
app.command(rich_help_panel=_MEMBER)(hub_member.rekey)
app.command(rich_help_panel=_MEMBER)(hub_member.leave)
