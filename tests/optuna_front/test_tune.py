"""Ray Tune's search by Optuna, without a cluster: docs/reference/sampler.md has it with one."""

from __future__ import annotations

from pathlib import Path

import pytest
from contracts.exchange import heard
from optuna.distributions import FloatDistribution

from fedbo import Federation, Float, Space
from fedbo.exchange import FolderExchange
from fedbo.optuna import FederatedSampler


def test_a_search_asks_is_saved_and_goes_on(tmp_path: Path) -> None:
    tune = pytest.importorskip("ray.tune.search.optuna")
    federation = Federation(Space({"x": Float(0, 1)}, direction="minimize"))
    exchange = FolderExchange(tmp_path / "exchange")
    sampler = FederatedSampler(federation, exchange, name="site", every=1)
    options = {"sampler": sampler, "metric": "loss", "mode": "min"}
    search = tune.OptunaSearch({"x": FloatDistribution(0, 1)}, **options)
    for trial in "abcd":
        loss = (search.suggest(trial)["x"] - 0.3) ** 2
        search.on_trial_complete(trial, {"loss": loss})
        search.save(str(tmp_path / "search"))
    search = tune.OptunaSearch(**options)
    search.restore(str(tmp_path / "search"))
    search.on_trial_complete("e", {"loss": search.suggest("e")["x"]})
    search._ot_study.sampler.flush(60.0)
    [message] = heard(exchange, federation)
    assert (message.sender, message.sequence) == ("site", 5)
