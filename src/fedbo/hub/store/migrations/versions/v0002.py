"""Sessions at the page, and an audit log of which old lines can be deleted."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.Float(precision=53)

_REFUSED = "the audit log is append-only"
#: A line can only be deleted if another one, which stays, says that all lines up to it are.
_STAYS = (
    "OLD.action = 'pruned' OR OLD.id > COALESCE("
    "(SELECT MAX(CAST(subject AS BIGINT)) FROM audit WHERE action = 'pruned'), 0)"
)
_TRIGGERS = {
    "sqlite": (
        "DROP TRIGGER audit_no_delete",
        f"CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit WHEN {_STAYS} "
        f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END",
    ),
    "postgresql": (
        "CREATE OR REPLACE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN IF TG_OP = 'DELETE' THEN IF NOT ({_STAYS}) THEN RETURN OLD; END IF; END IF; "
        f"RAISE EXCEPTION '{_REFUSED}'; END $$",
    ),
}


def upgrade() -> None:
    """Add the table of sessions, and let summarised lines of the audit log go."""
    op.create_index(
        "audit_pruned",
        "audit",
        ["id"],
        sqlite_where=sa.text("action = 'pruned'"),
        postgresql_where=sa.text("action = 'pruned'"),
    )
    op.create_table(
        "session",
        sa.Column("id", _ID, nullable=False),
        sa.Column("member", _ID, nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("expires", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["member"], ["member.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("secret"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_session_member", "session", ["member"])
    for statement in _TRIGGERS[op.get_bind().dialect.name]:
        op.execute(statement)
