"""The pages: links lead somewhere, and files are where they are said to be.

``make docs`` checks the links of the site; the pages beside it are checked here.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedbo

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md")]


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"https://[\w.]+/fedbo/fedbo/(\w+/)?main/", "", page.read_text(encoding="utf-8"))
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text):
        other = (page.parent / target) if target else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), f"{target}#{anchor}"


def test_links_of_the_readme_work_on_pypi_too() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"""\]\(([^)\s]*)|(?:src|href|srcset)=["']([^"']*)""", text)
    assert len(links) > 10
    for link in map("".join, links):
        assert link.startswith("https://"), link


def test_architecture_names_files_that_are_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+/[\w/]*(?:\.py|/))`", text)
    assert len(named) > 10
    for name in named:
        assert (ROOT / "src/fedbo" / name).exists() or (ROOT / name).exists(), name


def suite_of(module: str) -> Path | None:
    """The file of a module with tests to inherit; None for any other module."""
    if module.startswith("contracts."):
        return ROOT / "tests" / f"{module.replace('.', '/')}.py"
    return ROOT / "src/fedbo/testing/policies.py" if module == "fedbo.testing" else None


def classes_in(path: Path) -> dict[str, set[str]]:
    """The methods of each class of a test file, with those of its contracts and other bases."""
    classes: dict[str, set[str]] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (suite := suite_of(str(node.module))):
            contract = classes_in(suite)
            classes |= {name.name: contract.get(name.name, set()) for name in node.names}
        elif isinstance(node, ast.ClassDef):
            methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            classes[node.name] = methods.union(*(classes.get(base, set()) for base in bases))
    return classes


def names_of_tests(path: Path) -> set[str]:
    """The tests of a file, named as pytest names them."""
    classes, tests = classes_in(path), set[str]()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            tests.add(node.name)
        elif isinstance(node, ast.ClassDef):
            tests |= {node.name, *(f"{node.name}::{method}" for method in classes[node.name])}
        elif isinstance(node, ast.Assign):  # TestMachine = Machine.TestCase
            tests |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {test for test in tests if test.rpartition("::")[2].lower().startswith("test")}


def test_elements_name_tests_and_files_that_are_there() -> None:
    text = (ROOT / "docs/lab/elements.md").read_text(encoding="utf-8")
    tests = re.findall(r"`(tests/[^`]*)`", text)
    assert len(tests) > 100
    for test in tests:
        file, _, name = test.partition("::")
        assert re.fullmatch(r"test_\w+\.py", Path(file).name), f"pytest does not collect {file}"
        assert name in names_of_tests(ROOT / file), test
    files = re.findall(r"`([\w/]+(?:\.py|\.toml|/))`", text)
    assert len(files) > 100
    for name in files:
        folders = (ROOT / "src/fedbo", ROOT / "src", ROOT)
        assert any((folder / name).exists() for folder in folders), name


def test_five_minutes_shows_that_peers_help(tmp_path: Path) -> None:
    text = (ROOT / "docs/start/five-minutes.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)
    programs = f'python() {{ "{sys.executable}" "$@"; }}\nfedbo() {{ python -m fedbo "$@"; }}\n'
    own = {"FEDBO_STATE": str(tmp_path / "state"), "PYTHONPATH": str(ROOT / "src")}
    said = ""
    for language, code in blocks:
        if language == "python":
            (tmp_path / "clinic.py").write_text(code, encoding="utf-8")
        else:
            command = ["sh", "-ec", programs + code]
            said += subprocess.run(
                command,
                cwd=tmp_path,
                env=os.environ | own,
                check=True,
                capture_output=True,
                text=True,
            ).stdout
    _, alone, together = map(ast.literal_eval, re.findall("best error (.*)", said))
    assert all(together[trials] < alone[trials] for trials in (1, 3, 5))
    assert "north" in said.partition("What each peer contributed")[2]


def test_the_first_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shared").mkdir()
    fedbo.Federation({"x": fedbo.Float(0, 1)}).save("federation.toml")
    text = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    names: dict[str, Any] = {"objective": lambda trial: -abs(trial.suggest_float("x", 0, 1) - 0.3)}
    exec(code, names)
    names["sampler"].flush()
    assert len([*tmp_path.glob("shared/folder/*/*.fedbo")]) == 1


def test_errors_are_quoted_as_they_are() -> None:
    text = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
    code = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("src/fedbo/**/*.py"))
    for quoted in re.findall(r"^\| `([^`]+ [^`]+)` ", text, re.M):
        assert quoted in re.sub(r'"\s+f?"', "", code), quoted


def test_the_federation_file_of_the_reference_is_one() -> None:
    text = (ROOT / "docs/reference/formats.md").read_text(encoding="utf-8")
    [file] = re.findall(r"^```toml\n(.*?)^```$", text, re.M | re.S)
    assert len(fedbo.Federation.from_toml(file).space.parameters) == 3
