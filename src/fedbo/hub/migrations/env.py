"""What alembic runs to apply revisions: `fedbo.hub.migrations.upgrade` gives it a connection."""

from __future__ import annotations

from alembic import context

from fedbo.hub import schema
from fedbo.hub.migrations import VERSION_TABLE


def _apply() -> None:
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=schema.metadata,
        version_table=VERSION_TABLE,
    )
    with context.begin_transaction():
        context.run_migrations()


if hasattr(context, "config"):  # alembic runs it; it is not merely imported
    _apply()
