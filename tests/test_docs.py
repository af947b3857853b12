"""The pages: links lead somewhere, and files are where they are said to be.

``make docs`` checks the links of the site; the pages beside it are checked here.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fedbo

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md")]


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text):
        other = (page.parent / target) if target else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), f"{target}#{anchor}"


def test_architecture_names_files_that_are_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+/[\w/]*(?:\.py|/))`", text)
    assert len(named) > 10
    for name in named:
        assert (ROOT / "src/fedbo" / name).exists() or (ROOT / name).exists(), name


def test_errors_are_quoted_as_they_are() -> None:
    text = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
    code = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("src/fedbo/**/*.py"))
    for quoted in re.findall(r"^\| `([^`]+ [^`]+)` ", text, re.M):
        assert quoted in re.sub(r'"\s+f?"', "", code), quoted


def test_the_federation_file_of_the_reference_is_one() -> None:
    text = (ROOT / "docs/reference/formats.md").read_text(encoding="utf-8")
    [file] = re.findall(r"^```toml\n(.*?)^```$", text, re.M | re.S)
    assert len(fedbo.Federation.from_toml(file).space.parameters) == 3
