"""The example app, started by ``flwr run`` in Flower's own simulation."""

import shutil

import numpy as np
import pytest
from flower.processes import ROOT, environment, free_ports, is_healthy, started, wait_for

import fedbo

EXAMPLE = ROOT / "examples" / "flower"
SITES, ROUNDS, TRIALS = 10, 3, 3
SUPERLINK = ("flower-superlink", "--insecure", "--simulation")
SUPERLINK += ("--disable-runtime-dependency-installation",)


@pytest.mark.slow
def test_ten_simulated_sites_end_with_a_picture_and_the_queries_of_simulate(tmp_path, monkeypatch):
    (port,) = free_ports(1)
    env, out = environment(tmp_path), tmp_path / "out"
    (tmp_path / "flwr").mkdir()
    (tmp_path / "flwr" / "config.toml").write_text(
        f'[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    app = shutil.copytree(EXAMPLE, tmp_path / "app")
    with started() as start:
        start(
            [*SUPERLINK, "--port", str(port)],
            tmp_path / "superlink.log",
            env,
        )
        wait_for(lambda: is_healthy(f"http://127.0.0.1:{port}"), 60, "the SuperLink is ready")
        command = ["flwr", "run", str(app), "here", "--stream", "-c", f"folder='{out}'"]
        nodes = ["--federation-config", f"num-supernodes={SITES}"]
        run = start([*command, *nodes], tmp_path / "run.log", env)
        assert run.returned(300) == 0, run.text()
    (picture,) = out.glob("*/digits.png")
    assert f"The picture is in {picture}" in run.text()
    assert picture.stat().st_size > 20_000

    monkeypatch.syspath_prepend(EXAMPLE)
    from digits.task import FEDERATION, accuracy

    parties = [
        fedbo.Party(agent=fedbo.Agent(FEDERATION, name=f"site-{i}", seed=i), objective=accuracy(i))
        for i in range(SITES)
    ]
    fedbo.simulate(parties, (ROUNDS - 1) * TRIALS, every=TRIALS)
    trials = {
        agent.name: agent.trials
        for agent in map(fedbo.Agent.load, out.glob("*/sites/*/agent.fedbo"))
    }
    assert sorted(trials) == [party.agent.name for party in parties]
    for party in parties:
        mine, theirs = trials[party.agent.name], party.agent.trials
        assert [trial.source for trial in mine] == [trial.source for trial in theirs]
        for name in ("C", "gamma"):
            ours = [trial.params[name] for trial in mine]
            assert np.allclose(ours, [trial.params[name] for trial in theirs], rtol=1e-9)
        assert [trial.score for trial in mine] == [trial.score for trial in theirs]
