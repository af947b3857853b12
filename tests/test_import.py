"""`import fedbo` is light: an agent may be a phone or a locked-down server."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
before = set(sys.modules)
import fedbo
tops = {name.partition(".")[0] for name in set(sys.modules) - before}
print(" ".join(sorted(tops - set(sys.stdlib_module_names))))
"""


def test_import_loads_four_packages_only() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    foreign = {name for name in done.stdout.split() if not name.startswith("_")}
    allowed = {"fedbo", "numpy", "scipy", "msgspec", "threadpoolctl"}
    # The first belongs to compiled modules; msgspec and numpy load the others where installed.
    assert foreign - allowed <= {"cython_runtime", "typing_extensions", "charset_normalizer"}
