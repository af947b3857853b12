"""What a private release is worth, on a tiny table and on invented regrets."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.contest import grounds, peers, private
from benchmarks.contest.runs import EI
from fedbo.federation.shared import Shared

SHORT = ("--seeds", 1, "--draws", 2, "--jobs", 1, "--trials", 5, "--history", 4)


def test_a_table_from_file_to_json(path: Path, command: Any) -> None:
    out = path.with_name("out.json")
    some = ("--members", 1, "--epsilon", "2,inf", "--messages", "--cache", path.parent)
    command(private.main, path, *SHORT, *some, "--json", out)
    result = json.loads(out.read_text())
    assert (result["targets"], result["seeds"], result["draws"]) == (3, 1, 2)
    assert 0 < result["spent"]["2"] <= 2 and [*result["spent"]] == ["2"]
    figures = result["members"]["1"]
    assert [*figures["ratio_ei"]] == ["2", "inf", "messages"]
    assert [*figures["ratio_null"]] == [*figures["ratio_inf"]] == ["2"]
    assert [*figures["ratio_messages"]] == ["2", "inf"]
    assert [*figures["ratio_ei"]["2"]] == ["1", "2", "3", "5"]


def test_a_newcomer_begins_in_the_cell_with_most_votes(ground: grounds.Listed) -> None:
    agreed = private.planned(ground, np.inf, 1e-3)
    history = [(ground.params(row), float(row == 7)) for row in range(10)]
    members = [peers.message(agreed, n, history, 0) for n in range(1, 5)]
    first, *_ = private.play(ground, agreed, members, [0, 0], 10, 0, 0, 3)
    row = int(np.flatnonzero(ground.Y[0] == first)[0])
    cell = Shared.of(agreed).cell
    assert cell(ground.X[row]) == cell(ground.X[7])


def test_ratios_of_invented_regrets() -> None:
    targets, seeds, draws = 4, 2, 3
    alone = np.full((targets, seeds, 8), 0.4)
    own = np.full((targets, seeds * draws, 8), 0.2) + np.tile([-0.1, 0.0, 0.1], seeds)[:, None]
    regret = {
        EI: alone,
        "1, 9 members": own,
        "inf, 9 members": np.full(own.shape, 0.1),
        "messages, 9 members": np.full(alone.shape, 0.3),
        "null 1, 9 members": np.full(own.shape, 0.4),
    }
    result = private.summary(regret, 9, argparse.Namespace(epsilon=[1.0, np.inf], trials=5))
    ratios = {
        key: {name: by_n["5"].value for name, by_n in by_name.items()}
        for key, by_name in result.items()
    }
    assert ratios == {
        "ratio_ei": pytest.approx({"1": 1 / 2, "inf": 1 / 4, "messages": 3 / 4}),
        "ratio_null": pytest.approx({"1": 1 / 2}),
        "ratio_inf": pytest.approx({"1": 2.0}),
        "ratio_messages": pytest.approx({"1": 2 / 3, "inf": 1 / 3}),
    }
