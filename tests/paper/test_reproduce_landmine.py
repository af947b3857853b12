"""`fedbo reproduce fig2 --only landmine` as its users run it."""

from __future__ import annotations

from pathlib import Path

import pytest
from paper.commands import SEED, findings, reproduce
from paper.real_data import folder_with

from fedbo.table import Table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def landmine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data, out = folder_with("LandmineData.mat"), tmp_path_factory.mktemp("landmine")
    some = ("--only", "landmine", "--quick", "--seed", SEED, "--jobs", "2", "--data", str(data))
    reproduce("fig2", *some, out=out)
    return out


def test_landmine_messages_are_as_long_as_the_paper_says(landmine: Path) -> None:
    found = findings(landmine)
    assert found["message-length", "paper"].verdict == "holds"
    assert found["fewer-parameters-than-taf", "paper"].verdict == "holds"


def test_landmine_has_every_method_and_improves_on_its_initial_points(landmine: Path) -> None:
    runs = Table.from_csv(landmine / "runs.csv")
    assert {*runs["method"].tolist()} == {"TS", "FTS", "RGPE", "TAF"}
    for method in ("TS", "FTS", "RGPE", "TAF"):
        of = runs.where(method=method)
        gain = of.where(iteration=50)["best"].mean() - of.where(iteration=0)["best"].mean()
        assert gain > 0.05
    assert (runs["best"] <= 1.0).all()
