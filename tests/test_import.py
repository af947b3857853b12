"""`import fedbo` is light: an agent may be a phone or a locked-down server."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
before = set(sys.modules)
exec(sys.argv[1])
tops = {name.partition(".")[0] for name in set(sys.modules) - before}
print(" ".join(sorted(tops - set(sys.stdlib_module_names))))
"""
HUB = "from fedbo.exchange import exchange_at; exchange_at('https://hub.example.org')"


@pytest.mark.parametrize("program", ["import fedbo", "import fedbo.exchange", HUB])
def test_import_loads_four_packages_only(program: str) -> None:
    """The client of a hub loads httpx2 only when there is something to ask."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, program], check=True, capture_output=True, text=True
    )
    foreign = {name for name in done.stdout.split() if not name.startswith("_")}
    allowed = {"fedbo", "numpy", "scipy", "msgspec", "threadpoolctl"}
    # The first belongs to compiled modules; msgspec and numpy load the others where installed.
    assert foreign - allowed <= {"cython_runtime", "typing_extensions", "charset_normalizer"}
