"""`import fedbo` is light: an agent may be a phone, and a hub has no use for models."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fedbo

PROGRAM = """
import sys
before = set(sys.modules)
exec(sys.argv[1])
tops = {name.partition(".")[0] for name in set(sys.modules) - before}
print(" ".join(sorted(tops - set(sys.stdlib_module_names))))
"""
LOADED = "import sys, fedbo.hub.app; print(*sys.modules)"
AGENTS_ONLY = {"fedbo.model", "fedbo.policy", "fedbo.agent", "fedbo.message.inbox", "scipy.linalg"}
HUB = "from fedbo.exchange import exchange_at; exchange_at('https://hub.example.org')"


@pytest.mark.parametrize("program", ["import fedbo; fedbo.Agent", "import fedbo.exchange", HUB])
def test_import_loads_four_packages_only(program: str) -> None:
    """The client of a hub loads httpx2 only when there is something to ask."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, program], check=True, capture_output=True, text=True
    )
    foreign = {name for name in done.stdout.split() if not name.startswith("_")}
    allowed = {"fedbo", "numpy", "scipy", "msgspec", "threadpoolctl"}
    # The first belongs to compiled modules; msgspec and numpy load the others where installed.
    assert foreign - allowed <= {"cython_runtime", "typing_extensions", "charset_normalizer"}


def test_a_hub_loads_no_model() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], check=True, capture_output=True, text=True
    )
    loaded = set(done.stdout.split())
    assert "fedbo.federation.federation" in loaded and not loaded & AGENTS_ONLY


def test_every_name_is_there_when_it_is_asked_for() -> None:
    for name in fedbo.__all__:
        assert getattr(fedbo, name) is getattr(fedbo, name)
    assert {*fedbo.__all__} <= {*dir(fedbo)}
    with pytest.raises(AttributeError, match="module 'fedbo' has no attribute 'Agents'"):
        fedbo.Agents  # noqa: B018


def test_every_error_of_fedbo_is_in_one_tree() -> None:
    """But for those that never leave fedbo, and warnings."""
    inside = {"Refused", "StudyChanged", "SiteBusy", "TrialsFailed"}
    source = Path(fedbo.__file__).parent
    names = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    own = {name for name, bases in names.items() if bases & {"ValueError", "OSError", "Exception"}}
    roots = {name for name in own - inside if "FedboError" not in names[name]}
    assert roots == {"FedboError"}
    for name in ("MessageRefused", "FileRefused", "FederationMismatch"):
        assert issubclass(getattr(fedbo, name), fedbo.FedboError)
