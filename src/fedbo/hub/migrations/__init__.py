"""The revisions of a hub's tables, as alembic applies them.

Each file in ``versions`` leads from one revision to the next. A transaction applies all that are
missing, so a database has a known revision at any time, also after a crash.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from sqlalchemy import Connection, column, func, inspect, select, table

if TYPE_CHECKING:  # alembic takes a quarter of a second to import, and is seldom needed
    from alembic.config import Config

#: The table with the revision. Other programs in the same server have their own.
VERSION_TABLE = "fedbo_revision"
#: The revision that this fedbo works with: the last one in ``versions``.
NEWEST = "0002"
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
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.scalar(select(column("version_num")).select_from(table(VERSION_TABLE)))


def is_known(revision: str) -> bool:
    """Tell whether a revision is one of this fedbo's, and not of a newer one's."""
    if revision == NEWEST:
        return True
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(_config())
    return any(script.revision == revision for script in scripts.walk_revisions())


def upgrade(connection: Connection) -> None:
    """Bring the tables to the newest revision.

    Args:
        connection: In a transaction that writes, after `lock`.
    """
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    with _one_at_a_time:
        command.upgrade(config, "head")


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "fedbo.hub:migrations")
    return config
