"""The report: one page, whole, safe to read, and with every verdict in words."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import numpy as np
import pytest
from paper.made_runs import arm, table
from playwright.sync_api import Browser

from fedbo.table import Table
from fedbo_paper.experiments.claims import Finding
from fedbo_paper.report.figures import Picture
from fedbo_paper.report.report import Listing, beside_published, followed, page, provenance

NASTY = '<script>alert("&")</script>'


def finding(**changed: object) -> Finding:
    plain = Finding(
        id="near-peers-help",
        section="5.1",
        figure="fig1a",
        claim="With d_n = 0.02 FTS performs better than TS.",
        experiment="synthetic",
        preset="paper",
        verdict="holds",
        measure="lead of FTS over TS",
        matters=0.01,
        value=0.0105,
        low=0.0011,
        high=0.02,
        n=20,
    )
    return msgspec.structs.replace(plain, **changed)


PICTURE = Picture(name="fig1", title="One", caption="A picture", svg="<svg></svg>")
FULL = page(
    [*provenance("fedbo reproduce fig1 --out results"), ("digest", "3f2d1d8b" * 20)],
    [
        finding(),
        finding(preset="default", verdict="not decided", low=-float("inf")),
        finding(id="b", section="D", figure="appendix", experiment="har", verdict="does not hold"),
    ],
    [PICTURE],
    [
        Listing(
            title="Beside the published runs",
            note="fedbo less published",
            columns=("method", *(f"{n} iterations" for n in range(8))),
            rows=[["FTS, M = 100", *["+0.0010 ± 0.0020"] * 8]],
        )
    ],
)


class Reader(HTMLParser):
    """Checks that tags are balanced, and collects what a reader or a browser would meet."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_it_needs_nothing_from_elsewhere() -> None:
    tags = Reader(FULL).tags
    assert not {tag for tag, _ in tags} & {"script", "link", "iframe", "object", "a"}
    assert [given["src"][:11] for tag, given in tags if tag == "img"] == ["data:image/"]  # type: ignore[index]
    assert not re.search(r"url\(|@import|https?://", FULL)


def test_what_stands_in_it_is_escaped() -> None:
    words = dict.fromkeys(("claim", "measure", "preset", "section", "experiment", "figure"), NASTY)
    picture = Picture(name=NASTY, title=NASTY, caption=NASTY, svg="")
    listing = Listing(title=NASTY, note=NASTY, columns=(NASTY,), rows=[[NASTY]])
    text = page([(NASTY, NASTY)], [finding(**words)], [picture], [listing], title=NASTY, note=NASTY)
    assert "<script" not in text
    assert Reader(text).text.count(NASTY) == 17


def test_verdicts_are_words_and_signs_and_effects_have_their_interval() -> None:
    text = Reader(FULL).text.replace("\xa0", " ")
    for words in ("✓ holds", "✗ does not hold", "? not decided", "Section 5.1", "Appendix D"):
        assert words in text
    assert "0.0105 [0.0011, 0.02], n = 20, δ = 0.01" in text and "[−∞, 0.02]" in text
    hedged = page([], [finding(verdict="seen"), finding(verdict="by definition")])
    assert "✓ seen" in Reader(hedged).text and "δ =" not in Reader(hedged).text.replace("\xa0", " ")


def test_the_messages_that_fts_followed_are_counted() -> None:
    """Made-up FTS follows one message, in iteration 1; without it in one of ten runs."""
    runs = table(arm("TS", 0.5), arm("FTS", 0.5, power=2.0, targets=2))
    said = followed(runs)
    assert said == (
        "With p_t = 1 − 1/t², FTS followed 1 messages in a run on average, and none in 0 % of the "
        "runs. "
    )
    columns = {name: runs[name].copy() for name in runs.columns}
    first = np.flatnonzero(columns["source"] == "peer")[0]
    columns["source"][first] = "own"
    assert "followed 0.9 messages" in followed(Table(columns))
    assert "none in 10 %" in followed(Table(columns))


def test_what_is_far_from_the_published_runs_is_named() -> None:
    columns = ("method", "M", "iteration", "ours", "published", "difference", "error", "distance")
    rows = [
        ("FTS", 100, 10, 0.80, 0.79, 0.01, 0.01, 1.0, 0.01, 1.0),
        ("FTS", 100, 50, 0.82, 0.82, 0.00, 0.01, 0.0, 0.01, 1.0),
        ("TAF", 200, 10, 0.74, 0.80, -0.06, 0.01, -6.0, 0.08, 100.0),
        ("TAF", 200, 50, 0.75, 0.80, -0.05, 0.01, -5.0, 0.08, 100.0),
    ]
    listing = beside_published(Table.from_rows((*columns, "seconds", "published_seconds"), rows))
    assert "2 of 4 differences are within two standard errors" in listing.note
    assert "not explained: TAF, M = 200 (below) after 10, 50. " in listing.note
    assert [row[0] for row in listing.rows] == ["FTS, M = 100", "TAF, M = 200"]
    assert listing.rows[1][1] == "-0.0600 ± 0.0100"
    assert listing.rows[1][-2:] == ["0.08 (×8)", "100 (×100)"]


@pytest.mark.slow
def test_it_is_not_wider_than_a_phone(tmp_path: Path, browser: Browser) -> None:
    (tmp_path / "report.html").write_text(FULL)
    shown = browser.new_page(viewport={"width": 390, "height": 844})
    shown.goto((tmp_path / "report.html").as_uri())
    assert shown.evaluate("document.documentElement.scrollWidth") == 390
