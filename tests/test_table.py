"""A table keeps its columns, filters, joins, and comes back from its file exactly."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbo.table import Table

TABLE = Table(
    {
        "agent": ["a", "b", "a", "b"],
        "iteration": [1, 1, 2, 2],
        "score": [0.5, math.nan, 0.25, 2],
        "ok": [True, False, True, True],
    }
)

text = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=5)
cells = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(),
    "bool": st.booleans(),
    "text": text.map(lambda t: f"a{t}"),
    "formula": st.tuples(st.sampled_from(["=", "'", "'-x", "''@", "+a", "\t"]), text).map("".join),
}


def test_columns_have_the_type_of_their_values() -> None:
    kinds = {name: TABLE[name].dtype.kind for name in TABLE.columns}
    assert kinds == {"agent": "U", "iteration": "i", "score": "f", "ok": "b"}
    assert TABLE.height == 4
    assert Table({"mixed": ["a", 1, True]})["mixed"].tolist() == ["a", 1, True]
    assert Table({}).height == 0


def test_equality_counts_nan_as_itself_and_types_as_different() -> None:
    assert Table({"x": [math.nan]}) == Table({"x": [math.nan]})
    assert Table({"x": [1]}) != Table({"x": [1.0]})
    assert Table({"x": [1], "y": [2]}) != Table({"y": [2], "x": [1]})
    assert Table({"x": [1]}) != {"x": [1]}


def test_join_puts_labels_first_and_keeps_types() -> None:
    joined = Table.join([TABLE.where(agent="a"), TABLE], run=[3, 4], policy=["ts", "fts"])
    assert joined.columns == ("run", "policy", *TABLE.columns)
    assert joined["run"].tolist() == [3, 3, 4, 4, 4, 4]
    assert joined.where(run=4, policy="fts")["agent"].tolist() == ["a", "b", "a", "b"]
    assert {joined[name].dtype.kind for name in ("run", "iteration")} == {"i"}


def test_join_of_different_types_turns_no_number_into_text() -> None:
    joined = Table.join([Table({"x": [1]}), Table({"x": ["a"]}), Table({"x": []})])
    assert joined["x"].tolist() == [1, "a"]
    assert Table.join([Table({"x": []}), Table({"x": [1]})])["x"].dtype.kind == "i"
    assert Table.join([Table({"x": [1]}), Table({"x": [0.5]})])["x"].tolist() == [1.0, 0.5]


def test_columns_of_several_lengths_or_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"lengths \{'x': 1, 'y': 2\}"):
        Table({"x": [1], "y": [1, 2]})
    with pytest.raises(ValueError, match=r"shape \(1, 2\)"):
        Table({"x": np.ones((1, 2))})
    with pytest.raises(KeyError, match="no column 'scores', only agent, iteration, score, ok"):
        TABLE["scores"]


@pytest.mark.parametrize("kind", cells)
def test_a_file_brings_every_type_back(kind: str, tmp_path: Path) -> None:
    @given(st.lists(cells[kind], min_size=1, max_size=6), text)
    def check(column: list[object], name: str) -> None:
        table = Table({name: column, "end": list(range(len(column)))})
        table.to_csv(tmp_path / "table.csv")
        again = Table.from_csv(tmp_path / "table.csv")
        assert again == table
        assert [*map(type, again[name].tolist())] == [*map(type, table[name].tolist())]

    check()


def test_no_text_is_a_formula_and_numbers_stay_numbers(tmp_path: Path) -> None:
    Table({"=peer": ["=1+1", "'@x", "-y"], "gained": [-1.5, 2, 3]}).to_csv(tmp_path / "table.csv")
    lines = (tmp_path / "table.csv").read_text().splitlines()
    assert lines == ['"\'=peer","gained"', '"\'=1+1",-1.5', "\"''@x\",2.0", '"\'-y",3.0']


def test_a_file_from_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"name,n,x\r\nsite a,1,0.5\r\nb,2,1e-3\r\n")
    table = Table.from_csv(path)
    assert table["name"].tolist() == ["site a", "b"]
    assert table["n"].dtype.kind == "i"
    assert table["x"].tolist() == [0.5, 1e-3]


@pytest.mark.parametrize("content", ["", 'x\n1\n"a', 'x\n"a"b\n', "x,y\n1\n"])
def test_a_damaged_file_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(content)
    with pytest.raises(ValueError, match=r"table\.csv is not a table: "):
        Table.from_csv(tmp_path / "table.csv")
