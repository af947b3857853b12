"""Liars send what is accepted and what they are said to send; the contest, from command to JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo_paper.contests import contest, families, liars, poison
from fedbo_paper.contests.grounds import Listed
from fedbo_paper.contests.liars import LIES, Scene, Turn

TARGET, LYING, SOME = 1, [0, 2, 3], 0.4


@pytest.fixture(scope="module")
def scene() -> Scene:
    ground = Listed(*families.make("similar", 2, tasks=5, points=80))
    known = [contest.alone(ground, task, 0, 12) for task in range(5)]
    return Scene(ground, known, TARGET, 0)


@pytest.fixture
def target(scene: Scene) -> fedbo.Agent:
    """An agent that has made some trials alone."""
    first = scene.ground.initial(TARGET, 0)
    agent = contest.started(scene.ground, fedbo.EI(), TARGET, 0, first, agreed=scene.agreed)
    contest.evaluate(agent, scene.ground, TARGET, liars.DRIFT)
    return agent


def values(scene: Scene, message: fedbo.Message) -> np.ndarray:
    """The mean of a message at all points."""
    return scene.points @ message.nu.astype(float)


@pytest.mark.parametrize("name", LIES)
def test_every_lie_is_accepted(name: str, scene: Scene, target: fedbo.Agent) -> None:
    agent = fedbo.Agent(scene.agreed, name="receiver")
    assert agent.receive(LIES[name](Turn(scene, LYING, 0))) == len(LYING)
    assert {message.sender for message in LIES[name](Turn(scene, LYING, 0))} == {
        f"task-{n}" for n in LYING
    }
    later = LIES[name](Turn(scene, LYING, liars.DRIFT, target))
    answers = name in ("drifting", "adaptive")
    assert agent.receive(later) == (len(LYING) if answers else 0)


@pytest.mark.parametrize("name", ["bait", "scaled"])
def test_the_maximum_of_a_bait_is_near_the_bait(name: str, scene: Scene) -> None:
    worst = scene.ground.X[scene.ground.Y[TARGET].argmin()]
    for message in LIES[name](Turn(scene, LYING, 0)):
        praised = scene.ground.X[values(scene, message).argmax()]
        assert np.linalg.norm(praised - worst) < 0.2


def test_flipped_messages_contradict_honest_ones(scene: Scene) -> None:
    for n in LYING:
        honest, flipped = scene.honest[n], scene.flipped[n]
        assert np.corrcoef(values(scene, honest), values(scene, flipped))[0, 1] < -0.8


def test_a_scaled_message_is_as_large_and_as_certain_as_possible(scene: Scene) -> None:
    (message,) = LIES["scaled"](Turn(scene, [0], 0))
    assert message.counts.min() == 4  # three trials and more in every cell
    larger = liars._certain(scene.agreed, message, liars.STEP * message.nu)
    with pytest.raises(fedbo.MessageRefused, match="nu has norm"):
        scene.agreed.check(larger)


def test_a_drifting_liar_is_honest_at_first(scene: Scene) -> None:
    assert LIES["drifting"](Turn(scene, LYING, 0)) == [scene.honest[n] for n in LYING]
    later = LIES["drifting"](Turn(scene, LYING, liars.DRIFT))
    assert [message.nu.tolist() for message in later] == [scene.baits[n].nu.tolist() for n in LYING]


def test_an_adaptive_liar_agrees_with_the_target_and_praises_a_bad_point(
    scene: Scene, target: fedbo.Agent
) -> None:
    heard = target.message()
    answer = liars.agreeing(scene, heard)
    tried = [scene.ground.row(trial.params) for trial in target.trials]
    said, known = values(scene, answer)[tried], values(scene, heard)[tried]
    assert np.corrcoef(said, known)[0, 1] > 0.9
    praised = int(values(scene, answer).argmax())
    assert praised not in tried
    assert scene.ground.Y[TARGET, praised] <= np.median(scene.ground.Y[TARGET])


def test_false_votes_are_for_the_cell_of_the_bait(scene: Scene) -> None:
    worst = scene.ground.X[scene.ground.Y[TARGET].argmin()]
    cells = {given.cell for given in scene.false_votes}
    assert cells == {scene.agreed.cell(worst)}
    _, published = poison.publish(scene, scene.false_votes, 1000.0, 0)
    assert int(np.argmax(published.votes)) in cells


def test_liars_are_a_share_of_the_members(scene: Scene) -> None:
    for share, lying in ((0.0, 0), (0.4, 2), (1.0, 4)):
        some, others = poison.divided(scene, share, 3)
        assert len(some) == lying
        assert sorted(some + others) == [0, 2, 3, 4]


def test_silent_liars_change_nothing(scene: Scene) -> None:
    _, others = poison.divided(scene, SOME, 0)
    honest = [scene.honest[n] for n in others]
    expected = contest.run(scene.ground, fedbo.TipsThenPool(), honest, TARGET, 0, 7)
    assert poison.among(liars.silent, SOME, scene, 0, 7) == expected


def test_from_command_to_json(
    tmp_path: Path,
    command: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def short_histories(ground: Listed, *_: object) -> list[list[contest.History]]:
        return [[contest.alone(ground, task, 0, 6) for task in range(ground.tasks)]]

    monkeypatch.setattr(contest, "histories", short_histories)
    out, path = tmp_path / "out.json", tmp_path / "table.npz"
    X, Y = families.make("similar", 4, tasks=3, points=200)
    np.savez(path, accuracy=Y, config=X)
    some = ("--lie", "bait,false votes", "--useless", "worst,half", "--ground", "svm")
    short = ("--seeds", 1, "--jobs", 1, "--trials", 5, "--targets", "odd")
    arguments = (*some, *short, "--table", path, "--cache", tmp_path, "--json", out)
    command(poison, *arguments)
    result = json.loads(out.read_text())
    assert {*result} >= {"lies", "aims", "useless", "runs", "epsilon", "delta"}
    assert [*result["lies"]["svm"]] == ["40 %", "100 %"]
    for by_lie in result["lies"]["svm"].values():
        assert [*by_lie] == ["bait", "false votes"]
        for figures in by_lie.values():
            value, low, high = figures["ratio"]["5"]
            assert value == pytest.approx(figures["regret"]["5"] / figures["without"]["5"])
            assert low <= value <= high
            more = figures["regret"]["5"] - figures["without"]["5"]
            assert figures["difference"]["5"][0] == pytest.approx(more)
    assert {*result["useless"]["svm"]["half"]["delay"]} == {"5"}
    assert result["aims"]["40 %"] == {"limit": 1.1, "ratios": 0, "above": {}}
    arms = result["runs"]["svm"]
    assert np.shape([*arms.values()]) == (len(arms), 1, 1, 5)
    assert "40 % of the members lie" in (shown := capsys.readouterr()).out
    assert "svm has 1 target." in shown.err
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "poison").iterdir()}
    command(poison, *arguments)
    assert json.loads(out.read_text()) == result
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "poison").iterdir()} == files
