"""Build the site, and check it: ``python docs/build.py`` fails on anything that is not right.

Zensical checks links between pages of Markdown. Images, other files, and what generated HTML refers
to are checked here, and that no page loads anything from elsewhere.
"""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SITE = Path(__file__).parents[1] / "site"
BUILD = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]

#: Elements that a browser loads without a click, and the attribute with the address.
LOADED = {"img": "src", "script": "src", "link": "href", "source": "src", "iframe": "src"}
NOT_LOADED = {"canonical", "next", "prev", "alternate"}  # relations of <link>
#: Zensical's own links from its page for what is not found start at the root of the server.
IGNORED = {"404.html"}


class Page(HTMLParser):
    """The addresses in a page, and the names that links to it can end with."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.names = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.names |= {values[key] for key in ("id", "name") if key in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in LOADED and LOADED[tag] in values and values.get("rel") not in NOT_LOADED:
            self.loaded.append(values[LOADED[tag]])


def problems(site: Path) -> list[str]:
    """Return a line for each thing that is wrong with a built site."""
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name not in IGNORED}
    found = []
    for path, page in pages.items():
        found += [f"{path}: loads {url}" for url in page.loaded if is_external(url)]
        for url in filter(lambda url: not urlsplit(url).scheme, page.links + page.loaded):
            parts = urlsplit(url)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not (target.is_relative_to(site) and target.is_file()):
                found.append(f"{path}: there is no {url}")
            elif target in pages and unquote(parts.fragment) not in pages[target].names:
                found.append(f"{path}: there is no anchor {url}")
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        urls = re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", text)
        found += [f"{style}: loads {url}" for url in map("".join, urls) if is_external(url)]
    return found


def is_external(url: str) -> bool:
    return url.startswith("//") or urlsplit(url).scheme in ("http", "https")


def main() -> int:
    built = subprocess.run(BUILD, cwd=SITE.parent, stderr=subprocess.PIPE, text=True)
    sys.stderr.write(built.stderr)
    if built.returncode or "griffe" in built.stderr:  # it has complained about a docstring
        return 1
    wrong = problems(SITE)
    print("\n".join(wrong) or "Links, anchors and images are there; nothing loads from elsewhere")
    return len(wrong) and 1


if __name__ == "__main__":
    sys.exit(main())
