"""``fedbo flower new``: a Flower app that runs as it stands."""

from __future__ import annotations

import keyword
import re
import secrets
import sys
from importlib.resources import files
from pathlib import Path

from fedbo.federation.federation import Federation
from fedbo.space import Float

_OUTSIDE = ("pyproject.toml", "README.md", "LICENSE.md")
_INSIDE = ("__init__.py", "objective.py", "client_app.py", "server_app.py")
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def write_app(folder: Path) -> list[Path]:
    """Write a Flower app into a new or empty folder, whose name it gets; return its files.

    Raises:
        ValueError: If the folder is not empty, or its name is no name for an app.
    """
    name = folder.resolve().name
    package = name.replace("-", "_")
    taken = keyword.iskeyword(package) or package in (*sys.stdlib_module_names, "fedbo", "flwr")
    if not _NAME.fullmatch(name) or taken:
        raise ValueError(
            f"the folder is called {name!r}, expected a name for the app: small letters, digits "
            "and single hyphens, starting with a letter, and no name that Python or Flower uses"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} exists and is not empty: name a folder that is new or empty")
    inside = folder / package
    inside.mkdir(parents=True)
    written = []
    for parent, names in ((folder, _OUTSIDE), (inside, _INSIDE)):
        for file in names:
            text = (files("fedbo.flower") / "template" / f"{file}.in").read_text("utf-8")
            path = parent / file
            path.write_text(text.replace("{{name}}", name).replace("{{package}}", package), "utf-8")
            written.append(path)
    _example().save(inside / "federation.toml")
    return [*written, inside / "federation.toml"]


def _example() -> Federation:
    """Return a federation that no other app has, so that no two apps share trials."""
    space = {"learning_rate": Float(1e-5, 1e-1, log=True), "dropout": Float(0.0, 0.5)}
    return Federation(space, seed=secrets.randbelow(2**31))
