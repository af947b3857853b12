"""`fedbo study`: what it says, what it leaves, and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from cli import terminal
from contracts.exchange import heard

from fedbo import Agent, Categorical, Federation, Float, Message, Space
from fedbo.exchange import FolderExchange, Ledger, MemoryExchange
from fedbo.optuna import FederatedSampler
from fedbo.optuna.study import QUERY, read_record
from fedbo.table import Table

pytestmark = pytest.mark.usefixtures("patient")

FEDERATION = Federation(
    Space({"x": Float(0, 1), "k": Categorical(["a", "b"])}, direction="minimize"), features=20
)
STORAGE = "sqlite:///site.db"


def objective(trial: optuna.Trial) -> float:
    return trial.suggest_float("x", 0, 1) + (trial.suggest_categorical("k", ["a", "b"]) == "b")


@pytest.fixture(autouse=True)
def _a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with a federation and a log of its own."""
    monkeypatch.chdir(tmp_path)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    FEDERATION.save("federation.toml")
    yield
    optuna.logging.set_verbosity(verbosity)


@pytest.fixture
def study() -> optuna.Study:
    """A study of a usual sampler."""
    sampler = optuna.samplers.RandomSampler(seed=0)
    study = optuna.create_study(study_name="old", storage=STORAGE, sampler=sampler)
    study.optimize(objective, n_trials=3)
    return study


def said(command: str, *args: object, study: str = "old", code: int = 0, at: str = STORAGE) -> str:
    """Run a command of the group; return what it prints, wherever lines break."""
    return terminal.said("study", command, "--storage", at, "--study", study, *args, code=code)


# Publishing


def test_a_study_leaves_its_message_once(study: optuna.Study) -> None:
    text = said("publish", "--to", "shared", "--name", "site-a")
    [message] = heard(FolderExchange("shared"), FEDERATION)
    assert text.startswith(
        f"The message of site-a was published at {Path('shared').absolute()}. "
        f"federation {FEDERATION.fingerprint} about 3 trials "
        f"size {message.nbytes} bytes (compact) "
        f"signature with the key {message.signer} "
    )
    assert "already has this message of site-a" in said("publish", "--to", "shared")
    assert len(Ledger().read()) == 1
    study.optimize(objective, n_trials=1)
    assert "was published at" in said("publish", "--to", "shared")
    [message] = heard(FolderExchange("shared"), FEDERATION)
    assert (message.sender, message.sequence) == ("site-a", 4)


def test_a_preview_sends_and_stores_nothing(study: optuna.Study) -> None:
    text = said("preview", "--to", "shared")
    assert "a random name, drawn when it is sent" in text and "Nothing was sent. The noise" in text
    assert str(Path("shared").absolute()) in text
    assert read_record(study) is None
    assert not Path("shared").exists() and not Ledger().path.exists()
    said("publish", "--to", "shared", "--name", "site-a")
    assert "site-a" in said("preview", "--to", "shared")


def test_a_message_is_withdrawn(study: optuna.Study) -> None:
    assert "has never published" in said("withdraw", "--to", "shared", code=1)
    said("publish", "--to", "shared", "--no-tips")
    [message] = heard(FolderExchange("shared"), FEDERATION)
    assert isinstance(message, Message) and not message.tip
    assert "was withdrawn from" in said("withdraw", "--to", "shared")
    assert heard(FolderExchange("shared"), FEDERATION) == []
    assert "nothing was withdrawn" in said("withdraw", "--to", "shared")
    assert [entry.action for entry in Ledger().read()] == ["sent", "withdrawn"]


def test_what_cannot_be_published_is_an_error(study: optuna.Study) -> None:
    assert "there is no file" in said("publish", "--to", "shared", at="sqlite:///no.db", code=1)
    text = said("publish", "--to", "shared", study="new", code=1)
    assert "there is no study 'new'" in text and "its studies are 'old'" in text
    assert "does not exist" in said("publish", "--to", "no/folder", code=1)
    assert "no.toml" in said("publish", "--to", "shared", "--federation", "no.toml", code=1)
    said("publish", "--to", "shared", "--name", "a")
    assert "cannot be renamed to 'b'" in said("publish", "--to", "shared", "--name", "b", code=1)
    assert {entry.agent for entry in Ledger().read()} == {"a"}
    Path("federation.toml").unlink()
    assert "fedbo federation new" in said("publish", "--to", "shared", code=2)


