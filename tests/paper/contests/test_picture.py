"""Pictures of invented figures, some of which are missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fedbo_paper.contests import picture

AT = ("5", "10", "20", "50")


def made_up(*names: str) -> dict:
    policies = {}
    for k, name in enumerate(names):
        ratio = {n: [0.5, 0.0, 0.9] for n in AT} | {"50": [None, None, None], "20": [1, 1, None]}
        policies[name] = {
            "regret": dict.fromkeys(AT, 0.1),
            "ratio_ei": ratio,
            "difference_ei": {n: [-0.1, -0.2, 0.0] for n in AT},
            "rank": dict.fromkeys(AT, 1.0 + k),
            "rank_difference": {n: [float(k), k - 0.5, k + 0.5] for n in AT},
            "seeds": 1 + k,
            "curve": [0.5**i for i in range(50)] + [0.0],
        }
    return {"default": "PTS", "policies": policies}


def family(solo: float) -> dict:
    return {
        "regret": dict.fromkeys(AT, 0.1),
        "solo_ei": dict.fromkeys(AT, solo),
        "ratio_ei": {n: [1.1, 0.4, 2.0] for n in AT},
        "delay": {n: [1.0, -2.0, 3.0] for n in AT[:3]},
        "reached": dict.fromkeys(AT[:3], True),
    }


def released(*members: str) -> dict:
    shares = {"0.5": {"10": [0.5, -2.0, None]}, "2": {"10": [0.9, 0.7, 1.1]}}
    by_members = {N: {"ratio_ei": {}, "kept": shares} for N in members}
    return {"members": by_members, "ground": "synthetic", "delta": 1e-3}


def rounded() -> dict:
    ratios = {"odd": {n: [1.0, 0.5, None] for n in (*AT[:3], "1-20")}}
    forms = {"summary": 2531, "4/2": 49, "EI": 0}
    return {"bytes": forms, "ratio": dict.fromkeys(forms, ratios)}


def draw(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["picture.py", *map(str, arguments)])
    picture.main()


@pytest.mark.slow
def test_every_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = made_up("EI", "TS", "FTS", "RGPE", "TAF", "PTS", "random", "Optuna TPE", "mine")
    one["policies"] |= made_up("Optuna GP", "portfolio (shares trials)")["policies"]
    two = made_up("EI", "TS", "PTS")
    peers = {"unrelated": family(0.1), "half": family(0.001)}
    written = {
        "svm": one,
        "landmine": two | {"boxes": {"linear": two, "log": two}},
        "har": two,
        "hostile": {"default": "PTS", "grounds": {"svm": peers, "synthetic": peers}},
        "private": released("10", "1000"),
        "bytes": {"grounds": {"svm": rounded(), "log": rounded()}},
    }
    given = []
    for name, result in written.items():
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(result))
        given += [f"--{name}", path]
    ranks = ["--ranks", tmp_path / "svm.json", tmp_path / "landmine.json"]
    draw(monkeypatch, tmp_path / "new" / "folder", *given, *ranks)
    drawn = {path.name: path.stat().st_size for path in (tmp_path / "new" / "folder").iterdir()}
    names = {*written, "ranks", "kept"} - {"private"}
    assert {*drawn} == {f"{name}.png" for name in names}
    assert max(drawn.values()) < 100_000


def test_the_same_policy_has_the_same_colour() -> None:
    known = [picture.colour(name) for name in (*picture.NAMED, *picture.OTHERS)]
    assert len({*known}) == len(known) == 12


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
        draw(monkeypatch, tmp_path, "--svm", path)


def test_nothing_to_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="nothing to draw"):
        draw(monkeypatch, tmp_path)


def test_a_file_without_ei_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"default": "PTS", "policies": {"TS": {"ratio": {}}}}))
    with pytest.raises(SystemExit, match="before contests ran EI alone"):
        draw(monkeypatch, tmp_path, "--svm", path)
