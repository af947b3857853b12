"""Files that version 0.1.0 wrote are read, and their agents continue with the same queries."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbo import PTS, Agent, Federation, FileRefused, Message
from fedbo.agent import savefile
from fedbo.exchange import FolderExchange, Ledger
from fedbo_paper.preset import PAPER

FILES = Path(__file__).parents[1] / "fixtures" / "v0.1"
EXPECTED: dict[str, Any] = json.loads((FILES / "expected.json").read_text())


def score(C: float, gamma: float, best: float = 0.2) -> float:
    return -((math.log10(C) - best) ** 2) - (math.log10(gamma) - 0.5) ** 2


@pytest.mark.parametrize("name", ["fts", "rgpe", "taf", "paper"])
def test_an_agent_continues_with_the_same_queries(name: str) -> None:
    settings = PAPER if name == "paper" else None  # which no file holds
    agent = Agent.load(FILES / f"agent-{name}.fedbo", settings=settings)
    expected = EXPECTED[name]
    for params in expected["next"]:
        trial = agent.ask()
        assert trial.params == pytest.approx(params, rel=1e-9)
        agent.tell(trial, score(**trial.params, best=0.1 if name == "paper" else 0.2))
    if "sources" in expected:
        assert [trial.source for trial in agent.trials] == expected["sources"]
        assert agent.best is not None
        assert agent.best.params == pytest.approx(expected["best"], rel=1e-9)


def test_an_agent_with_pts_continues_with_all_its_trials_and_messages() -> None:
    """PTS itself has changed since: it asks elsewhere, but from what the file says."""
    agent, again = (Agent.load(FILES / "agent-pts.fedbo") for _ in range(2))
    expected = EXPECTED["pts"]
    known = len(agent.trials)
    sources = [trial.source for trial in agent.trials]
    assert known >= 5 and sources == expected["sources"][:known]
    assert agent.policy == PTS() and agent.federation.kind == "weights"
    for one in (agent, again):
        for _ in expected["next"]:
            trial = one.ask()
            one.tell(trial, score(**trial.params))
    assert [trial.params for trial in agent.trials] == [trial.params for trial in again.trials]
    assert [trial.number for trial in agent.trials] == [*range(known + len(expected["next"]))]
    assert {trial.source for trial in agent.trials[known:]} <= {"own", "pool"}
    assert any(trial.trust for trial in agent.trials[known:])  # it listens to what it had received


@pytest.mark.parametrize("policy", ["pts", "fts", "rgpe", "taf"])
def test_an_agent_hands_out_the_same_message(policy: str) -> None:
    message = Message.decode(bytes.fromhex(EXPECTED[policy]["message"]))
    assert Agent.load(FILES / f"agent-{policy}.fedbo").message() == message


@pytest.mark.parametrize("policy", ["pts", "fts", "rgpe", "taf"])
def test_an_agent_keeps_its_messages(policy: str, tmp_path: Path) -> None:
    agent = Agent.load(FILES / f"agent-{policy}.fedbo")
    inbox = agent.inbox
    assert len(inbox) == 3 and np.isfinite(inbox.omega).all()
    assert inbox.chance.tolist() == [agent.policy.chance(sender) for sender in inbox.senders]
    agent.save(tmp_path / "again.fedbo")
    again = Agent.load(tmp_path / "again.fedbo").inbox
    for key, value in inbox.state().items():
        np.testing.assert_array_equal(again.state()[key], value, err_msg=key)


def test_a_federation_file_has_the_same_fingerprint() -> None:
    assert str(Federation.load(FILES / "federation.toml").fingerprint) == EXPECTED["fingerprint"]


def test_a_message_is_decoded_and_encoded_to_the_same_bytes() -> None:
    data = (FILES / "message.bin").read_bytes()
    message = Message.decode(data)
    assert message.encode() == data
    Federation.load(FILES / "federation.toml").check(message)


def test_a_folder_of_messages_is_fetched() -> None:
    federation = Federation.load(FILES / "federation.toml")
    messages = FolderExchange(FILES / "folder").fetch(federation)
    assert len(messages) == len([*(FILES / "folder").rglob("*.fedbo")])


def test_the_log_of_what_left_is_read() -> None:
    path = FILES / "releases.jsonl"
    entries = [*Ledger(path).read()]
    assert len(entries) == len(path.read_text().splitlines())
    for entry in entries:
        assert (entry.message().sender, entry.federation) == (entry.agent, EXPECTED["fingerprint"])


def test_the_papers_settings_must_be_given_again() -> None:
    with pytest.raises(FileRefused, match=r"agent-paper.fedbo needs .*fedbo_paper\.preset\.PAPER"):
        Agent.load(FILES / "agent-paper.fedbo")


def test_settings_that_no_version_has_are_refused(tmp_path: Path) -> None:
    saved = savefile.read(FILES / "agent-pts.fedbo")
    for repeats, why in (("random", "needs its agent's settings"), ("often", "'often'")):
        assert saved.settings is not None
        saved.settings["repeats"] = repeats
        savefile.write(tmp_path / "agent", saved)
        with pytest.raises(FileRefused, match=why):
            Agent.load(tmp_path / "agent")