def test_the_message_of_a_deleted_study_is_withdrawn(
    study: optuna.Study, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said("publish", "--to", "shared", "--name", "ours")
    optuna.delete_study(study_name="old", storage=STORAGE)
    sampler = optuna.samplers.RandomSampler(seed=1)
    again = optuna.create_study(study_name="new", storage=STORAGE, sampler=sampler)
    again.optimize(objective, n_trials=2)
    text = said("publish", "--to", "shared", "--name", "ours", study="new", code=1)
    assert "fedbo exchange withdraw if it was deleted" in text

    def withdraw(*args: str, code: int = 0, stdin: str | None = None) -> str:
        return terminal.said("exchange", "withdraw", "shared", *args, code=code, stdin=stdin)

    place, what = FolderExchange("shared"), "message of ours about 3 trials"
    assert f"Withdraw the {what}? [y/N]" in withdraw("ours", code=1, stdin="n\n")
    assert "no message of 'theirs' that you can" in withdraw("theirs", "--yes", code=1)
    with monkeypatch.context() as patched:  # somebody else
        patched.setenv("FEDBO_STATE", str(state / "other"))
        withdraw("ours", "--yes", code=1)
    assert [message.sender for message in heard(place, FEDERATION)] == ["ours"]
    assert f"The {what} was withdrawn" in withdraw("ours", stdin="y\n")
    assert heard(place, FEDERATION) == []
    assert [entry.action for entry in Ledger().read()] == ["sent", "withdrawn"]
    assert "no message of 'ours'" in withdraw("ours", "--yes", code=1)
    said("publish", "--to", "shared", "--name", "next", study="new")
    assert [message.sender for message in heard(place, FEDERATION)] == ["next"]


# Explaining


def helped(trials: int = 14) -> optuna.Study:
    """A study with two peers, two of whose trials failed."""
    exchange = MemoryExchange()
    for i in range(2):
        peer = Agent(FEDERATION, name=f"peer-{i}", seed=i)
        for _ in range(10):
            trial = peer.ask()
            peer.tell(trial, (trial.params["x"] - 0.3) ** 2)  # type: ignore[operator]
        exchange.publish(peer.message())

    def fails(trial: optuna.Trial) -> float:
        objective(trial)
        if trial.number in (1, 4):
            raise RuntimeError
        return (trial.params["x"] - 0.3) ** 2

    sampler = FederatedSampler(FEDERATION, exchange, name="site-a", seed=1)
    study = optuna.create_study(study_name="a", storage=STORAGE, sampler=sampler)
    study.optimize(fails, n_trials=trials, catch=(RuntimeError,))
    sampler.flush()
    return study


def test_a_stored_study_is_explained_and_only_read(tmp_path: Path) -> None:
    study = helped()
    best = study.best_trial
    del study
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    text = said("explain", "--draws", "2", "--csv", "tables", study="a")  # with federation.toml
    assert "Agent site-a: 14 trials, the best score is" in text
    assert f"(trial {best.number}, " in text
    assert "What each peer contributed" in text and "saved (90 %:" in text
    assert {path: path.read_bytes() for path in files} == files
    queries = Table.from_csv("tables/queries.csv")
    trials = optuna.load_study(study_name="a", storage=STORAGE).trials
    assert queries["trial"].tolist() == [trial.number for trial in trials]
    assert queries["state"][[1, 4]].tolist() == ["failed", "failed"]
    assert math.isnan(queries["score"][1]) and queries["score"][13] == trials[13].value


def test_names_of_peers_do_not_reach_the_screen_as_they_are() -> None:
    study, evil = helped(4), {"\x1b[2Jevil\nline": 1.0}

    def hostile(trial: optuna.Trial) -> float:
        objective(trial)
        storage = study._storage
        query = storage.get_trial(trial._trial_id).system_attrs[QUERY]
        storage.set_trial_system_attr(
            trial._trial_id, QUERY, query | {"source": "peer", "credit": evil}
        )
        return -9.0

    study.optimize(hostile, n_trials=1)
    text = said("explain", "--draws", "1", study="a")
    assert "\x1b" not in text and r"\x1b[2Jevil\nline" in text


def test_what_cannot_be_explained_is_an_error(study: optuna.Study) -> None:
    assert "nothing to explain" in said("explain", code=1)
    assert "expected one of .png" in said("explain", "--plot", "a.txt", code=2)


@pytest.mark.slow
def test_an_explanation_is_drawn() -> None:
    helped()
    said("explain", "--draws", "2", "--plot", "explain.png", study="a")
    assert Path("explain.png").read_bytes().startswith(b"\x89PNG")
