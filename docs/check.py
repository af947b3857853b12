"""Check the built site: internal links, anchors and images exist, and no page loads from elsewhere.

``python docs/check.py site`` prints what is wrong. Zensical itself checks links between pages of
Markdown only, not images, files, or what generated HTML refers to.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

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


if __name__ == "__main__":
    lines = problems(Path(sys.argv[1]).resolve())
    print("\n".join(lines) or "Links, anchors and images are there; nothing loads from elsewhere")
    sys.exit(bool(lines))
