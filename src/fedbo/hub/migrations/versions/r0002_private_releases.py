"""Federations with a privacy plan: their releases, and whether these are known after a restore."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    for name in ("is_private", "is_unreconciled"):  # no federation had a plan before
        column = sa.Column(name, sa.Boolean, nullable=False, server_default=sa.false())
        op.add_column("federation", column)
    op.create_table(
        "release",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("federation", _Id, sa.ForeignKey("federation.id"), nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("members", sa.Integer, nullable=False),
        sa.Column("trials", sa.BigInteger, nullable=False),
        sa.Column("content", sa.LargeBinary),
        sa.Column("cursor", sa.BigInteger, nullable=False),
        sa.Column("time", sa.Float(53), nullable=False),
        sa.UniqueConstraint("federation", "sequence"),
    )
