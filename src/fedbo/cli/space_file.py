"""A space in a TOML file written by hand, for `fedbo federation new --from-space`."""

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
    """Read a space: one table for each parameter, or the [space] of a federation file.

    Args:
        path: The file.
        direction: The direction if the file does not say; maximize if None.

    Raises:
        ValueError: If something is wrong; the text names the file.
    """
    try:
        return read_space(_space_table(tomllib.loads(path.read_text(encoding="utf-8")), direction))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _space_table(given: dict[str, Any], direction: Direction | None) -> dict[str, Any]:
    """Build what a federation file has under [space], with a direction."""
    inner = given.get("space")
    if isinstance(inner, dict) and "type" not in inner:  # else it is a parameter of that name
        others = [key for key in given if key != "space"]
        if others:
            raise ValueError(
                f"{others[0]!r} stands beside [space], but only the space is read from this file: "
                "remove it, and use an option (--features, --seed, --kind) instead"
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
        raise ValueError(f"direction is {there!r} in the file, but --direction is {direction!r}")
    return table


def _check_tables(parameters: dict[str, Any]) -> None:
    if not parameters:
        raise ValueError(f"there are no parameters, expected a table for each, such as\n{EXAMPLE}")
    for name, fields in parameters.items():
        if not isinstance(fields, dict) or "type" not in fields:
            raise ValueError(
                f"{name!r} is {fields!r}, expected a table with the type of the parameter, such as "
                f'{{ type = "float", low = 0.0, high = 1.0 }}'
            )
