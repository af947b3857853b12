"""The tables of a hub's database. None of them has a place for a trial.

`docs/hub.md` says what each column is for; a test holds it to that. `fedbo.hub.migrations` creates
and changes the tables.

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
)

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

operator = Table(
    "operator",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("token", LargeBinary, nullable=False, unique=True),  # its hash
    Column("created", _Time, nullable=False),
    sqlite_autoincrement=True,
)

federation = Table(
    "federation",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("name", String(63), nullable=False, unique=True),
    Column("epoch", Integer, nullable=False),  # the current one
    Column("cursor", BigInteger, nullable=False),  # of the last change
    Column("floor", BigInteger, nullable=False),  # removals up to this cursor are forgotten
    Column("created", _Time, nullable=False),
    Column("is_private", Boolean, nullable=False),  # its file has a privacy plan, in every epoch
    Column("is_unreconciled", Boolean, nullable=False),  # restored: there may be later releases
)

epoch = Table(
    "epoch",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("federation", ForeignKey("federation.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("file", Text, nullable=False),  # the federation file
    Column("created", _Time, nullable=False),
    UniqueConstraint("federation", "number"),
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
    Column("key", LargeBinary),  # the public key that signs its messages; NULL: they are unsigned
    Column("token", LargeBinary, unique=True),  # its hash; NULL: revoked
    Column("joined", _Time, nullable=False),
    Column("seen", _Time, nullable=False),
    UniqueConstraint("federation", "name"),
    sqlite_autoincrement=True,
)

message = Table(
    "message",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("federation", ForeignKey("federation.id"), nullable=False),
    Column("member", ForeignKey("member.id"), index=True),  # NULL: the member has left
    Column("epoch", Integer, nullable=False),
    Column("sender", String(64), nullable=False),
    Column("key", LargeBinary, nullable=False),  # empty if unsigned
    Column("sequence", BigInteger, nullable=False),
    Column("t_n", BigInteger, nullable=False),  # observations behind the message
    Column("is_out", Boolean, nullable=False),  # False: it was withdrawn or removed
    Column("content", LargeBinary, nullable=False),  # the message, its withdrawal, or empty
    Column("cursor", BigInteger, nullable=False),
    Column("changed", _Time, nullable=False),
    UniqueConstraint("federation", "epoch", "sender", "key"),
    Index("message_cursor", "federation", "epoch", "cursor"),
    sqlite_autoincrement=True,
)

release = Table(
    "release",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("federation", ForeignKey("federation.id"), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("sequence", Integer, nullable=False),  # from 1, in all epochs of the federation
    Column("members", Integer, nullable=False),  # whose contributions are in it
    Column("trials", BigInteger, nullable=False),  # behind these contributions
    Column("content", LargeBinary),  # the release; NULL: it was lost, but its cost was not
    Column("cursor", BigInteger, nullable=False),
    Column("time", _Time, nullable=False),
    UniqueConstraint("federation", "sequence"),
)

scalars = Table(
    "scalars",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("federation", ForeignKey("federation.id"), nullable=False),
    Column("member", ForeignKey("member.id"), nullable=False, index=True),
    Column("epoch", Integer, nullable=False),
    Column("sender", String(64), nullable=False),
    Column("content", LargeBinary, nullable=False),
    Column("changed", _Time, nullable=False),
    UniqueConstraint("federation", "epoch", "sender"),
)

progress = Table(
    "progress",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("federation", ForeignKey("federation.id"), nullable=False),
    Column("member", ForeignKey("member.id"), nullable=False, index=True),
    Column("sender", String(64), nullable=False),
    Column("trials", BigInteger, nullable=False),
    Column("best", Float(53)),  # the best score so far
    Column("saved", Float(53)),  # the site's own estimate of trials saved
    Column("changed", _Time, nullable=False),
    UniqueConstraint("federation", "sender"),
)

session = Table(
    "session",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("secret", LargeBinary, nullable=False, unique=True),  # the hash of the cookie
    Column("operator", ForeignKey("operator.id")),
    Column("member", ForeignKey("member.id"), index=True),
    Column("expires", _Time, nullable=False),
    sqlite_autoincrement=True,
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
