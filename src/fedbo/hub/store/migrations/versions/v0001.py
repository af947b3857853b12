"""The first tables, and the triggers that keep the audit log append-only."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.Float(precision=53)

_REFUSED = "the audit log is append-only"
_TRIGGERS = {
    "sqlite": (
        "CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit "
        f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END",
        "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit "
        f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END",
        # INSERT OR REPLACE deletes a row without the trigger above
        "CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit "
        "WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id) "
        f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END",
    ),
    "postgresql": (
        "CREATE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_REFUSED}'; END $$",
        "CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON audit "
        "FOR EACH ROW EXECUTE FUNCTION audit_append_only()",
        "CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only()",
    ),
}


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "audit",
        sa.Column("id", _ID, nullable=False),
        sa.Column("time", _TIME, nullable=False),
        sa.Column("federation", sa.String(length=63), nullable=False),
        sa.Column("actor", sa.String(length=80), nullable=False),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("subject", sa.String(length=128), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("audit_time", "audit", ["federation", "time"])
    op.create_table(
        "federation",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sa.Column("is_private", sa.Boolean(), nullable=False),
        sa.Column("is_restored", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "hub",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("generation", sa.String(length=32), nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "invitation",
        sa.Column("id", _ID, nullable=False),
        sa.Column("federation", _ID, nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.Column("expires", _TIME, nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["federation"], ["federation.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("secret"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_invitation_federation", "invitation", ["federation"])
    op.create_table(
        "member",
        sa.Column("id", _ID, nullable=False),
        sa.Column("federation", _ID, nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("nonce", sa.LargeBinary(), nullable=True),
        sa.Column("token", sa.LargeBinary(), nullable=True),
        sa.Column("joined", _TIME, nullable=False),
        sa.Column("seen", _TIME, nullable=False),
        sa.Column("is_suspended", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["federation"], ["federation.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("federation", "key"),
        sa.UniqueConstraint("federation", "name"),
        sa.UniqueConstraint("token"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "release",
        sa.Column("id", _ID, nullable=False),
        sa.Column("federation", _ID, nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("members", sa.Integer(), nullable=False),
        sa.Column("trials", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=True),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("time", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["federation"], ["federation.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("federation", "sequence"),
    )
    op.create_table(
        "message",
        sa.Column("id", _ID, nullable=False),
        sa.Column("federation", _ID, nullable=False),
        sa.Column("member", _ID, nullable=True),
        sa.Column("sender", sa.String(length=64), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("t_n", sa.BigInteger(), nullable=False),
        sa.Column("is_out", sa.Boolean(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("changed", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["federation"], ["federation.id"]),
        sa.ForeignKeyConstraint(["member"], ["member.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("federation", "sender", "key"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_message_member", "message", ["member"])
    op.create_index("message_cursor", "message", ["federation", "cursor"])
    for statement in _TRIGGERS[op.get_bind().dialect.name]:
        op.execute(statement)
