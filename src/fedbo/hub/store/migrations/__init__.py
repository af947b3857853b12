"""How the tables of a hub came to be: one step for each version, in `versions`.

A new database takes all steps, and an older one those that it lacks. The tables that they make are
those of `fedbo.hub.store.schema`; the triggers of the audit log are only here.
"""

from __future__ import annotations

from pathlib import Path

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from fedbo.hub.store.schema import VERSION


def migrate(connection: Connection, version: str = VERSION) -> None:
    """Take the steps up to a version, in the transaction of the caller."""
    steps = ScriptDirectory(str(Path(__file__).parent))
    context = MigrationContext.configure(connection)
    current = context.get_current_revision() or "base"
    with Operations.context(context):
        for step in reversed([*steps.iterate_revisions(version, current)]):
            step.module.upgrade()
    context.stamp(steps, version)
