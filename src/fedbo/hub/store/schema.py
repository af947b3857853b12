"""The tables of a hub's database. None of them has a place for a trial.

`docs/reference/hub.md` says what each column is for; a test holds it to that.

Everything that a fetch can see has a cursor: a number that grows with every change in a federation.
It is taken while the federation's row is locked, so whoever has seen a cursor has seen everything
below it.

Rows that can be deleted and are known outside by their number never leave it to another row
(``sqlite_autoincrement``; PostgreSQL does so always).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    column,
    table,
)

#: The version of these tables, the last one of `fedbo.hub.store.migrations`.
VERSION = "0002"

metadata = MetaData()

#: SQLite numbers rows by itself only in a column of type INTEGER.
_Id = BigInteger().with_variant(Integer, "sqlite")
_Time = Float(53)  # seconds since 1970, UTC

hub = Table(
    "hub",
    metadata,
    Column("id", Integer, primary_key=True),  # always 1
    Column("generation", String(32), nullable=False),  # a new one after a restore: cursors restart
    Column("created", _Time, nullable=False),
)

#: Alembic's, which says of which version the tables are.
alembic_version = table("alembic_version", column("version_num", String(32)))

federation = Table(
    "federation",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("name", String(63), nullable=False, unique=True),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("file", Text, nullable=False),  # the federation file
    Column("cursor", BigInteger, nullable=False),  # of the last change
    Column("created", _Time, nullable=False),
    Column("is_private", Boolean, nullable=False),  # its file has a privacy plan
    Column("is_restored", Boolean, nullable=False),  # releases may be missing: none is made
    sqlite_autoincrement=True,
)

invitation = Table(
    "invitation",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("federation", ForeignKey("federation.id"), nullable=False, index=True),
    Column("secret", LargeBinary, nullable=False, unique=True),  # its hash
    Column("uses", Integer, nullable=False),  # how many are left
    Column("expires", _Time, nullable=False),
    Column("created", _Time, nullable=False),
    sqlite_autoincrement=True,
)

member = Table(
    "member",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("federation", ForeignKey("federation.id"), nullable=False),
    Column("name", String(64), nullable=False),
    Column("key", LargeBinary, nullable=False),  # the public key that signs its messages
    Column("nonce", LargeBinary),  # that the next change of the key has to name; NULL: none
    Column("token", LargeBinary, unique=True),  # its hash; NULL: revoked
    Column("joined", _Time, nullable=False),
    Column("seen", _Time, nullable=False),
    Column("is_suspended", Boolean, nullable=False),  # it was restored, and not admitted since
    UniqueConstraint("federation", "name"),
    UniqueConstraint("federation", "key"),
    sqlite_autoincrement=True,
)

session = Table(
    "session",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("member", ForeignKey("member.id"), nullable=False, index=True),
    Column("secret", LargeBinary, nullable=False, unique=True),  # its hash
    Column("expires", _Time, nullable=False),
    sqlite_autoincrement=True,
)

message = Table(
    "message",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("federation", ForeignKey("federation.id"), nullable=False),
    Column("member", ForeignKey("member.id"), index=True),  # NULL: the member has left
    Column("sender", String(64), nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("t_n", BigInteger, nullable=False),  # observations behind the message
    Column("is_out", Boolean, nullable=False),  # False: it was withdrawn or removed
    Column("content", LargeBinary, nullable=False),  # the message, its withdrawal, or empty
    Column("cursor", BigInteger, nullable=False),
    Column("changed", _Time, nullable=False),
    UniqueConstraint("federation", "sender", "key"),
    Index("message_cursor", "federation", "cursor"),
    sqlite_autoincrement=True,
)

release = Table(
    "release",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("federation", ForeignKey("federation.id"), nullable=False),
    Column("sequence", Integer, nullable=False),  # from 1
    Column("members", Integer, nullable=False),  # whose contributions are in it
    Column("trials", BigInteger, nullable=False),  # behind these contributions
    Column("content", LargeBinary),  # the release; NULL: it was lost, but its cost was not
    Column("cursor", BigInteger, nullable=False),
    Column("time", _Time, nullable=False),
    UniqueConstraint("federation", "sequence"),
)

audit = Table(
    "audit",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("time", _Time, nullable=False),
    Column("federation", String(63), nullable=False),  # its name; '' for the hub
    Column("actor", String(80), nullable=False),
    Column("action", String(32), nullable=False),
    Column("subject", String(128), nullable=False),
    Column("detail", Text, nullable=False),
    Index("audit_time", "federation", "time"),
)
_is_pruned = audit.c.action == "pruned"
Index("audit_pruned", audit.c.id, sqlite_where=_is_pruned, postgresql_where=_is_pruned)
