"""An extension of griffe: examples in docstrings become blocks of code, with or without a title."""

from __future__ import annotations

import re
from typing import Any

import griffe

#: An example up to the next empty line, with its output.
_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\n).+)*", re.M)


class Doctests(griffe.Extension):
    """Puts each doctest between fences, before its docstring is read as Markdown."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
