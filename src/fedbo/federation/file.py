"""The TOML file of a federation: its settings, and its space as tables.

A file may come from a hub, so what could cost much memory or time is refused: a large file, deep
nesting, and keys of many parts.

TOML has no null: the choice None is written as ``{ none = true }``.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec

from fedbo import files
from fedbo.space.axis import Categorical, Float, Int, Parameter
from fedbo.space.space import Direction, Space

#: The largest file that is read, in bytes.
LARGEST_FILE = 16 * 2**20

_TITLE = """\
# A fedbo federation: what its agents agree on. Give every agent this very file:
# messages from agents with other values are refused.
"""
_NONE = {"none": True}
# The time to read a dotted key grows with the square of its parts; a federation needs four.
_MOST_PARTS = 32
# These patterns take time in proportion to the text: a string without an end extends to the end of
# the text, so that nothing is looked at twice, and a closing delimiter may follow two more quotes.
_PART = r"""(?>[\w-]+|"(?:[^"\\\n]++|\\.)*+"?|'[^'\n]*+'?)"""
_LONG_STRINGS = r'''"""(?:[^"\\]++|\\.|"(?!""))*+"{0,5}|\'{3}(?:[^']++|'(?!''))*+'{0,5}'''
_NEXT = rf"[ \t]*+\.[ \t]*+{_PART}"
_TOKEN = re.compile(
    rf"#[^\n]*|{_LONG_STRINGS}|{_PART}(?>{_NEXT}){{0,{_MOST_PARTS - 1}}}(?P<excess>{_NEXT})?", re.S
)


def dumps(settings: Mapping[str, Any], space: Space) -> str:
    """Write the text of the file. Numbers are read back exactly."""
    import tomli_w  # `import fedbo` does not load it

    return f"{_TITLE}\n{tomli_w.dumps({**settings, 'space': space_table(space)})}"


def read(path: str | os.PathLike[str]) -> str:
    """Return the text of a regular file in UTF-8; a ValueError if it is too large."""
    return files.read(path, LARGEST_FILE).decode()


def loads(text: str) -> dict[str, Any]:
    """Return the tables of a TOML file; a ValueError if they cannot be read.

    >>> loads("a.b = 1")
    {'a': {'b': 1}}
    """
    if any(token["excess"] for token in _TOKEN.finditer(text)):
        raise ValueError(f"a key has more than {_MOST_PARTS} parts between dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("tables or lists are nested too deeply") from None


def space_table(space: Space) -> dict[str, Any]:
    """Describe a space as the file does under [space]."""
    parameters = {name: _parameter_table(parameter) for name, parameter in space.parameters.items()}
    if space.listed is None:
        return {"direction": space.direction, "parameters": parameters}
    points = [{name: _written(point[name]) for name in point} for point in space.listed]
    return {"direction": space.direction, "points": points, "parameters": parameters}


def read_space(table: object) -> Space:
    """Build the space that a table describes; a ValueError names the parameter that is wrong."""
    try:
        tables = msgspec.convert(table, _SpaceTable)
    except msgspec.ValidationError as error:
        raise ValueError(f"[space]: {error}") from None
    parameters: dict[str, Parameter] = {}
    for name, fields in tables.parameters.items():
        if isinstance(fields, dict) and isinstance(fields.get("choices"), list):
            fields = fields | {"choices": [*map(_read, fields["choices"])]}
        try:
            parameters[name] = msgspec.convert(fields, Float | Int | Categorical)
        except msgspec.ValidationError as error:
            raise ValueError(f"parameter {name!r}: {error}") from None
    points = tables.points
    if points is not None:
        points = [{name: _read(value) for name, value in point.items()} for point in points]
    return Space(parameters, direction=tables.direction, points=points)


class _SpaceTable(msgspec.Struct, forbid_unknown_fields=True):
    parameters: dict[str, Any]  # read one by one, so that errors can name them
    direction: Direction = "maximize"
    points: list[dict[str, Any]] | None = None  # checked by the space


def _parameter_table(parameter: Parameter) -> dict[str, Any]:
    table: dict[str, Any] = msgspec.to_builtins(parameter)
    if isinstance(parameter, Categorical):
        table["choices"] = [*map(_written, parameter.choices)]
    return table


# None in Python and in the file


def _written(value: Any) -> Any:
    return dict(_NONE) if value is None else value


def _read(value: Any) -> Any:
    return None if value == _NONE and value["none"] is True else value
