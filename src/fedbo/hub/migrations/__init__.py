"""The revisions of a hub's tables, as alembic applies them.

Each file in ``versions`` leads from one revision to the next. A transaction applies all that are
missing, so a database has a known revision at any time, also after a crash.
"""

from __future__ import annotations

import threading

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, select

#: The table with the revision. Other programs in the same server have their own.
VERSION_TABLE = "fedbo_revision"
_LOCK = 0x666564626F  # any number that other programs do not use
_one_at_a_time = threading.Lock()  # alembic has one context for the whole process


def lock(connection: Connection) -> None:
    """Keep other processes from changing the tables until the end of the transaction.

    Args:
        connection: In a transaction that writes.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))


def current(connection: Connection) -> str | None:
    """Return the revision of a database; None if it has none."""
    options = {"version_table": VERSION_TABLE}
    return MigrationContext.configure(connection, opts=options).get_current_revision()


def newest() -> str:
    """Return the revision that this fedbo works with."""
    return str(_scripts().get_current_head())


def is_known(revision: str) -> bool:
    """Tell whether a revision is one of this fedbo's, and not of a newer one's."""
    return any(script.revision == revision for script in _scripts().walk_revisions())


def upgrade(connection: Connection) -> None:
    """Bring the tables to the newest revision.

    Args:
        connection: In a transaction that writes, after `lock`.
    """
    config = _config()
    config.attributes["connection"] = connection
    with _one_at_a_time:
        command.upgrade(config, "head")


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "fedbo.hub:migrations")
    return config
