"""A federation run through Flower asks the same queries as `simulate` with the same seeds."""

import numpy as np
import pytest
from flower.loopback import Loopback, partition

import fedbo
from fedbo.flower import Rounds, client_app
from fedbo.flower.folders import site_folder

SITES, ROUNDS, TRIALS = 4, 4, 3
SPACE = {"x": fedbo.Float(0, 1), "n": fedbo.Int(1, 8), "c": fedbo.Categorical(["a", "b"])}


def score(site):
    def value(params):
        return -((params["x"] - 0.1 * site) ** 2) - 0.01 * (params["n"] - 4) ** 2

    return value


@pytest.mark.parametrize("kind", ["compact", "weights"])
def test_the_same_queries(kind, tmp_path):
    federation = fedbo.Federation(SPACE, kind=kind, seed=3)
    app = client_app(federation, lambda context: score(context.node_config["partition-id"]), seed=5)
    grid = Loopback(app, SITES, tmp_path, partition)
    Rounds(federation=federation).run(grid, grid.context(rounds=ROUNDS, trials=TRIALS))

    parties = [
        fedbo.Party(agent=fedbo.Agent(federation, name=f"site-{i}", seed=5 + i), objective=score(i))
        for i in range(SITES)
    ]
    fedbo.simulate(parties, (ROUNDS - 1) * TRIALS, every=TRIALS)
    heard = 0
    for i, party in enumerate(parties):
        folder = site_folder(federation, f"site-{i}", grid.context(i))
        agent = fedbo.Agent.load(folder / "agent.fedbo")
        assert [t.source for t in agent.trials] == [t.source for t in party.agent.trials]
        for ours, theirs in zip(agent.trials, party.agent.trials, strict=True):
            assert ours.params.keys() == theirs.params.keys()
            assert ours.params["n"] == theirs.params["n"]
            assert ours.params["c"] == theirs.params["c"]
            # `simulate` computes messages together, which may change their last bits
            assert np.isclose(ours.params["x"], theirs.params["x"], atol=1e-9)
        heard += sum(trial.source == "pool" for trial in agent.trials)
    assert heard or kind == "weights"
