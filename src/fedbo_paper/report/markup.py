"""HTML that cannot be broken by what stands in it: text is escaped unless it is `Markup`."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

_VOID = {"img", "meta", "br", "hr"}
_SUBSCRIPT = re.compile(r"\b([a-zA-Zωφ])_([a-zA-Z0-9])\b")
_MINUS = re.compile(r"(?<!\w)-(?=\d)")
_CODE = re.compile(r"`([^`]+)`")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, /, *children: str | Iterable[Markup], **attributes: str) -> Markup:
    """An element with its children; an attribute ``class_`` is written as ``class``.

    >>> element("p", "1 < 2, ", element("b", "really"), class_="note")
    '<p class="note">1 &lt; 2, <b>really</b></p>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    inner = "".join(
        _escaped(child) if isinstance(child, str) else "".join(map(_escaped, child))
        for child in children
    )
    return Markup(f"<{name}{written}>{inner}</{name}>")


def prose(text: str) -> Markup:
    """Plain text for reading: subscripts, minus signs, and what stands in backticks as code.

    >>> prose("t_n > -1 and `M`")
    '<i>t</i><sub>n</sub> &gt; −1 and <code>M</code>'
    """
    pieces = _CODE.split(text)  # odd ones are code
    return Markup(
        "".join(
            f"<code>{html.escape(piece)}</code>"
            if i % 2
            else _SUBSCRIPT.sub(r"<i>\1</i><sub>\2</sub>", _MINUS.sub("−", html.escape(piece)))
            for i, piece in enumerate(pieces)
        )
    )


def _escaped(child: str) -> str:
    return child if isinstance(child, Markup) else html.escape(child)
