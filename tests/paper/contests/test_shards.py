"""Three sites with real training, together and alone, from the command to its JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbo_paper.contests import shards


def test_together_and_alone_from_command_to_json(
    tmp_path: Path, command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    short = ("--data", "wine", "--seeds", 2, "--trials", 5, "--jobs", 1)
    command(shards, *short, "--json", out)
    result = json.loads(out.read_text())
    assert (result["sites"], result["seeds"]) == (3, 2)
    both, alone = (np.array(result["runs"][name]) for name in ("together", "alone"))
    assert both.shape == alone.shape == (2, 3, 5)
    assert not np.array_equal(both, alone)
    assert [*result["at"]] == ["1", "2", "3", "5"]
    found = result["at"]["5"]
    value, low, high = found["difference"]
    assert low <= value <= high
    assert value == pytest.approx(found["together"] - found["alone"])
    assert value == pytest.approx((both.min(axis=-1) - alone.min(axis=-1)).mean(), abs=1e-5)
    assert 0 < found["better"] + found["worse"] <= 6
    assert "wine, 3 sites: mean lowest log loss" in capsys.readouterr().out


def test_parts_are_disjoint_and_drawn_by_seed() -> None:
    one, again, other = (shards.Shards("wine", seed) for seed in (0, 0, 1))

    def rows(ground: shards.Shards) -> list[set[bytes]]:
        """Return the rows of each site; the rows of this data set all differ."""
        return [{row.tobytes() for X in split[:2] for row in X} for split in ground._splits]

    assert sorted(map(len, rows(one))) == [59, 59, 60] and len(set.union(*rows(one))) == 178
    assert rows(one) == rows(again) != rows(other)
