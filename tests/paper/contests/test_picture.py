"""Pictures of invented figures, some of which are missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from fedbo_paper.contests import picture
from fedbo_paper.contests.best_first import BEST_FIRST
from fedbo_paper.contests.outside import TOLD, TPE

AT = ("5", "10", "20")


def made_up(*names: str) -> dict:
    policies = {
        name: {"to_target": [9.5, 1.0], "seeds": 3, "curve": [0.5**i for i in range(50)] + [0.0]}
        for name in names
    }
    return {"default": "mine", "policies": policies}


def released(*members: str) -> dict:
    shares = {"0.5": {"10": [0.5, -2.0, None]}, "2": {"10": [0.9, 0.7, 1.1]}}
    by_members = {N: {"ratio_ei": {}, "kept": shares} for N in members}
    return {"members": by_members, "ground": "synthetic", "delta": 1e-3}


def draw(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["picture.py", *map(str, arguments)])
    picture.main()


@pytest.mark.slow
def test_every_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = made_up("EI", "TS", "mine", BEST_FIRST, TOLD, TPE), made_up("EI", "TS", "mine")
    written = {
        "svm": one,
        "landmine": two | {"boxes": {"linear": two, "log": two}},
        "private": released("10", "1000"),
    }
    paths = {name: tmp_path / f"{name}.json" for name in written}
    for name, result in written.items():
        paths[name].write_text(json.dumps(result))
    given = ["--regret", paths["svm"], paths["landmine"]]
    given += ["--private", paths["private"]]
    draw(monkeypatch, tmp_path / "new" / "folder", *given)
    drawn = {path.name: path.stat().st_size for path in (tmp_path / "new" / "folder").iterdir()}
    assert {*drawn} == {"regret.png", "kept.png"}
    assert max(drawn.values()) < 100_000


def test_regret_is_drawn_from_the_first_trial() -> None:
    one = made_up("EI", "TS", "mine", BEST_FIRST, TOLD, TPE)
    one["policies"][TPE]["seeds"] = 1
    figure = picture.regrets({"SVM table": one})
    [axes], [legend] = figure.axes, figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["fedbo (mine)", "EI alone", BEST_FIRST, TOLD, f"{TPE}, 1 seed only"]
    assert axes.get_xlabel() == "trials"
    for line in axes.get_lines():
        assert line.get_xdata()[0] == 1 and line.get_ydata()[0] == 1.0
        assert np.isnan(line.get_ydata()[-1])  # a regret of 0


def test_what_releases_keep_has_a_panel_for_each_file() -> None:
    left, right = picture.kept([released("10", "1000"), released("28")]).axes
    assert [text.get_text() for text in left.get_legend().get_texts()] == [
        "10 members",
        "1,000 members",
    ]
    assert len(right.get_legend().get_texts()) == 1
    assert [tick.get_text() for tick in right.get_xticklabels()] == ["0.5", "2"]


@pytest.mark.parametrize("text", ["", "[]", '{"other": 1}'])
def test_a_foreign_file_is_refused(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "foreign.json"
    path.write_text(text)
    with pytest.raises(SystemExit, match=r"foreign\.json"):
        draw(monkeypatch, tmp_path, "--regret", path)


def test_nothing_to_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="nothing to draw"):
        draw(monkeypatch, tmp_path)


def test_a_file_of_an_older_contest_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"default": "TipsThenPool", "policies": {"EI": {"curve": [0.1]}}}))
    with pytest.raises(SystemExit, match="an older one wrote it: it has no 'to_target'"):
        draw(monkeypatch, tmp_path, "--regret", path)
