"""A table of results: named columns as numpy arrays, which a CSV file keeps."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Column = NDArray[Any]
Cell = str | int | float | bool

_SHOWN = 8  # rows in a repr
_FORMULA = re.compile(r"'*[=+@\t\r-]")  # how text starts that a spreadsheet may compute
_NUMBERS = (int, float, np.number)


class Table(Mapping[str, Column]):
    """A read-only mapping from column names to columns of the same length.

    Like any mapping, a table iterates over its keys, the column names, and ``len(table)`` is the
    number of columns. ``table.height`` is the number of rows.

    Args:
        columns: The values of each column, by name. They are copied. A column becomes an array of
            int64, float64, bool or str if all its values have that type, and of objects otherwise.

    >>> table = Table({"agent": ["a", "b", "a"], "iteration": [1, 1, 2], "score": [0.5, 2.0, 0.25]})
    >>> list(table), table.height
    (['agent', 'iteration', 'score'], 3)
    >>> table.where(agent="a")["score"]
    array([0.5 , 0.25])
    >>> Table.join([table.where(iteration=1), table.where(iteration=2)], run=[7, 8])
    run  agent  iteration  score
    7    a      1          0.5
    7    b      1          2
    8    a      2          0.25
    """

    def __init__(self, columns: Mapping[str, ArrayLike]) -> None:
        self._columns = {name: _column(values) for name, values in columns.items()}
        lengths = {name: len(column) for name, column in self._columns.items()}
        if len({*lengths.values()}) > 1:
            raise ValueError(f"the columns have lengths {lengths}, expected all the same")

    @classmethod
    def from_rows(cls, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
        """Build a table from rows, whose cells are in the order of the column names.

        >>> Table.from_rows(["x", "y"], [(1, "a"), (2, "b")])["y"].tolist()
        ['a', 'b']
        """
        cells = [*zip(*rows, strict=True)] if rows else [()] * len(columns)
        return cls(dict(zip(columns, cells, strict=True)))

    @classmethod
    def join(cls, tables: Iterable[Table], **labels: Sequence[Cell]) -> Table:
        """Concatenate the rows of several tables.

        Args:
            tables: One or more tables with the same columns in the same order.
            **labels: Further columns, placed first, with one value for each table.
        """
        tables = list(tables)
        if len(columns := {table.columns for table in tables}) != 1:
            raise ValueError(f"the tables have the columns {columns}, expected all the same")
        joined: dict[str, ArrayLike] = {}
        for name, values in labels.items():
            pairs = zip(values, tables, strict=True)
            joined[name] = [value for value, table in pairs for _ in range(table.height)]
        return cls(joined | {name: _joined([t[name] for t in tables]) for name in tables[0]})

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._columns)

    @property
    def height(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __len__(self) -> int:
        return len(self._columns)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __getitem__(self, name: str) -> Column:
        if name not in self._columns:
            raise KeyError(f"there is no column {name!r}, only {', '.join(self._columns)}")
        return self._columns[name]

    def __eq__(self, other: object) -> bool:
        """Return whether the columns are the same, in order; NaN equals NaN."""
        return (
            isinstance(other, Table)
            and self.columns == other.columns
            and all(_same(self[name], other[name]) for name in self)
        )

    __hash__ = None  # type: ignore[assignment]

    def where(self, **values: Cell) -> Table:
        """Select the rows that have these values in the columns of these names."""
        keep = np.ones(self.height, dtype=np.bool_)
        for name, value in values.items():
            keep &= np.asarray(self[name] == value)
        return Table({name: column[keep] for name, column in self.items()})

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        writer.writerow(map(_guarded, self))
        rows = zip(*(column.tolist() for column in self.values()), strict=True)
        writer.writerows(map(_guarded, row) for row in rows)
        return text.getvalue()

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the table to a CSV file in UTF-8, with a header line."""
        Path(path).write_text(self.csv(), encoding="utf-8", newline="")

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str]) -> Table:
        """Read a file that `to_csv` wrote, or any CSV file with a header line.

        A column whose cells are all numbers, or all ``True`` or ``False``, is read as such.

        Raises:
            ValueError: If the file is not a table; the text names it.
        """
        try:
            with Path(path).open(encoding="utf-8", newline="") as file:
                header, *rows = csv.reader(file, strict=True)
            columns = [_read([row[i] for row in rows]) for i in range(len(header))]
            return cls(dict(zip(map(_unguarded, header), columns, strict=True)))
        except (ValueError, IndexError, csv.Error) as error:
            raise ValueError(f"{os.fspath(path)} is not a table: {error}") from None

    def __repr__(self) -> str:
        texts = [[name, *map(_shown, column[:_SHOWN].tolist())] for name, column in self.items()]
        widths = [max(map(len, column)) for column in texts]
        rows = zip(*texts, strict=True)
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        if not 0 < self.height <= _SHOWN:
            lines.append(f"… {self.height} rows" if self.height else "(no rows)")
        return "\n".join(lines)


def _column(values: ArrayLike) -> Column:
    types = set() if isinstance(values, np.ndarray) else {*map(type, values)}  # type: ignore[arg-type]
    is_mixed = len(types) > 1 and not all(issubclass(t, _NUMBERS) and t is not bool for t in types)
    column = np.array(values, object if is_mixed else None)  # a mixture must not become text
    if column.ndim != 1:
        raise ValueError(f"a column has shape {column.shape}, expected (n,)")
    column.flags.writeable = False
    return column


def _joined(parts: Sequence[Column]) -> ArrayLike:
    filled = [part for part in parts if len(part)] or parts[:1]
    if len({part.dtype.kind for part in filled}) == 1:
        return np.concatenate(filled)
    return [cell for part in filled for cell in part.tolist()]


def _same(a: Column, b: Column) -> bool:
    return a.dtype.kind == b.dtype.kind and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _shown(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _read(cells: list[str]) -> ArrayLike:
    if {*cells} <= {"True", "False"}:
        return [cell == "True" for cell in cells]
    for kind in (int, float):
        try:
            return [kind(cell) for cell in cells]
        except ValueError:
            pass
    return [*map(_unguarded, cells)]


def _guarded(cell: Any) -> Any:
    """Write ' before text that a spreadsheet would take for a formula; `_unguarded` removes it."""
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell


def _unguarded(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
