"""The report: one page, whole, safe to read, and with every verdict in words."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from fedbo.table import Table
from fedbo_paper.experiments.claims import Finding
from fedbo_paper.report.figures import Picture
from fedbo_paper.report.report import CHAPTERS, Contents, Grid, page, write

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
        note="FTS has 0.04 on average.",
    )
    return msgspec.structs.replace(plain, **changed)


PICTURE = Picture(name="fig1", title="One", caption="A picture", alt="Lines", svg="<svg></svg>")
FULL = Contents(
    title="The paper's experiments",
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
            chapter="published",
            title="Differences",
            columns=("iteration", "difference", "verdict"),
            rows=((10, -0.0123456, "not met"), (50, float("nan"), "met")),
            note="Paired.",
        ),
    ),
    notes={"diagnostics": ("A message says little.",)},
    choices=(("epochs", "20 (`--epochs`)"),),
    commands=(("Figure 1", "fedbo reproduce fig1"),),
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
    @pytest.mark.parametrize("contents", [FULL, Contents(title="Nothing")])
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
        words = {"claim": NASTY, "note": NASTY, "measure": NASTY, "preset": NASTY, "id": NASTY}
        contents = Contents(
            title=NASTY,
            lead=NASTY,
            settings=pair,
            findings=(finding(section=NASTY, experiment=NASTY, figure=NASTY, **words),),
            pictures={"fig1": Picture(name=NASTY, title=NASTY, caption=NASTY, alt=NASTY, svg="")},
            grids=(Grid(chapter="fig1", title=NASTY, columns=(NASTY,), rows=((NASTY,),)),),
            notes={"fig1": (NASTY, f"`{NASTY}`")},
            choices=pair,
            commands=pair,
        )
        text = page(contents)
        assert "<script" not in text
        assert Reader(text).text.count(NASTY) > 15
        assert Reader(text).all("img")[0]["alt"] == NASTY

    def test_every_picture_has_words(self, full: Reader) -> None:
        assert [image["alt"] for image in full.all("img")] == ["Lines"]
        assert "One" in full.text and "A picture" in full.text

    def test_verdicts_are_words_and_signs(self, full: Reader) -> None:
        for words in ("✓ holds", "✗ does not hold", "? not decided", "✓ met", "✗ not met"):
            assert words in full.text

    def test_presets_stand_side_by_side(self, full: Reader) -> None:
        columns = [a for a in full.all("th") if a.get("scope") == "col"]
        assert len(columns) >= 4
        assert full.text.index("paper preset") < full.text.index("default preset")

    def test_an_empty_chapter_is_left_out(self, full: Reader) -> None:
        ids = [attributes["id"] for attributes in full.all("section")]
        chapters = ["fig1", "appendix", "published", "diagnostics"]
        assert ids == ["run", "verdicts", *chapters, "choices", "commands"]

    def test_a_finding_without_a_chapter_is_not_lost(self) -> None:
        reader = Reader(page(Contents(title="t", findings=(finding(figure="table 7"),))))
        assert [a["id"] for a in reader.all("section")] == ["verdicts", "other"]

    def test_numbers(self, full: Reader) -> None:
        assert "0.0105 [0.0011, 0.0200], n = 20" in full.text.replace("\xa0", " ")
        assert "−0.01235" in full.text

    @pytest.mark.parametrize(
        ("changed", "shown"),
        [
            (
                {"low": -float("inf"), "high": float("inf"), "n": 1},
                "0.0105, n = 1; no interval: too few",
            ),
            ({"value": 112.0, "low": 112.0, "high": 112.0}, "112 [112, 112]"),
            ({"value": 18.34, "low": 17.2, "high": 19.5}, "18.34 [17.20, 19.50]"),
            ({"value": 0.0, "low": -0.00001, "high": 0.01}, "0.0000 [0.0000, 0.0100]"),
        ],
    )
    def test_effects(self, changed: dict[str, float], shown: str) -> None:
        text = Reader(page(Contents(title="t", findings=(finding(**changed),)))).text
        assert shown in text.replace("\xa0", " ")


class TestContents:
    def test_an_unknown_chapter(self) -> None:
        with pytest.raises(ValueError, match="no chapter 'fig9', only fig1, fig2"):
            Contents(title="t", notes={"fig9": ("Lost.",)})

    def test_truth_values_of_a_table_become_verdicts(self) -> None:
        grid = Grid.from_table(Table({"met": [True, False]}), "published", "Differences")
        assert grid.rows == (("met",), ("not met",))

    def test_every_chapter_may_have_notes(self) -> None:
        notes = {name: (f"About {name}.",) for name in CHAPTERS}
        text = Reader(page(Contents(title="t", notes=notes))).text
        assert all(f"About {name}." in text for name in CHAPTERS)


def test_write(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write(path, FULL)
    assert path.read_text(encoding="utf-8") == page(FULL)
    assert [*tmp_path.iterdir()] == [path]
