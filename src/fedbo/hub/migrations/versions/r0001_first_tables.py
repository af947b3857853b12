"""The first tables, and an audit log to which lines can only be added."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_Time = sa.Float(53)
_APPEND_ONLY = "the audit log is append-only"
_SQLITE = (
    "CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit "
    f"BEGIN SELECT RAISE(ABORT, '{_APPEND_ONLY}'); END",
    "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit "
    f"BEGIN SELECT RAISE(ABORT, '{_APPEND_ONLY}'); END",
    # INSERT OR REPLACE deletes a row without the trigger above
    "CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit "
    "WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id) "
    f"BEGIN SELECT RAISE(ABORT, '{_APPEND_ONLY}'); END",
)
_POSTGRESQL = (
    "CREATE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN RAISE EXCEPTION '{_APPEND_ONLY}'; END $$",
    "CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON audit "
    "FOR EACH ROW EXECUTE FUNCTION audit_append_only()",
    "CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit "
    "FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only()",
)


def upgrade() -> None:
    op.create_table(
        "hub",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("generation", sa.String(32), nullable=False),
        sa.Column("created", _Time, nullable=False),
    )
    op.create_table(
        "operator",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("name", sa.String(64), nullable=False, unique=True),
        sa.Column("token", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("created", _Time, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "federation",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("name", sa.String(63), nullable=False, unique=True),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("cursor", sa.BigInteger, nullable=False),
        sa.Column("floor", sa.BigInteger, nullable=False),
        sa.Column("created", _Time, nullable=False),
    )
    op.create_table(
        "epoch",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("federation", _Id, sa.ForeignKey("federation.id"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("fingerprint", sa.LargeBinary, nullable=False),
        sa.Column("file", sa.Text, nullable=False),
        sa.Column("created", _Time, nullable=False),
        sa.UniqueConstraint("federation", "number"),
    )
    op.create_table(
        "invitation",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("federation", _Id, sa.ForeignKey("federation.id"), nullable=False, index=True),
        sa.Column("secret", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("uses", sa.Integer, nullable=False),
        sa.Column("expires", _Time, nullable=False),
        sa.Column("created", _Time, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "member",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("federation", _Id, sa.ForeignKey("federation.id"), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("key", sa.LargeBinary),
        sa.Column("token", sa.LargeBinary, unique=True),
        sa.Column("joined", _Time, nullable=False),
        sa.Column("seen", _Time, nullable=False),
        sa.UniqueConstraint("federation", "name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "message",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("federation", _Id, sa.ForeignKey("federation.id"), nullable=False),
        sa.Column("member", _Id, sa.ForeignKey("member.id"), index=True),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("sender", sa.String(64), nullable=False),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("t_n", sa.BigInteger, nullable=False),
        sa.Column("is_out", sa.Boolean, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("cursor", sa.BigInteger, nullable=False),
        sa.Column("changed", _Time, nullable=False),
        sa.UniqueConstraint("federation", "epoch", "sender", "key"),
        sa.Index("message_cursor", "federation", "epoch", "cursor"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "scalars",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("federation", _Id, sa.ForeignKey("federation.id"), nullable=False),
        sa.Column("member", _Id, sa.ForeignKey("member.id"), nullable=False, index=True),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("sender", sa.String(64), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("changed", _Time, nullable=False),
        sa.UniqueConstraint("federation", "epoch", "sender"),
    )
    op.create_table(
        "progress",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("federation", _Id, sa.ForeignKey("federation.id"), nullable=False),
        sa.Column("member", _Id, sa.ForeignKey("member.id"), nullable=False, index=True),
        sa.Column("sender", sa.String(64), nullable=False),
        sa.Column("trials", sa.BigInteger, nullable=False),
        sa.Column("best", sa.Float(53)),
        sa.Column("saved", sa.Float(53)),
        sa.Column("changed", _Time, nullable=False),
        sa.UniqueConstraint("federation", "sender"),
    )
    op.create_table(
        "session",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("secret", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("operator", _Id, sa.ForeignKey("operator.id")),
        sa.Column("member", _Id, sa.ForeignKey("member.id"), index=True),
        sa.Column("expires", _Time, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "audit",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("time", _Time, nullable=False),
        sa.Column("federation", sa.String(63), nullable=False),
        sa.Column("actor", sa.String(80), nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("subject", sa.String(128), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Index("audit_time", "federation", "time"),
    )
    for statement in _SQLITE if op.get_context().dialect.name == "sqlite" else _POSTGRESQL:
        op.execute(statement)
