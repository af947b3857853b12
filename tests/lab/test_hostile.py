"""Hostile peers send what is accepted and what they are said to send."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo
from benchmarks.contest import grounds, hostile, peers, runs
from benchmarks.contest.hostile import FAMILIES, Scene, Turn

TARGET, LYING = 1, [0, 2, 3]


@pytest.fixture(scope="module")
def scene() -> Scene:
    ground = grounds.synthetic(2, tasks=5, points=80)
    agreed = peers.federation(ground, peers.DEFAULT())
    sent = {}
    for sort, sign in (("honest", 1.0), ("negated", -1.0)):
        table = grounds.Listed(ground.X, sign * ground.Y)
        sent[sort] = peers.messages(agreed, [peers.alone(table, n, 0, 12) for n in range(5)], 0)
    return Scene(ground, sent | {"unrelated": sent["negated"]}, TARGET, 0)


@pytest.fixture
def target(scene: Scene) -> fedbo.Agent:
    """An agent that has made some trials alone."""
    first = scene.ground.initial(TARGET, 0)
    agent = runs.site(scene.ground, fedbo.EI(), TARGET, 0, first, agreed=scene.agreed)
    peers.evaluate(agent, scene.ground, TARGET, hostile.DRIFT)
    return agent


def values(scene: Scene, message: fedbo.Message) -> np.ndarray:
    """The mean of a message at all points."""
    return scene.points @ message.body.nu.astype(float)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_message_is_accepted(name: str, scene: Scene, target: fedbo.Agent) -> None:
    agent = fedbo.Agent(scene.agreed, name="receiver")
    messages = FAMILIES[name](Turn(scene, LYING, 0, agent))
    assert {message.sender for message in messages} == {f"task-{n}" for n in LYING}
    assert agent.receive(messages) == len(LYING)
    later = FAMILIES[name](Turn(scene, LYING, hostile.DRIFT, target))
    assert agent.receive(later) == (len(LYING) if name in ("drifting", "adaptive") else 0)


def test_baits_praise_the_worst_point(scene: Scene) -> None:
    worst = scene.ground.X[scene.ground.Y[TARGET].argmin()]
    praised = scene.ground.X[values(scene, scene.baits[0]).argmax()]
    assert np.linalg.norm(praised - worst) < 0.2


def test_an_adaptive_liar_agrees_with_the_target_and_praises_a_bad_point(
    scene: Scene, target: fedbo.Agent
) -> None:
    heard = target.message()
    answer = hostile.agreeing(scene, heard)
    tried = [scene.ground.row(trial.params) for trial in target.trials]
    assert np.corrcoef(values(scene, answer)[tried], values(scene, heard)[tried])[0, 1] > 0.9
    praised = int(values(scene, answer).argmax())
    assert praised not in tried
    assert scene.ground.Y[TARGET, praised] <= np.median(scene.ground.Y[TARGET])


def test_hostile_peers_are_a_share_of_all_and_silent_ones_change_nothing(scene: Scene) -> None:
    for share, size in ((0.4, 2), (1.0, 4)):
        some, others = hostile.divided(scene, share, 3)
        assert len(some) == size and sorted(some + others) == [0, 2, 3, 4]
    _, others = hostile.divided(scene, 0.4, 0)
    honest = [scene.sent["honest"][n] for n in others]
    expected = runs.play(scene.ground, peers.DEFAULT(), honest, TARGET, 0, 5)
    assert hostile.among(hostile.HONEST, 0.4, scene, 0, 5) == expected


def test_from_command_to_json(
    tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"DIMENSIONS": (1,), "INSTANCES": 1, "TASKS": 3}.items():
        monkeypatch.setattr(hostile, name, value)
    monkeypatch.setattr(peers.histories, "__defaults__", ("peers alone", 6))
    out = tmp_path / "out.json"
    short = ("--seeds", 1, "--jobs", 1, "--trials", 5, "--ground", "synthetic", "--share", 0.5)
    short += ("--family", "noise,worst", "--cache", tmp_path, "--json", out)
    command(hostile.main, *short)
    result = json.loads(out.read_text())
    assert [*result["grounds"]["synthetic"]] == [hostile.HONEST, "worst", "noise"]
    for figures in result["grounds"]["synthetic"].values():
        point, low, high = figures["delay"]["5"]
        assert low <= high and -5 <= point <= 4
        expected = figures["regret"]["5"] / figures["regret_ei"]["5"]
        assert figures["ratio_ei"]["5"][0] == pytest.approx(expected)
    assert np.shape([*result["runs"]["synthetic"].values()]) == (4, 3, 1, 5)
    with pytest.raises(SystemExit):
        command(hostile.main, "--share", 0)
