"""A space that a person wrote down in TOML, for `fedbo federation new --from-space`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from fedbo.federation.file import read_space
from fedbo.space import Direction, Space

EXAMPLE = """
direction = "minimize"
C = { type = "float", low = 1e-4, high = 10.0, log = true }
depth = { type = "int", low = 1, high = 8 }
kernel = { type = "categorical", choices = ["rbf", "linear"] }
"""


def read(path: Path, direction: Direction | None = None) -> Space:
    """The space in the file: one table for each parameter, or the [space] of a federation file.

    ``direction`` is for a file that says none. What is wrong is a ValueError that names the file.
    """
    try:
        table = _space_table(tomllib.loads(path.read_text(encoding="utf-8")), direction)
        return read_space(table)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _space_table(given: dict[str, Any], direction: Direction | None) -> dict[str, Any]:
    """What stands in [space] of a federation file, with a direction."""
    inner = given.get("space")
    if isinstance(inner, dict) and "type" not in inner:  # else it is a parameter of that name
        beside = [key for key in given if key != "space"]
        if beside:
            raise ValueError(
                f"{beside[0]!r} stands beside [space], and only the space is taken from this file: "
                "leave it out, and give an option (--features, --seed, --kind) instead"
            )
        table = dict(inner)
    else:
        parameters = {name: fields for name, fields in given.items() if name != "direction"}
        _check_tables(parameters)
        table = {"parameters": parameters}
        if "direction" in given:
            table["direction"] = given["direction"]
    there = table.setdefault("direction", direction or "maximize")
    if direction not in (None, there):
        raise ValueError(f"direction is {there!r} in it, and --direction is {direction!r}")
    return table


def _check_tables(parameters: dict[str, Any]) -> None:
    if not parameters:
        raise ValueError(f"no parameter in it, expected a table for each, such as\n{EXAMPLE}")
    for name, fields in parameters.items():
        if not isinstance(fields, dict) or "type" not in fields:
            raise ValueError(
                f"{name!r} is {fields!r}, expected a table with the type of a parameter, such as "
                f'{{ type = "float", low = 0.0, high = 1.0 }}'
            )
