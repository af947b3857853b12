"""`fedbo join`: as a person runs it, stops it, and runs it again."""

from __future__ import annotations

import io
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState, create_trial
from rich.console import Console
from typer.testing import CliRunner, Result

import fedbo
from fedbo import Categorical, Federation, Float, Int, Space
from fedbo.cli import app as cli
from fedbo.cli.join_screen import JoinScreen
from fedbo.exchange import FolderExchange, Ledger, MemoryExchange
from fedbo.identity import KeyPair
from fedbo.optuna import FederatedSampler, objective, record, studies
from fedbo.optuna import join as joining
from fedbo.policy import Origin

pytestmark = pytest.mark.usefixtures("patient")

FEDERATION = Federation(
    Space({"x": Float(0, 1), "k": Categorical(["a", "b"])}, direction="minimize"), features=20
)
STORAGE = "sqlite:///site.db"
MODULE = """
import os
import sys
import time
from pathlib import Path

import numpy as np
import optuna

constant = 3

def score(x, k):
    return (x - 0.3) ** 2 + (k == "b")

def slow(x, k):
    time.sleep(0.5)
    return score(x, k)

def three(x, k):
    with open("begun", "a") as file:
        file.write(f"{os.getpid()}\\n")
    until = time.monotonic() + 600
    while len({*Path("begun").read_text().split()}) < 3 and time.monotonic() < until:
        time.sleep(0.02)
    return score(x, k)

def held(x, k):
    with open("begun", "a") as file:
        file.write("one\\n")
    first = Path("begun").read_text().count("one") == 1
    until = time.monotonic() + 600
    while not (first or Path("go").exists()) and time.monotonic() < until:
        time.sleep(0.02)
    return score(x, k)

def sometimes(x, k):
    if Path("working").exists():
        return score(x, k)
    raise RuntimeError(f"no data\\nin {Path().absolute()}")

def nothing(x, k):
    return None

def leaves(x, k):
    sys.exit(0)

def leaves_once(x, k):
    if not Path("left").exists():
        Path("left").touch()
        raise SystemExit
    return score(x, k)

def pruned(trial):
    trial.suggest_float("x", 0, 1)
    trial.suggest_categorical("k", ["a", "b"])
    raise optuna.TrialPruned

def takes_trial(trial, extra=1):
    return trial.suggest_float("x", 0, 1) + trial.suggest_float("own", 0, 1) + (
        trial.suggest_categorical("k", ["a", "b"]) == "b"
    )

def misspelt(trial):
    return trial.suggest_float("X", 0, 1) + (trial.suggest_categorical("k", ["a", "b"]) == "b")

def narrower(trial):
    trial.suggest_categorical("k", ["a", "b"])
    return trial.suggest_float("x", 0.2, 0.4)

def two(x, y, *, z=1):
    return 0
"""


@pytest.fixture(autouse=True)
def _a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with a federation and an objective, and a log of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    verbosity = optuna.logging.get_verbosity()
    FEDERATION.save("federation.toml")
    Path("train_here.py").write_text(MODULE)
    yield
    optuna.logging.set_verbosity(verbosity)
    sys.modules.pop("train_here", None)


def invoke(*args: str, storage: str = STORAGE) -> Result:
    """In this process, which saves seconds."""
    wide = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
    command = ["join", "shared", "--storage", storage, *args]
    return CliRunner().invoke(cli.app, command, env=wide)


def join(function: str, *args: str, storage: str = STORAGE) -> tuple[int, str, str]:
    """Its exit code, what it said, and what it said of problems; in this process."""
    result = invoke("--objective", f"train_here:{function}", *args, storage=storage)
    return result.exit_code, flat(result.stdout), flat(result.stderr)


