"""The report: one page, whole, safe to read, and with every verdict in words."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from paper.fake_runs import fake_runs

from fedbo.table import Table
from fedbo_paper.experiments.claims import Finding
from fedbo_paper.experiments.published import Curve, Published
from fedbo_paper.experiments.spec import wanted
from fedbo_paper.report.figures import Picture
from fedbo_paper.report.report import Contents, Grid, contents, page

NASTY = '<script>alert("&")</script>'
VOID = {"meta", "img"}


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
        value=0.0105,
        low=0.0011,
        high=0.02,
        n=20,
    )
    return msgspec.structs.replace(plain, **changed)


PICTURE = Picture(name="fig1", title="One", caption="A picture", svg="<svg></svg>")
FULL = Contents(
    lead="All of them.",
    settings=(("preset", "paper"), ("digest", "3f2d1d8b")),
    findings=(
        finding(),
        finding(preset="default", verdict="not decided", low=-0.001),
        finding(id="b", section="D", figure="appendix", experiment="har", verdict="does not hold"),
    ),
    pictures={"fig1": PICTURE},
    grids=(
        Grid(
            "published",
            "Differences",
            Table({"iteration": [10, 50], "difference": [-0.0123456, float("nan")]}),
        ),
    ),
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
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def full() -> Reader:
    return Reader(page(FULL))


class TestPage:
    @pytest.mark.parametrize("contents", [FULL, Contents()])
    def test_tags_are_balanced_and_ids_unique(self, contents: Contents) -> None:
        reader = Reader(page(contents))
        ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
        assert len({*ids}) == len(ids)
        assert [*reader.all("html")] == [{"lang": "en"}]

    def test_needs_nothing_from_elsewhere(self, full: Reader) -> None:
        assert not {tag for tag, _ in full.tags} & {"script", "link", "iframe", "object"}
        for _, attributes in full.tags:
            assert (attributes.get("src") or "data:image/").startswith("data:image/")
            assert (attributes.get("href") or "#").startswith("#")
        assert not re.search(r"url\(|@import|https?://", page(FULL))

    def test_links_lead_somewhere(self, full: Reader) -> None:
        ids = {attributes.get("id") for _, attributes in full.tags}
        assert {(a["href"] or "")[1:] for a in full.all("a")} <= ids

    def test_what_stands_in_it_is_escaped(self) -> None:
        pair = ((NASTY, NASTY),)
        words = {"claim": NASTY, "measure": NASTY, "preset": NASTY, "id": NASTY}
        contents = Contents(
            lead=NASTY,
            settings=pair,
            findings=(finding(section=NASTY, experiment=NASTY, **words),),
            pictures={"fig1": Picture(name=NASTY, title=NASTY, caption=NASTY, svg="")},
            grids=(Grid("fig1", NASTY, Table({NASTY: [NASTY]})),),
        )
        text = page(contents)
        assert "<script" not in text
        assert Reader(text).text.count(NASTY) > 7
        assert Reader(text).all("img")[0]["alt"] == NASTY

    def test_verdicts_are_words_and_signs(self, full: Reader) -> None:
        for words in ("✓ holds", "✗ does not hold", "? not decided"):
            assert words in full.text

    def test_an_empty_chapter_is_left_out(self, full: Reader) -> None:
        ids = [attributes["id"] for attributes in full.all("section")]
        assert ids == ["run", "verdicts", "fig1", "published"]

    def test_numbers(self, full: Reader) -> None:
        assert "0.0105 [0.0011, 0.02], n = 20" in full.text.replace("\xa0", " ")
        assert "−0.01235" in full.text
        single = finding(low=-float("inf"), high=float("inf"), n=1)
        assert "[−∞, ∞]" in Reader(page(Contents(findings=(single,)))).text


RUN = tuple([0.6, *[0.7] * 50])
CURVE = Curve(
    mean=RUN, se=(0.01,) * 51, seconds=1.0, runs={f: {r: RUN for r in (0, 1)} for f in (0, 1)}
)
PUBLISHED = Published(curves={"TS": CURVE, "FTS-M100": CURVE}, inits={})


@pytest.mark.slow
def test_all_that_was_run_is_said_and_only_what_was_asked_for(tmp_path: Path) -> None:
    runs = fake_runs(targets=2, repeats=2, iterations=50)
    asked = wanted("all", presets=("paper", "default"))
    whole = contents(runs, asked, {"glass": "Fetch it."}, PUBLISHED, tmp_path / "all")
    assert {finding.preset for finding in whole.findings} == {"paper", "default"}
    assert {"fig1", "fig2"} == {grid.chapter for grid in whole.grids}
    assert ("Activity recognition with Google Glass", "not run: Fetch it.") in whole.settings
    Reader(page(whole))
    part = contents(runs, wanted("fig3", only="landmine"), {}, PUBLISHED, tmp_path / "part")
    assert {finding.figure for finding in part.findings} == {"fig3"}
    assert {finding.preset for finding in part.findings} == {"paper"}
    assert [*part.pictures] == ["fig3"]
