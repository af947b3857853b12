"""`fedbo explain` for stored studies, and for agents with settings of another package."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from typer.testing import CliRunner, Result

from fedbo import FTS, RGPE, TS, Agent, Federation, Float, Space, files
from fedbo.cli import app as cli
from fedbo.exchange import MemoryExchange
from fedbo.optuna import FederatedSampler, join, stored, studies
from fedbo.policy import Policy
from fedbo.table import Table
from fedbo_paper.preset import paper_agent, paper_federation

pytestmark = pytest.mark.usefixtures("patient")

STORAGE = "sqlite:///site.db"
SPACE = Space({"x": Float(0, 1), "y": Float(0, 1)}, direction="minimize")
FEDERATION = Federation(SPACE, features=30)


@pytest.fixture(autouse=True)
def _a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    FEDERATION.save("federation.toml")
    yield
    optuna.logging.set_verbosity(verbosity)


def invoke(*args: str) -> Result:
    wide = {"COLUMNS": "120", "TERM": "dumb", "NO_COLOR": "1"}
    return CliRunner().invoke(cli.app, ["explain", *args], env=wide)


def said(result: Result) -> str:
    return " ".join(result.output.replace("│", " ").split())


def explain(*args: str, study: str = "a") -> Result:
    return invoke("--storage", STORAGE, "--study", study, *args)


def score(x: float, y: float) -> float:
    return (x - 0.3) ** 2 + (y - 0.6) ** 2


def objective(trial: optuna.Trial) -> float:
    value = score(trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1))
    if trial.number in (1, 4):
        raise RuntimeError
    return value


def with_peers(federation: Federation, policy: Callable[[], Policy] = TS) -> MemoryExchange:
    """An exchange with messages of two peers with 10 trials each."""
    exchange = MemoryExchange()
    for i in range(2):
        peer = Agent(federation, policy(), name=f"peer-{i}", seed=i)
        for _ in range(10):
            trial = peer.ask()
            peer.tell(trial, score(**trial.params))  # type: ignore[arg-type]
        exchange.publish(peer.message())
    return exchange


def run(sampler: FederatedSampler, trials: int = 14, name: str = "a") -> optuna.Study:
    study = studies.create(STORAGE, name, "minimize", sampler)
    study.optimize(objective, n_trials=trials, catch=(RuntimeError,))
    sampler.flush()
    return study


def helped(**options: Any) -> optuna.Study:
    return run(join.sampler(FEDERATION, with_peers(FEDERATION), name="site-a", seed=1, **options))


# A stored study


def test_a_stored_study_is_explained_and_only_read(tmp_path: Path) -> None:
    study = helped()
    best = study.best_trial
    del study
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    result = explain("--federation", "federation.toml", "--draws", "2", "--csv", "tables")
    assert result.exit_code == 0, result.output
    assert "Agent site-a: 14 trials, the best score is" in said(result)
    assert f"(trial {best.number}, pool" in said(result)
    assert "What each peer contributed" in said(result) and "saved (90 %:" in said(result)
    assert {path: path.read_bytes() for path in files} == files
    queries = Table.from_csv("tables/queries.csv")
    trials = optuna.load_study(study_name="a", storage=STORAGE).trials
    assert queries["trial"].tolist() == [trial.number for trial in trials]
    assert queries["score"][[0, 13]].tolist() == [trials[0].value, trials[13].value]
    assert queries["state"][[1, 4]].tolist() == ["failed", "failed"]


def test_names_of_peers_in_a_study_do_not_reach_the_screen_as_they_are() -> None:
    study, evil = helped(), {"\x1b[2Jevil\nline": 1.0}

    def hostile(trial: optuna.Trial) -> float:
        objective(trial)
        storage = study._storage
        query = storage.get_trial(trial._trial_id).system_attrs["fedbo:query"]
        query |= {"source": "peer", "credit": evil, "peer": next(iter(evil))}
        storage.set_trial_system_attr(trial._trial_id, "fedbo:query", query)
        return -9.0

    study.optimize(hostile, n_trials=1)
    result = explain("--federation", "federation.toml", "--draws", "1")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output and r"peer: \x1b[2Jevil\nline)" in said(result)
    agent = stored.stored_agent(studies.existing(STORAGE, "a"), FEDERATION)
    assert "\x1b" not in str(agent.explain(1))


@pytest.mark.parametrize("what", ["pipe", "junk", "folder"])
def test_a_file_that_is_no_agent_is_refused(what: str) -> None:
    if what == "pipe":
        os.mkfifo("agent")
    elif what == "folder":
        os.mkdir("agent")
    else:
        Path("agent").write_bytes(files.seal("fedbo agent 1", b"\x85\xa3"))
    result = invoke("agent")
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit)
    assert "agent holds" in said(result)


def test_scores_at_the_limits_of_numbers_are_explained() -> None:
    agent = Agent(FEDERATION, seed=0)
    for i, extreme in enumerate((1e308, -1e308, *[0.0] * 8)):
        agent.tell({"x": i / 10, "y": 0.5}, extreme)
    agent.save("agent")
    result = invoke("agent", "--draws", "1")
    assert result.exit_code == 0, result.output


def test_a_study_without_a_federation_is_explained() -> None:
    study = run(FederatedSampler(seed=1), trials=6)
    result = explain("--draws", "2")
    assert result.exit_code == 0, result.output
    assert f"trial {study.best_trial.number}, " in said(result)
    assert "None of the 4 queries came from peers" in said(result)
    refused = explain("--federation", "federation.toml")
    assert refused.exit_code == 1
    assert "run without a federation file: leave out --federation" in said(refused)


def test_a_policy_that_blends_beliefs_is_explained_without_the_messages() -> None:
    federation = Federation(SPACE, features=30, kind="belief")
    federation.save("federation.toml")
    run(join.sampler(federation, with_peers(federation, RGPE), seed=1), trials=12)
    result = explain("--federation", "federation.toml", "--draws", "2")
    assert result.exit_code == 0, result.output
    assert "saved (90 %:" in said(result)


def test_the_rebuilt_agent_explains_as_the_one_that_ran() -> None:
    study = helped()
    assert isinstance(study.sampler, FederatedSampler) and study.sampler.agent is not None
    first = study.sampler.agent.explain(draws=2)
    again = stored.stored_agent(studies.existing(STORAGE, "a"), FEDERATION).explain(draws=2)
    assert str(first) == str(again)
    assert first.queries == again.queries


def test_numbers_are_those_of_the_study() -> None:
    study = studies.create(STORAGE, "a", "minimize", FederatedSampler(FEDERATION, seed=0))
    study.enqueue_trial({"x": 0.5, "y": 0.5})  # runs where the agent did not ask
    study.enqueue_trial({"x": 0.25})
    study.optimize(objective, n_trials=8, catch=(RuntimeError,))
    explained = stored.stored_agent(study, FEDERATION).explain()
    assert explained.queries["trial"].tolist() == list(range(8))
    assert explained.best_trial == study.best_trial.number
    values = [math.nan if trial.value is None else trial.value for trial in study.trials]
    assert explained.queries["score"].tolist() == pytest.approx(values, nan_ok=True)


def test_another_epoch_of_the_federation_explains_the_same() -> None:
    run(FederatedSampler(FEDERATION, seed=0), trials=5)
    later = Federation(SPACE, features=30, length_scale=0.5, epoch=1)
    assert stored.stored_agent(studies.existing(STORAGE, "a"), later).explain().best < 1.0


# What is wrong


def test_a_study_that_cannot_be_explained_is_refused() -> None:
    missing = explain()
    assert missing.exit_code == 1
    assert "there is no study 'a' in sqlite:///site.db: there is no file" in said(missing)
    assert not Path("site.db").exists()
    helped()
    studies.create(STORAGE, "new", "minimize")
    other = studies.create(STORAGE, "other", "minimize", optuna.samplers.RandomSampler(seed=0))
    other.optimize(objective, n_trials=1)
    Federation(SPACE, features=31).save("other.toml")
    cases = [
        (explain(study="b"), "there is no study 'b' in sqlite:///site.db; its studies are 'a', "),
        (explain(study="new"), "study 'new' has no score yet: run a trial first"),
        (explain(study="other"), "study 'other' has no trial that fedbo asked for"),
        (explain("--federation", "other.toml"), "Give the file that the study was run with"),
        (explain("--federation", "other.toml"), str(FEDERATION.fingerprint)),
    ]
    Path("federation.toml").rename("elsewhere.toml")
    cases += [
        (explain(), "takes part in the federation"),
        (explain(), "give its file with --federation"),
    ]
    for result, problem in cases:
        assert result.exit_code == 1
        assert problem in said(result)


def test_the_usual_federation_file_is_found() -> None:
    helped()
    assert explain().exit_code == explain("--federation", "federation.toml").exit_code == 0


def test_a_file_or_a_study_is_given_and_not_both() -> None:
    for args, problem in [
        ([], "give a file that Agent.save wrote, or --storage and --study"),
        (["agent.fedbo", "--storage", STORAGE], "but not both"),
        (["agent.fedbo", "--federation", "federation.toml"], "but not both"),
        (["--storage", STORAGE], "give the name of the study in this storage"),
        (["--storage", STORAGE, "--study", "a", "--federation", "no.toml"], "cannot be read"),
    ]:
        result = invoke(*args)
        assert (result.exit_code, problem in said(result)) == (2, True), result.output


# Settings of another package


def test_an_agent_with_the_papers_settings_can_be_explained() -> None:
    agent = paper_agent(paper_federation(SPACE, features=30), name="paper", seed=0)
    for _ in range(4):
        trial = agent.ask()
        agent.tell(trial, score(**trial.params))  # type: ignore[arg-type]
    agent.save("agent.fedbo")
    refused = invoke("agent.fedbo")
    assert refused.exit_code == 1
    assert "(here: --settings fedbo_paper.preset:PAPER)" in said(refused)
    result = invoke("agent.fedbo", "--settings", "fedbo_paper.preset:PAPER", "--draws", "1")
    assert result.exit_code == 0, result.output
    assert "the best score is" in said(result)


@pytest.mark.parametrize("address", ["nowhere:X", "fedbo_paper.preset:NONE", "json", ":", "a.:b"])
def test_settings_that_are_not_there_are_refused(address: str) -> None:
    agent = Agent(FEDERATION, seed=0)
    agent.save("agent.fedbo")
    result = invoke("agent.fedbo", "--settings", address)
    assert (result.exit_code, "expected module:name" in said(result)) == (2, True)
    result = invoke("agent.fedbo", "--settings", "json:loads")
    assert (result.exit_code, "expected a fedbo.Settings" in said(result)) == (2, True)


def test_settings_may_be_in_the_current_folder() -> None:
    Path("my_settings.py").write_text("import fedbo\nMINE = fedbo.Settings(n_initial=5)\n")
    run(FederatedSampler(FEDERATION, seed=0), trials=3)
    args = ("--federation", "federation.toml", "--settings", "my_settings:MINE")
    assert explain(*args).exit_code == 0
    sys.modules.pop("my_settings")


def test_an_agent_with_a_policy_of_ones_own_says_what_to_do() -> None:
    class Mine(FTS, frozen=True):
        pass

    agent = Agent(FEDERATION, Mine(), seed=0)
    agent.tell({"x": 0.5, "y": 0.5}, 1.0)
    agent.save("agent.fedbo")
    result = invoke("agent.fedbo")
    assert result.exit_code == 1
    assert "Agent.load(path, policy=...)" in said(result)
    assert "print(agent.explain()) in Python" in said(result)
