"""Writes TOML files; the standard library's tomllib reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def dumps(table: Mapping[str, Any], title: str = "") -> str:
    """The table as TOML, in its own order, under a title of comment lines.

    Numbers are written so that they are read back exactly. Tables inside tables become sections, a
    list of tables has one line for each.

    >>> print(dumps({"seed": 7, "space": {"C": {"low": 1e-4, "log": True}}}, "# agreed"), end="")
    # agreed
    <BLANKLINE>
    seed = 7
    <BLANKLINE>
    [space.C]
    low = 0.0001
    log = true
    """
    sections = ["\n".join(section) for section in _sections(table, ())]
    return "\n\n".join([title.strip(), *sections] if title else sections) + "\n"


def _sections(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[list[str]]:
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    lines = [f"{_key(key)} = {_value(table[key])}" for key in table if key not in inner]
    if path and (lines or not inner):
        lines.insert(0, f"[{'.'.join(map(_key, path))}]")
    if lines:
        yield lines
    for key, value in inner.items():
        yield from _sections(value, (*path, key))


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):  # JSON's escapes are TOML's, but for DEL
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        items = [_value(item) for item in value]
        if any(isinstance(item, Mapping) for item in value):
            return "[\n" + "".join(f"    {item},\n" for item in items) + "]"
        return f"[{', '.join(items)}]"
    raise TypeError(f"TOML cannot hold {value!r}, a {type(value).__name__}")
