"""An extension of griffe, which reads our docstrings for mkdocstrings."""

from __future__ import annotations

import re
from typing import Any

import griffe

#: An example up to the next empty line, with its output.
_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\n).+)*", re.M)


class Docstrings(griffe.Extension):
    """Puts examples between fences, and tells griffe what the fields of a msgspec.Struct do."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        if (
            "__init__" not in cls.members
            and "Args:" in (cls.docstring or griffe.Docstring("")).value
        ):
            cls.set_member("__init__", griffe.Function("__init__", parameters=_fields(cls)))


def _fields(cls: griffe.Class) -> griffe.Parameters:
    """Return the parameters of the constructor that a msgspec.Struct makes of its fields."""
    is_keyword = cls.keywords.get("kw_only") == "True"
    kind = griffe.ParameterKind[("positional_or_keyword", "keyword_only")[is_keyword]]
    fields = (
        griffe.Parameter(name, annotation=field.annotation, kind=kind, default=field.value)
        for name, field in cls.attributes.items()
        if "instance-attribute" in field.labels
    )
    first = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
    return griffe.Parameters(first, *fields)
