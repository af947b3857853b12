"""The TOML file of a federation: its settings, and its space as tables."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec

from fedbo.space import Categorical, Direction, Float, Int, Parameter, Space
from fedbo.space.axis import Value

_TITLE = """\
# A fedbo federation: what its agents agree on. Give every agent this very file:
# messages from agents with other values are refused.
"""


def dumps(settings: Mapping[str, Any], space: Space) -> str:
    """Write the text of the file. Numbers are read back exactly."""
    import tomli_w  # `import fedbo` does not load it

    return f"{_TITLE}\n{tomli_w.dumps({**settings, 'space': space_table(space)})}"


def loads(text: str) -> tuple[dict[str, Any], Space]:
    """Read the text of a file: the settings, not yet checked, and the space."""
    settings = tomllib.loads(text)
    return settings, read_space(settings.pop("space", {}))


def space_table(space: Space) -> dict[str, Any]:
    """Describe a space as the file does under [space]."""
    points = {} if space.listed is None else {"points": space.listed}
    parameters = {name: msgspec.to_builtins(given) for name, given in space.parameters.items()}
    return {"direction": space.direction, **points, "parameters": parameters}


def read_space(table: object) -> Space:
    """Build the space that a table describes; a ValueError names the parameter that is wrong."""
    try:
        given = msgspec.convert(table, _SpaceTable)
    except msgspec.ValidationError as error:
        raise ValueError(f"[space]: {error}") from None
    parameters: dict[str, Parameter] = {}
    for name, fields in given.parameters.items():
        try:
            parameters[name] = msgspec.convert(fields, Float | Int | Categorical)
        except msgspec.ValidationError as error:
            raise ValueError(f"parameter {name!r}: {error}") from None
    return Space(parameters, direction=given.direction, points=given.points)


class _SpaceTable(msgspec.Struct, forbid_unknown_fields=True):
    parameters: dict[str, Any]  # read one by one, so that errors can name them
    direction: Direction = "maximize"
    points: list[dict[str, Value]] | None = None