def start(function: str, *args: str) -> subprocess.Popen[str]:
    """In a process of its own."""
    source = str(Path(fedbo.__file__).parents[1])
    command = [sys.executable, "-m", "fedbo", "join", "shared", "--storage", STORAGE]
    return subprocess.Popen(
        [*command, "--objective", f"train_here:{function}", *args],
        env=os.environ | {"PYTHONPATH": source, "COLUMNS": "100", "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen_to_ctrl_c,
    )


def listen_to_ctrl_c() -> None:
    """What runs in the background of a shell is told to ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """As of `join`."""
    out, err = process.communicate(timeout=300)
    return process.returncode, flat(out), flat(err)


def flat(text: str) -> str:
    """Wherever lines break, and whatever is drawn around them."""
    return " ".join(text.replace("│", " ").split())


def said(result: Result) -> str:
    return flat(result.output)


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_for_second_trial() -> None:
    """Until `held` is at it, and stays there."""
    wait_until(lambda: Path("begun").exists() and Path("begun").read_text().count("one") == 2)


def ctrl_c(process: subprocess.Popen[str]) -> str:
    """What it says to that at once."""
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    return process.stderr.readline()


def states(name: str = "federation") -> dict[str, int]:
    """How many trials of the study are in each state."""
    with sqlite3.connect("site.db", timeout=60) as database:
        query = (
            "select state, count(*) from trials join studies using (study_id) "
            "where study_name = ? group by state"
        )
        found = dict(database.execute(query, [name]).fetchall())
    database.close()
    return {state.lower(): n for state, n in found.items()}


def heartbeats() -> int:
    """How many trials have one, in any study."""
    with sqlite3.connect("site.db", timeout=60) as database:
        [[found]] = database.execute("select count(*) from trial_heartbeats").fetchall()
    database.close()
    return int(found)


def sent() -> list[tuple[str, int]]:
    """The agent of each message in the log, and how many trials are behind it."""
    return [(one.agent, one.t_n) for one in Ledger().read() if one.action == "sent"]


# Trials


@pytest.mark.slow
def test_two_sites_help_one_another_and_go_on_where_they_were() -> None:
    code, out, err = end(start("score", "--trials", "4", "--name", "site-a", "--every", "1"))
    assert (code, err) == (0, "")
    assert "Study 'federation' in sqlite:///site.db (new): minimize train_here:score." in out
    assert "'site-a'. Messages go through" in out
    assert "a folder that the first message creates" in out
    assert "(4 of 4; messages: " in out
    assert "trials 4 complete" in out
    assert "sent, 0 received from 0 peers, in this run" in out
    assert sent()[-1] == ("site-a", 4)
    code, out, err = join("slow", "--trials", "2", storage="sqlite:///b.db")
    assert (code, err) == (0, "")
    assert "1 received from 1 peer, in this run" in out
    code, out, err = join("slow", "--trials", "6", "--every", "2")
    assert (code, err) == (0, "")
    assert "(4 of 6 trials finished)" in out
    assert "Peers know it as 'site-a'" in out
    assert "messages 1 sent, 1 received from 1 peer" in out
    assert sent()[-1] == ("site-a", 6)
    assert states() == {"complete": 6}
    assert "fedbo ledger --agent site-a lists every message" in out


def test_enough_trials_are_enough() -> None:
    study = studies.create(STORAGE, "federation", "minimize")
    space = {"x": 0.5, "k": "a"}
    ranges: dict[str, optuna.distributions.BaseDistribution] = {
        "x": optuna.distributions.FloatDistribution(0, 1),
        "k": optuna.distributions.CategoricalDistribution(["a", "b"]),
    }
    study.add_trial(create_trial(value=1.0, params=space, distributions=ranges))
    result = invoke("--objective", "train_here:score", "--trials", "1")
    assert result.exit_code == 0, result.output
    assert "best 1 in trial 0, from outside the federation" in said(result)
    assert states() == {"complete": 1}


@pytest.mark.slow
def test_several_processes_share_a_storage_that_is_new() -> None:
    """None ends a trial before all have begun one, and each may have given the study an agent."""
    processes = [start("three", "--trials", "6") for _ in range(3)]
    ends = [end(process) for process in processes]
    assert [code for code, _, _ in ends] == [0, 0, 0], ends
    assert [err for _, _, err in ends] == ["", "", ""]
    assert 6 <= states()["complete"] <= 6 + 2
    assert len({agent for agent, _ in sent()}) == 1


# Ctrl-C, and worse


@pytest.mark.slow
def test_ctrl_c_lets_the_running_trial_finish() -> None:
    process = start("held", "--trials", "9")
    wait_for_second_trial()
    said_at_once = ctrl_c(process)
    assert (
        said_at_once == "Ctrl-C: stopping after this trial; press it again to abandon the trial.\n"
    )
    Path("go").touch()
    code, out, err = end(process)
    assert (code, err) == (130, "")
    assert "Stopped: 2 of 9 trials are finished. Run the same command again to resume." in out
    assert states() == {"complete": 2}
    assert sent()[-1][1] == 2
    assert join("score", "--trials", "3")[0] == 0
    assert states() == {"complete": 3}


@pytest.mark.slow
def test_ctrl_c_twice_gives_the_running_trial_up() -> None:
    process = start("held", "--trials", "9")
    wait_for_second_trial()
    ctrl_c(process)
    process.send_signal(signal.SIGINT)
    code, out, err = end(process)
    assert (code, err) == (130, "")
    assert "1 of 9 trials are finished. Trial 1 was abandoned, and is marked as failed." in out
    assert states() == {"complete": 1, "fail": 1}


@pytest.mark.slow
def test_a_killed_process_loses_no_more_than_its_trial() -> None:
    process = start("held", "--trials", "9")
    wait_for_second_trial()
    wait_until(lambda: heartbeats() == 2)  # another thread writes them
    process.kill()
    assert end(process)[0] == -signal.SIGKILL
    assert states() == {"complete": 1, "running": 1}
    with sqlite3.connect("site.db") as database:  # as if that were long ago
        database.execute("update trial_heartbeats set heartbeat = '2020-01-01 00:00:00'")
    database.close()
    code, out, err = end(start("score", "--trials", "3"))
    assert (code, err) == (0, "")
    assert "(1 of 3 trials finished)" in out
    assert states() == {"complete": 3, "fail": 1}


def test_a_score_is_kept_though_its_trial_was_taken_for_dead() -> None:
    study = studies.create(STORAGE, "federation", "minimize")
    other = optuna.load_study(study_name="federation", storage=STORAGE)

    def outlived(x: float, k: str) -> float:
        number = len(other.trials) - 1
        if number == 1:
            other._storage.set_trial_state_values(other.trials[number]._trial_id, TrialState.FAIL)
        return x

    site = a_site(study, outlived)
    watcher = Steps()
    assert site.run(3, watcher, joining.Interrupt(lambda: None)) == "done"
    assert states() == {"complete": 3, "fail": 1}
    assert [step.number for step in watcher.steps] == [0, 2, 3]
    assert study.trials[2].params == study.trials[1].params


# Failures


def test_three_failures_in_a_row_end_it() -> None:
    code, out, err = join("sometimes", "--trials", "9")
    assert (code, err) == (1, "")
    assert out.count("failed RuntimeError: no data (train_here.py, line ") == 3
    assert "3 trials in a row failed, the last with RuntimeError: no data" in out
    assert states() == {"fail": 3}
    assert sent() == []
    Path("working").touch()
    assert join("sometimes", "--trials", "1")[0] == 0
    assert states() == {"fail": 3, "complete": 1}


def test_an_objective_that_ends_the_program_is_a_failure() -> None:
    code, out, err = join("leaves", "--trials", "9")
    assert (code, err) == (1, "")
    assert out.count("failed RuntimeError: the objective ended with SystemExit(0), expected a") == 3
    assert "3 trials in a row failed" in out
    assert "(train_here.py, line " in out
    assert states() == {"fail": 3}
    code, out, _ = join("leaves_once", "--trials", "2")
    assert code == 0
    assert "the objective ended with SystemExit()" in out
    assert states() == {"fail": 4, "complete": 2}


@pytest.mark.slow
def test_pruned_trials_are_finished_ones() -> None:
    code, out, err = join("pruned", "--trials", "3")
    assert (code, err) == (0, "")
    assert "(3 of 3; messages: 0 sent" in out
    assert "no trial has a score: all 3 finished trials were pruned" in out
    assert states() == {"pruned": 3}
    assert "There is no score in study 'federation'" in said(invoke("--preview"))
    code, out, _ = join("score", "--trials", "5")
    assert code == 0
    assert "trials 2 complete, 3 pruned" in out
    assert states() == {"pruned": 3, "complete": 2}


def test_what_is_no_number_is_a_failure() -> None:
    code, out, _ = join("nothing")
    assert code == 1
    assert "TypeError: the objective returned None, expected a number" in out


def test_a_range_that_differs_is_said_before_anything_is_evaluated() -> None:
    code, _, err = join("narrower", "--trials", "2")
    assert code == 1
    assert "parameter 'x': low is 0.2 in the objective and 0.0 in the federation" in err
    assert "(here: --clip)" in err
    assert states().get("complete", 0) == 0
    assert join("narrower", "--trials", "2", "--clip")[0] == 0
    assert states()["complete"] == 2


@pytest.mark.slow
def test_a_log_that_cannot_be_written_keeps_messages_here_and_trials_going(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FEDBO_STATE", str(Path("federation.toml").absolute()))
    code, out, err = end(start("score", "--trials", "2", "--name", "site-a"))
    assert code == 0
    assert "trials 2 complete messages 0 sent" in out
    assert err.startswith("Warning: ")
    assert "no message of this study is published from here: its key cannot be used" in err
    assert "No message was sent in this run: its key cannot be used" in out
    assert FolderExchange("shared").fetch(FEDERATION) == []


def test_a_storage_that_fails_is_said_and_the_score_with_it() -> None:
    study = studies.create(STORAGE, "federation", "minimize")

    def locking(x: float, k: str) -> float:
        with sqlite3.connect("site.db") as database:
            database.execute("drop table trial_values")
        database.close()
        return 0.25

    with pytest.raises(joining.StorageFailed, match=r"Trial 0, with .* scored 0\.25\."):
        a_site(study, locking).run(3, Steps(), joining.Interrupt(lambda: None))


# A study that is not this one


def test_a_federation_that_changed_leaves_the_study_as_it_is() -> None:
    join("score", "--trials", "1")
    before = Path("site.db").read_bytes()
    wider = Space({"x": Float(0, 2), "k": Categorical(["a", "b"])}, direction="minimize")
    Federation(wider, features=20).save("federation.toml")
    for args in (["--objective", "train_here:score"], ["--preview"], ["--withdraw"]):
        result = invoke(*args)
        assert result.exit_code == 1
        assert "study 'federation' began in federation" in said(result)
        assert "the parameters, their ranges or choices" in said(result)
    assert Path("site.db").read_bytes() == before


def test_a_later_epoch_of_the_federation_is_the_same_one() -> None:
    join("score", "--trials", "1")
    FEDERATION.next_epoch(length_scale=0.7).save("federation.toml")
    before = Path("site.db").read_bytes()
    assert "epoch 1" in said(invoke("--preview"))
    assert Path("site.db").read_bytes() == before
    assert join("score", "--trials", "2")[0] == 0
    FEDERATION.save("federation.toml")
    assert "has gone on to epoch 1" in said(invoke("--objective", "train_here:score"))
    FEDERATION.next_epoch(length_scale=0.6).save("federation.toml")
    assert "though the epoch is the same" in said(invoke("--preview"))
    assert states() == {"complete": 2}


def test_a_study_knows_its_federation_by_scalars_and_epoch() -> None:
    first = FEDERATION.next_epoch(length_scale=0.7)
    study = optuna.create_study(study_name="mine")
    known = record.Identity(
        name="site-a", entropy="1", federation=str(first.fingerprint), epoch=first.epoch
    )
    record.introduce(study, known)
    joining.check(study, first)
    joining.check(study, first.next_epoch(length_scale=0.5))
    with pytest.raises(joining.JoinRefused, match="though the epoch is the same"):
        joining.check(study, FEDERATION.next_epoch(length_scale=0.6))
    gone_on = "study 'mine' has gone on to epoch 1 .* the file is of epoch 0: use the later file"
    with pytest.raises(joining.JoinRefused, match=gone_on):
        joining.check(study, FEDERATION)
    other = Space({"x": Float(0, 2), "k": Categorical(["a", "b"])}, direction="minimize")
    with pytest.raises(joining.JoinRefused, match="the parameters, their ranges or choices"):
        joining.check(study, Federation(other, features=20))


def test_a_study_that_has_choices_in_another_order_goes_on() -> None:
    """A federation sorts its choices, and Optuna insists on the order of earlier trials."""
    study = studies.create(STORAGE, "mine", "minimize", optuna.samplers.RandomSampler(seed=0))

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_categorical("k", ["b", "a"])
        return trial.suggest_float("x", 0, 1)

    study.optimize(objective, n_trials=2)
    result = invoke("--objective", "train_here:score", "--study", "mine", "--trials", "5")
    assert result.exit_code == 0, result.output
    assert len(studies.existing(STORAGE, "mine").trials) == 5


def test_another_direction_is_refused() -> None:
    studies.create(STORAGE, "federation", "maximize")
    result = invoke("--objective", "train_here:score")
    assert result.exit_code == 1
    assert "has direction maximize, but the federation has minimize" in said(result)


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ([], "--objective: give the function to tune"),
        (["--objective", "train_here:score", "--federation", "no.toml"], "no.toml cannot be read"),
        (["--objective", "train_here:score", "--storage", "site.db"], "the storage is 'site.db'"),
        (["--objective", "train_here:score", "--storage", "sqlite:///no/s.db"], "exist: create it"),
        (["--objective", "train_here:score", "--trials", "0"], "--trials"),
        (["--objective", "train_here:score", "--name", "n" * 65], "expected 1 to 64 bytes"),
        (["--preview", "--withdraw"], "give at most one of the two"),
    ],
)
def test_errors_come_first_and_are_clear(args: list[str], complaint: str) -> None:
    result = invoke(*args)
    assert result.exit_code in (1, 2)
    assert isinstance(result.exception, SystemExit)
    assert complaint in said(result)
    assert not Path("site.db").exists()
    assert not Path("shared").exists()


def test_who_is_no_member_of_a_hub_learns_how_to_become_one() -> None:
    result = CliRunner().invoke(
        cli.app, ["join", "https://hub.example.org", "--storage", STORAGE, "--preview"]
    )
    assert result.exit_code == 1
    assert "fedbo join https://hub.example.org --invite INVITATION" in said(result)


def test_without_optuna_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    result = invoke("--objective", "train_here:score")
    assert result.exit_code == 1
    assert "pip install 'fedbo[optuna]'" in said(result)


# The objective


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("train_here", "expected module:function, such as train:score"),
        ("train_here:", "expected module:function"),
        ("train_here.py:score", "expected module:function"),
        ("trian:score", "there is no module 'trian' in .*; in this folder there is .*train_here"),
        ("train_here.sub:score", r"there is no module 'train_here\.sub'"),
        ("train_here:scor", "no 'scor' in module 'train_here'; its functions are score, slow"),
        ("train_here:constant", "which is 3 and not a function"),
        ("train_here:constant.x", "there is no 'x' in object '3'"),
        ("train_here:two", r"takes \(x, y, \*, z=1\), .* it needs 'y', .* it does not take 'k'"),
        ("broken_here:f", r"cannot be imported: ZeroDivisionError: .* \(broken_here\.py, line 2\)"),
        ("needy_here:f", "'needy_here' cannot be imported: ModuleNotFoundError: No module named"),
    ],
)
def test_an_objective_that_is_none_is_refused(address: str, complaint: str) -> None:
    Path("broken_here.py").write_text("x = 1\n1 / 0\n")
    Path("needy_here.py").write_text("import surely_not_installed\n")
    with pytest.raises(objective.ObjectiveRefused, match=complaint):
        objective.load(address, FEDERATION.space)
    result = invoke("--objective", address)
    assert result.exit_code == 1
    assert re.search(complaint, said(result))
    assert not Path("site.db").exists()


def test_an_objective_is_called_with_what_the_federation_names() -> None:
    space = Space({"x": Float(0, 1), "n": Int(1, 9, step=2), "trial": Categorical([1, True + 1])})
    seen: list[object] = []

    def by_name(**params: object) -> int:
        seen.append(params)
        return 1

    def with_trial(trial: int, x: float, n: int) -> int:
        seen.append(trial)
        return 2

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective.Objective(by_name, space, "by_name"), n_trials=1)
    study.optimize(objective.Objective(with_trial, space, "with_trial"), n_trials=1)
    assert seen == [study.trials[0].params, study.trials[1].params["trial"]]
    assert study.trials[0].distributions["n"] == optuna.distributions.IntDistribution(1, 9, step=2)


# Messages


def test_preview_shows_the_next_message_and_sends_nothing() -> None:
    result = invoke("--preview")
    assert (result.exit_code, Path("site.db").exists()) == (0, False)
    assert "There is no study 'federation' in sqlite:///site.db" in said(result)
    join("score", "--trials", "2", "--name", "site-a", "--every", "3")
    assert sent() == []
    text = said(invoke("--preview"))
    assert "agent site-a" in text
    assert "trials 2 size" in text
    assert all(f"{name} = " in text for name in FEDERATION.space.names)  # of the tip
    assert "tip" not in said(invoke("--preview", "--no-tips"))
    assert "Nothing was sent. A message is due after a new best score" in text
    assert (sent(), states()) == ([], {"complete": 2})
    join("score", "--trials", "3", "--every", "3")
    text = said(invoke("--preview"))
    assert "This very message was sent before" in text
    [message] = FolderExchange("shared").fetch(FEDERATION)
    assert all(f"{number:.4f}" in text for number in message.nu)
    assert "counts of trials in the public cells" in text


def test_preview_knows_what_was_not_delivered_and_what_cannot_be_read() -> None:
    join("score", "--trials", "2", "--name", "site-a")
    assert "This very message was sent before" in said(invoke("--preview"))
    log = Ledger().path
    first, *_, last = log.read_text().splitlines()
    damaged = re.sub('"content":"[^"]*"', '"content":"AAAA"', first)
    log.write_text(f"{damaged}\n{last}\n")
    assert "This very message was sent before" in said(invoke("--preview"))
    undelivered = last.replace('"action":"sent"', '"action":"undelivered"')
    log.write_text(f"{damaged}\n{last}\n{undelivered}\n")
    result = invoke("--preview")
    assert result.exit_code == 0, result.output
    assert "Nothing was sent. A message is due after a new best score" in said(result)
    log.write_text(f"{last}\n{undelivered}\n{last}\n{damaged}\n")
    assert "This very message was sent before" in said(invoke("--preview"))


@pytest.mark.slow
def test_preview_writes_nothing() -> None:
    Path("site.db").touch()
    assert invoke("--preview").exit_code == 0
    assert Path("site.db").stat().st_size == 0
    study = studies.create(STORAGE, "federation", "minimize", optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective.Objective(lambda x, k: x, FEDERATION.space, "x"), n_trials=2)
    before = Path("site.db").read_bytes()
    result = invoke("--preview")
    assert result.exit_code == 0
    assert "agent a random name, chosen at the first trial" in said(result)
    assert "trials 2 size" in said(result)
    assert "agent-" not in said(result)
    assert "agent site-a" in said(invoke("--preview", "--name", "site-a"))
    assert Path("site.db").read_bytes() == before
    assert {path.name for path in Path().iterdir()} == {
        "federation.toml",
        "site.db",
        "train_here.py",
    }


@pytest.mark.slow
def test_a_message_can_be_taken_back() -> None:
    result = invoke("--withdraw")
    assert result.exit_code == 1
    assert "there is no study 'federation' in" in said(result)
    assert "Give the study with --study" in said(result)
    assert "nothing to withdraw" in said(invoke("--withdraw", "--name", "site-a"))
    join("score", "--trials", "1", "--name", "site-a")
    text = said(invoke("--withdraw"))
    assert "The message of 'site-a' was withdrawn from" in text
    assert "Peers forget it when they look there again" in text
    assert FolderExchange("shared").fetch(FEDERATION) == []
    assert [release.action for release in Ledger().read()] == ["sent", "withdrawn"]
    assert "nothing to withdraw" in said(invoke("--withdraw"))
    join("score", "--trials", "2")
    assert len(FolderExchange("shared").fetch(FEDERATION)) == 1


def test_a_misspelt_parameter_is_a_line_and_no_message_was_sent_is_another() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, out, err = join("misspelt", "--trials", "3")
    assert code == 0
    why = "the objective suggests 'X', but the federation has 'x' (misspelt?)"
    assert err == (
        f"Warning: {why}: no message is sent, and no peer helps, until the objective suggests 'x'. "
        "Rename it in the objective, or create a federation with 'X' (fedbo federation new). This "
        "warning is given once"
    )
    assert err.count("Warning") == 1
    assert "messages 0 sent" in out
    assert f"No message was sent in this run: {why}." in out
    assert sent() == []


def test_it_says_why_no_message_was_sent() -> None:
    assert "No message was sent in this run: no trial has a score." in join("sometimes")[1]
    Path("working").touch()
    out = join("sometimes", "--trials", "1", "--every", "2")[1]
    assert "No message was sent in this run: a message is sent after every 2 scores" in out
    out = join("sometimes", "--trials", "1")[1]
    assert "No message was sent in this run: no trial was run." in out
    out = join("sometimes", "--trials", "3", "--every", "2")[1]
    assert "No message was sent" not in out


def test_it_says_how_messages_are_signed() -> None:
    out = join("score", "--trials", "1", "--name", "site-a")[1]
    assert f"Messages are signed with key {KeyPair.load()}." in out
    out = join("score", "--trials", "1", "--unsigned", storage="sqlite:///b.db")[1]
    assert "Messages are not signed." in out
    [site_b] = [one for one in FolderExchange("shared").fetch(FEDERATION) if not one.key]
    assert site_b.sender.startswith("agent-")


def test_a_study_can_be_renamed() -> None:
    join("score", "--trials", "1", "--name", "site-a")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, out, err = join("score", "--trials", "2", "--name", "site-b")
    assert code == 0
    assert err == ""
    until = "(until now 'site-a'; its message under that name is withdrawn)"
    assert f"Peers know it as 'site-b' {until}." in out
    assert "fedbo ledger --agent site-b" in out
    assert [message.sender for message in FolderExchange("shared").fetch(FEDERATION)] == ["site-b"]
    assert "Peers know it as 'site-b'." in join("score", "--trials", "2")[1]


@pytest.mark.parametrize("unsigned", [[], ["--unsigned"]])
def test_the_message_of_another_study_is_not_withdrawn(unsigned: list[str]) -> None:
    join("score", "--trials", "3", "--name", "site", *unsigned)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        other = "sqlite:///b.db"
        err = join("score", "--trials", "1", "--name", "site", *unsigned, storage=other)[2]
    assert "another study of this user publishes under the name 'site'" in err
    result = invoke("--withdraw", storage="sqlite:///b.db")
    assert result.exit_code == 1
    assert "nothing was withdrawn: the message of 'site'" in said(result)
    assert "is not this study's" in said(result)
    assert len(FolderExchange("shared").fetch(FEDERATION)) == 1
    assert "The message of 'site' was withdrawn from" in said(invoke("--withdraw"))
    assert FolderExchange("shared").fetch(FEDERATION) == []


def test_a_message_under_a_former_name_can_be_withdrawn() -> None:
    join("score", "--trials", "1", "--name", "site-a")
    result = invoke("--withdraw", "--name", "site-b")
    assert "There is no message of 'site-b'" in said(result)
    assert "The message of 'site-a' was withdrawn" in said(invoke("--withdraw", "--name", "site-a"))


def test_a_withdrawal_needs_the_private_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join("score", "--trials", "1", "--name", "site-a")
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "elsewhere"))
    result = invoke("--withdraw")
    assert result.exit_code == 1
    assert "that private key is not on this machine" in said(result)
    assert "fedbo identity import FILE" in said(result)


# The screen


class Steps:
    """Watches, and remembers."""

    def __init__(self) -> None:
        self.steps: list[joining.Step] = []

    def begun(self, number: int, origin: Origin | None) -> None:
        pass

    def ended(self, step: joining.Step) -> None:
        self.steps.append(step)


def a_site(study: optuna.Study, function: Callable[..., float]) -> joining.Site:
    ledger = joining.CountedLedger()
    sampler = joining.sampler(FEDERATION, MemoryExchange(), ledger=ledger, seed=0)
    study.sampler = sampler
    asked = objective.Objective(function, FEDERATION.space, "here:function")
    return joining.Site(study, sampler, asked, ledger)


def test_a_terminal_shows_how_it_goes_while_it_runs() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="minimize", study_name="mine")
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, _environ={})

    def shown() -> str:
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", " ", screen.getvalue())

    def watched(x: float, k: str) -> float:
        n = len(study.trials) - 1
        wait_until(lambda: f"trial {n} is running, from" in shown())
        wait_until(lambda: f"messages: {n} sent" in shown())
        return x

    watching = JoinScreen(console, a_site(study, watched), trials=2)
    watching.introduce(MemoryExchange(), STORAGE)
    assert watching.run() == "done"
    text = shown()
    assert re.search(r"trials  ━+.* 0/2 ", text)
    assert "best none yet; trial 0 is running, from an initial point" in text
    assert re.search(r"best 0\.\d+ in trial 0; trial 1 is running, from", text)
    assert "messages: 1 sent, 0 received from 0 peers" in text
    assert "2 sent, 0 received from 0 peers, in this run" in text


def test_names_of_peers_do_not_move_the_cursor() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="minimize", study_name="mine\x1b[2J")
    screen = io.StringIO()
    watching = JoinScreen(Console(file=screen, width=100), a_site(study, lambda x, k: x), trials=1)
    watching.introduce(MemoryExchange(), "sqlite:///a\nb.db")
    evil = "one\x1b]0;title\x07\n"
    for origin in (
        Origin("peer", credit={evil: 1.0}),
        Origin("pool", credit={evil: 1.0}),
    ):
        step = joining.Step(number=0, state=TrialState.COMPLETE, score=1.0, origin=origin)
        watching.ended(step)
        assert r"one\x1b]0;title\x07\n" in screen.getvalue().splitlines()[-1]
    why = joining.Step(number=1, state=TrialState.FAIL, score=None, origin=None, why=evil)
    watching.ended(why)
    assert r"mine\x1b[2J" in screen.getvalue()
    assert r"sqlite:///a\nb.db" in screen.getvalue()
    assert "\x1b" not in screen.getvalue()


def test_a_message_that_did_not_get_out_is_not_counted() -> None:
    exchange, ledger = MemoryExchange(), joining.CountedLedger()
    newer, older = (fedbo.Agent(FEDERATION, name="site-a", seed=0) for _ in range(2))
    for agent, scores in ((newer, 2), (older, 1)):
        for i in range(scores):
            agent.tell({"x": i / 10, "k": "a"}, float(i))
    assert ledger.publish(exchange, newer.message())
    assert not ledger.publish(exchange, older.message())
    assert ledger.sent == 1


def test_a_program_that_ignores_ctrl_c_still_does() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with joining.Interrupt(lambda: None) as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
            assert not interrupt.asked
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


# What is said of messages


def test_the_reason_for_no_message_is_that_the_exchange_has_a_later_one() -> None:
    agent = fedbo.Agent(FEDERATION, name="site", seed=0)
    for i in range(9):
        agent.tell({"x": i / 10, "k": "a"}, float(i))
    FolderExchange("shared").publish(agent.message())
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        out = join("score", "--trials", "3", "--name", "site", "--unsigned")[1]
    why = f"{Path('shared').absolute()} already has a later message under the name 'site'"
    assert f"No message was sent in this run: {why}" in out


def test_a_second_study_with_a_name_is_told_before_it_runs_and_in_its_preview() -> None:
    join("score", "--trials", "2", "--name", "twin")
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            out, err = join("score", "--trials", "3", "--name", "twin", storage="sqlite:///b.db")[
                1:
            ]
    reason = (
        "another study of this user publishes under the name 'twin': give this one another name "
        "(name=..., or fedbo join --name NEW). If that study no longer exists, withdraw its "
        "message (fedbo join --withdraw)"
    )
    assert reason in err and err.count("Warning") == 1
    assert "Messages are signed" not in out
    assert "No message is published from here, as a warning says." in out
    text = said(invoke("--preview", storage="sqlite:///b.db"))
    assert f"This message would not be sent to {Path('shared').absolute()}: {reason}." in text
    assert "would be sent" not in text
    assert "The message that would be sent to" in said(invoke("--preview"))


def test_a_study_that_is_not_listed_is_told_so_in_its_preview() -> None:
    members = {"clinic": str(KeyPair.generate())}
    listed = Federation(FEDERATION.space, features=20, members=members)
    listed.save("federation.toml")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        out, err = join("score", "--trials", "2")[1:]
    assert "Messages are signed" not in out
    assert "give it with name=... (or --name)" in err
    assert "agent-" not in err
    text = said(invoke("--preview"))
    assert "This message would not be sent" in text and "('clinic')" in text
    assert "The message that would be sent" not in text


def test_the_name_of_a_new_study_is_drawn_first() -> None:
    out = join("score", "--trials", "1")[1]
    known = record.identity(studies.existing(STORAGE, "federation"))
    assert known is not None
    assert f"Peers know it as '{known.name}'." in out


def test_a_study_that_has_enough_trials_can_be_renamed() -> None:
    join("score", "--trials", "1", "--name", "site-a")
    out = join("score", "--trials", "1", "--name", "site-b")[1]
    assert "Peers know it as 'site-b' (until now 'site-a'" in out
    assert FolderExchange("shared").fetch(FEDERATION) == []
    known = record.identity(studies.existing(STORAGE, "federation"))
    assert known is not None and known.name == "site-b"


def test_the_last_line_counts_the_last_message() -> None:
    out = join("score", "--trials", "3", "--every", "1")[1]
    assert "(3 of 3; messages: 3 sent" in out


# What is left to withdraw


def test_a_message_for_another_federation_is_not_forgotten() -> None:
    join("score", "--trials", "1", "--name", "site-a")
    other = Space({"x": Float(0, 2), "k": Categorical(["a", "b"])}, direction="minimize")
    Federation(other, features=20).save("other.toml")
    result = invoke(
        "--withdraw", "--name", "site-a", "--federation", "other.toml", "--study", "none"
    )
    assert result.exit_code == 1
    text = said(result)
    assert "There is no message of 'site-a' for this federation" in text
    assert f"of 'site-a', for federation {FEDERATION.fingerprint}, sent 20" in text
    assert "--federation FILE" in text
    for file in Path("shared").rglob("*.fedbo"):  # then nothing of it remains
        file.unlink()
    result = invoke(
        "--withdraw", "--name", "site-a", "--federation", "other.toml", "--study", "none"
    )
    assert result.exit_code == 0, result.output


def test_a_study_without_a_federation_file_is_withdrawn_without_one() -> None:
    Path("federation.toml").unlink()
    study = studies.create(STORAGE, "mine", "minimize")
    study.sampler = FederatedSampler(exchange="shared", name="site-a", every=1)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    study.sampler.flush()
    place = FolderExchange("shared")
    assert len(place.holdings()) == 1
    FEDERATION.save("federation.toml")
    result = invoke("--withdraw", "--study", "mine", "--federation", "federation.toml")
    assert result.exit_code == 1
    assert "These messages of this site are still in" in said(result)
    Path("federation.toml").unlink()
    result = invoke("--withdraw", "--study", "mine")
    assert result.exit_code == 0, result.output
    assert "The message of 'site-a' was withdrawn from" in said(result)
    assert [one for one in place.holdings() if one.message is not None] == []
    assert "nothing to withdraw" in said(invoke("--withdraw", "--study", "mine"))


def test_without_a_study_a_withdrawal_needs_the_federation_file() -> None:
    Path("federation.toml").unlink()
    result = invoke("--withdraw", "--name", "site-a")
    assert result.exit_code == 2
    assert "federation.toml cannot be read" in said(result)
