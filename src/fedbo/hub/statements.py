"""Statements for many rows at once, given to the driver of the database directly.

Most of the time in which a hub publishes messages goes by between its code and the database.
SQLAlchemy prepares each statement for everything that it could be, and SQLite's driver lets other
threads run after each row, and then has to wait for them. So here a statement is for all rows, and
SQLite returns rows in one piece.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Any

import msgspec
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError


class Statements:
    """Runs statements in the transaction of a connection.

    Args:
        connection: In a transaction.
    """

    def __init__(self, connection: Connection) -> None:
        dialect = connection.dialect
        self.is_file = dialect.name == "sqlite"
        #: How the driver marks a value in a statement.
        self.mark = "?" if self.is_file else "%s"
        self._connection, self._dialect = connection, dialect
        self._cursor = connection.connection.cursor()

    def marks(self, count: int) -> str:
        """Return marks for a list of values."""
        return f"({', '.join([self.mark] * count)})"

    def execute(self, text: str, values: Iterable[Any]) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows.

        Args:
            text: The statement.
            values: One for each mark.

        Raises:
            DBAPIError: If the database refuses it; with neither the statement nor the values.
        """
        try:
            self._cursor.execute(text, (*values,))
            return [*self._cursor.fetchall()] if self._cursor.description else []
        except self._dialect.loaded_dbapi.Error as error:
            raw = self._connection.connection.dbapi_connection
            is_lost = self._dialect.is_disconnect(error, raw, self._cursor)
            if is_lost:
                self._connection.invalidate(error)
            raise DBAPIError(None, None, error, connection_invalidated=is_lost) from error

    def select(
        self, columns: Sequence[str], place: str, values: Iterable[Any], binary: Sequence[str] = ()
    ) -> list[Sequence[Any]]:
        """Return rows.

        Args:
            columns: What to return: names of columns, or expressions.
            place: The table and the condition.
            values: One for each mark in it.
            binary: Which of the columns hold bytes; in place of NULL they are empty.
        """
        if not self.is_file:
            shown = (f"coalesce({one}, '')" if one in binary else one for one in columns)
            return [*self.execute(f"SELECT {', '.join(shown)} FROM {place}", values)]
        shown = (f"hex({one})" if one in binary else one for one in columns)
        text = f"SELECT json_group_array(json_array({', '.join(shown)})) FROM {place}"
        ((found,),) = self.execute(text, values)
        rows: list[list[Any]] = msgspec.json.decode(found)
        for i in (i for i, one in enumerate(columns) if one in binary):
            for row in rows:
                row[i] = bytes.fromhex(row[i])
        return [*rows]

    def insert(
        self,
        table: str,
        columns: Sequence[str],
        rows: Collection[Sequence[Any]],
        conflict: str = "",
    ) -> None:
        """Insert rows.

        Args:
            table: The name of the table.
            columns: The names of its columns.
            rows: Their values.
            conflict: What to do with a row that is there already.
        """
        marks = ", ".join([self.marks(len(columns))] * len(rows))
        text = f"INSERT INTO {table} ({', '.join(columns)}) VALUES {marks}{conflict}"
        self.execute(text, chain.from_iterable(rows))
