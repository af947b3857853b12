"""A real deployment on loopback by deploy/flower.sh, as docs/reference/flower.md shows it."""

import re
import shutil
import ssl
import time

import pytest
from flower.processes import ROOT, environment, free_ports, is_healthy, started, wait_for

import fedbo

SCRIPT = ROOT / "deploy" / "flower.sh"
CLINICS = ("clinic-a", "clinic-b", "clinic-c")
ROUNDS, TRIALS = 4, 2


def trials(folder, clinic):
    paths = [*folder.glob(f"sites/*/{clinic}-*/agent.fedbo")]
    return fedbo.Agent.load(paths[0]).trials if paths else []


def make_app(folder):
    """Write an app with an objective that takes a second."""
    from fedbo.flower.new import write_app

    write_app(folder)
    objective = folder / "fleet_app" / "objective.py"
    text = objective.read_text()
    assert "    def score(params: dict[str, float]) -> float:\n" in text
    text = text.replace("import math\n", "import math\nimport time\n").replace(
        "-> float:\n        #", "-> float:\n        time.sleep(1.0)\n        #"
    )
    objective.write_text(text)
    project = folder / "pyproject.toml"
    config = {"rounds": ROUNDS, "trials": TRIALS, "nodes": len(CLINICS), "timeout": 120}
    for name, value in config.items():
        project.write_text(re.sub(rf"\n{name} = \d+", f"\n{name} = {value}", project.read_text()))
    return folder


@pytest.mark.slow
@pytest.mark.fleet
@pytest.mark.skipif(
    not all(map(shutil.which, ("openssl", "ssh-keygen"))), reason="openssl or ssh-keygen is missing"
)
def test_a_fleet_with_tls_and_keys_survives_a_kill_and_refuses_a_stranger(tmp_path):
    fleet, app = tmp_path / "fleet", make_app(tmp_path / "fleet-app")
    port, *node_ports = free_ports(5)
    env = environment(tmp_path, FLEET=str(fleet), PORT=str(port))
    env["FEDBO_STATE"] = str(fleet / "state")
    node_port = dict(zip((*CLINICS, "stranger"), map(str, node_ports), strict=True))
    with started() as start:

        def step(*arguments, **more):
            log = tmp_path / f"{'-'.join(map(str, arguments[:2]))}.log".replace("/", "_")
            return start([str(SCRIPT), *map(str, arguments)], log, {**env, **more})

        def node(clinic):
            return step("supernode", clinic, NODE_PORT=node_port[clinic])

        def done(*arguments):
            process = step(*arguments)
            assert process.returned(60) == 0, process.text()

        done("certificates")
        step("superlink")
        url = f"https://127.0.0.1:{port}"
        trusted = ssl.create_default_context(cafile=fleet / "ca.crt")
        wait_for(lambda: is_healthy(url, verify=trusted), 60, "the SuperLink is ready, with TLS")
        done("connect")
        for name in (*CLINICS, "stranger"):
            done("key", name)
        for clinic in CLINICS:
            done("register", clinic)
        stranger = node("stranger")  # it has a key, but nobody registered it
        assert stranger.returned(60) != 0
        assert "Failed to activate SuperNode" in stranger.text()
        nodes = {clinic: node(clinic) for clinic in CLINICS}
        run = step("run", app)

        victim = "clinic-b"
        wait_for(lambda: bool(trials(fleet, victim)), 120, f"{victim} has begun a trial")
        nodes[victim].kill()
        before = trials(fleet, victim)
        deadline = time.monotonic() + 300
        while run.is_running() and time.monotonic() < deadline:
            if not nodes[victim].is_running():  # the SuperLink takes it again after a minute
                nodes[victim] = node(victim)
            time.sleep(2)
        assert run.returned(1) == 0, run.text()
        log = run.text()
        assert f"round {ROUNDS} of {ROUNDS}" in log, log
    after = {clinic: trials(fleet, clinic) for clinic in CLINICS}
    for clinic in CLINICS:
        if clinic != victim:
            assert len(after[clinic]) >= (ROUNDS - 1) * TRIALS  # it may be late once
            assert {trial.state for trial in after[clinic]} <= {"complete", "pending"}
    # nothing that the victim had is lost: its trials are the same, and none was begun twice
    kept = after[victim][: len(before)]
    assert [trial.params for trial in kept] == [trial.params for trial in before]
    assert [trial.number for trial in after[victim]] == [*range(len(after[victim]))]
    assert sum(trial.state == "complete" for trial in after[victim]) >= TRIALS  # it took part again
    assert not [*fleet.glob("sites/*/stranger-*")]
