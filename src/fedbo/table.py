"""A table of results: named columns as numpy arrays, and a CSV file that restores them exactly.

In the file, strings are quoted and nothing else is, so the agent named "7" stays a string. Numbers
are written with as many digits as they need. The standard `csv` module writes such files, but its
reader does not tell whether a cell was quoted; so this module reads them itself.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Column = NDArray[Any]
Cell = str | int | float | bool

_CELL = re.compile(r'("(?:[^"]|"")*"|[^",\r\n]*)(,|\r?\n|\Z)')
_SHOWN = 8  # rows in a repr


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
        if len({*columns}) < len(columns):
            raise ValueError(f"two columns have the same name: {[*columns]}")
        for i, row in enumerate(rows):
            if len(row) != len(columns):
                expected = f"expected {len(columns)}, one for each of {[*columns]}"
                raise ValueError(f"row {i} has {len(row)} cells, {expected}")
        return cls({name: [row[k] for row in rows] for k, name in enumerate(columns)})

    @classmethod
    def join(cls, tables: Iterable[Table], **labels: Sequence[Cell]) -> Table:
        """Concatenate the rows of several tables.

        Args:
            tables: One or more tables with the same columns in the same order.
            **labels: Further columns, placed first, with one value for each table.
        """
        tables = list(tables)
        columns = tables[0].columns
        for i, table in enumerate(tables):
            if table.columns != columns:
                raise ValueError(
                    f"tables[{i}] has the columns {[*table.columns]}, tables[0] {[*columns]}"
                )
        joined: dict[str, ArrayLike] = {}
        for name, values in labels.items():
            pairs = zip(values, tables, strict=True)
            joined[name] = [value for value, table in pairs for _ in range(table.height)]
        return cls(joined | {name: _joined([t[name] for t in tables]) for name in columns})

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
        writer.writerow(self)
        writer.writerows(zip(*(column.tolist() for column in self.values()), strict=True))
        return text.getvalue()

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the table to a CSV file in UTF-8, with a header line."""
        Path(path).write_text(self.csv(), encoding="utf-8", newline="")

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str]) -> Table:
        """Read a file that `to_csv` wrote, or any CSV file with a header line.

        Unquoted cells that look like a number, ``True`` or ``False`` are read as such.

        Raises:
            ValueError: If the file is not a table; the text names the file and the line.
        """
        with Path(path).open(encoding="utf-8", newline="") as file:
            text = file.read()
        try:
            header, *rows = _cells(text)
            return cls.from_rows([str(name) for name in header], rows)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from None

    def __repr__(self) -> str:
        texts = [[name, *map(_shown, column[:_SHOWN].tolist())] for name, column in self.items()]
        widths = [max(map(len, column)) for column in texts]
        rows = zip(*texts, strict=True)
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        if not 0 < self.height <= _SHOWN:
            lines.append(f"… {self.height} rows" if self.height else "(no rows)")
        return "\n".join(lines)


def _column(values: ArrayLike) -> Column:
    if isinstance(values, np.ndarray):
        column = values.copy()
    else:
        objects = np.asarray(values, dtype=object).tolist()
        cells = [cell.item() if isinstance(cell, np.generic) else cell for cell in objects]
        column = np.array(cells, dtype=_dtype({type(cell) for cell in cells}, cells))
    if column.ndim != 1:
        raise ValueError(f"a column has shape {column.shape}, expected (n,)")
    column.flags.writeable = False
    return column


def _dtype(types: set[type], cells: Sequence[Any]) -> type:
    if types == {int}:
        return np.int64 if all(-(2**63) <= cell < 2**63 for cell in cells) else object
    if types <= {int, float}:
        return np.float64
    if types == {bool}:
        return np.bool_
    return np.str_ if types == {str} else object


def _joined(parts: Sequence[Column]) -> ArrayLike:
    filled = [part for part in parts if len(part)] or parts[:1]
    if len({part.dtype.kind for part in filled}) == 1:
        return np.concatenate(filled)
    return [cell for part in filled for cell in part.tolist()]


def _same(a: Column, b: Column) -> bool:
    return a.dtype.kind == b.dtype.kind and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _shown(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _cells(text: str) -> list[list[Cell]]:
    if not text:
        raise ValueError("the file is empty, expected a header")
    rows: list[list[Cell]] = [[]]
    at = 0
    for match in _CELL.finditer(text):
        if match.start() != at:
            break
        rows[-1].append(_read(match[1]))
        at, end = match.end(), match[2]
        if at == len(text) and end != ",":
            return rows
        if end != ",":
            rows.append([])
    line = 1 + text.count("\n", 0, at)
    raise ValueError(f"line {line} has a quote in the middle of a cell, or one too few")


@lru_cache(maxsize=1 << 16)  # most cells of a long table are labels that repeat
def _read(cell: str) -> Cell:
    if cell.startswith('"'):
        return cell[1:-1].replace('""', '"')
    if cell in ("True", "False"):
        return cell == "True"
    for number in (float,) if "." in cell else (int, float):
        try:
            return number(cell)
        except ValueError:
            pass
    return cell
