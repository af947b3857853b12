"""Processes that share a storage, and are killed.

Four processes on one SQLite storage; in each round two are killed at random moments, and replaced.
Each looks after every trial whether its agent was told what the study has, all of it and once.
``python tests/optuna_front/test_workers.py 20`` runs so many rounds; pytest runs three.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from fedbo import Federation, Float, Space
from fedbo.exchange import FolderExchange, Ledger
from fedbo.optuna import FederatedSampler
from fedbo.optuna.studies import existing
from fedbo.optuna.study import read_record

pytestmark = pytest.mark.usefixtures("patient")

WORKERS = 4
TRIALS = 12  # for each round
PATIENCE = 600.0  # seconds, for the last trials


# One worker


def work(
    folder: Path, trials: int, sampler: FederatedSampler | None = None, workers: int = 1
) -> None:
    """Run trials until the study has as many, and note each that is done, and any fault.

    None ends before so many workers have begun, each of whom may have given the study an agent.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = sampler_of(folder) if sampler is None else sampler
    study = optuna.load_study(study_name="shared", storage=storage_of(folder), sampler=sampler)
    mine: list[int] = []

    def objective(trial: optuna.Trial) -> float:
        x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
        note(folder / "begun", f"{os.getpid()}")
        while len({*(folder / "begun").read_text().split()}) < workers:
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.05))
        mine.append(trial.number)
        return (x - 0.3) ** 2 + (y - 0.6) ** 2

    while len(before := complete_in(study)) < trials:
        study.optimize(objective, n_trials=1)
        note(folder / "reported", f"{mine[-1]}")
        for fault in faults(study, sampler, before):
            note(folder / "faults", f"after trial {mine[-1]}: {fault}")
    sampler.flush(PATIENCE)


def faults(
    study: optuna.Study, sampler: FederatedSampler, before: Sequence[FrozenTrial]
) -> list[str]:
    """What the worker's agent was told otherwise than the study has it.

    It may lack what others finished while it worked, but nothing that was there ``before``.
    """
    assert sampler.agent is not None
    told = Counter(
        (*trial.params.items(), trial.score)
        for trial in sampler.agent.trials
        if trial.state == "complete"
    )
    now, then = (
        Counter((*trial.params.items(), trial.value) for trial in trials)
        for trials in (complete_in(study), before)
    )
    too_many, lacking = told - now, then - told
    return [
        *([f"told twice, or never finished: {too_many}"] if too_many else []),
        *([f"not told: {lacking}"] if lacking else []),
    ]


def note(file: Path, line: str) -> None:
    """Add a line, in one go: several may do so at once."""
    with open(file, "ab", buffering=0) as notes:
        notes.write(f"{line}\n".encode())


def save_federation(folder: Path) -> None:
    space = Space({"x": Float(0, 1), "y": Float(0, 1)}, direction="minimize")
    Federation(space, features=30).save(folder / "federation.toml")
    optuna.create_study(study_name="shared", storage=storage_of(folder))


def sampler_of(folder: Path) -> FederatedSampler:
    exchange, ledger = FolderExchange(folder / "exchange"), Ledger(folder / "ledger.jsonl")
    return FederatedSampler(folder / "federation.toml", exchange, every=1, ledger=ledger)


def storage_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'site.db'}?timeout=60"


def complete_in(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])


# All of them


def rounds(folder: Path, n: int, seed: int = 0) -> None:
    """A study from its beginning to its end, with two kills in each of n rounds."""
    save_federation(folder)
    rng, trials = random.Random(seed), n * TRIALS
    workers = [started(folder, trials) for _ in range(WORKERS)]
    for i in range(n):
        begun = time.monotonic()
        for victim in rng.sample(range(WORKERS), 2):
            wait_for(folder, len(reported(folder)) + rng.randrange(2, 8), workers)
            time.sleep(rng.uniform(0, 0.2))
            workers[victim].kill()
            workers[victim].communicate()
            workers[victim] = started(folder, trials)
        done, seconds = len(reported(folder)), time.monotonic() - begun
        print(f"round {i + 1}: {done} of {trials} trials done, {seconds:.1f} s", flush=True)
    for worker in workers:
        _, errors = worker.communicate(timeout=PATIENCE)
        assert worker.returncode == 0, errors.decode()
    check(folder, trials)


def started(folder: Path, trials: int) -> subprocess.Popen[bytes]:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "FEDBO_STATE": str(folder)}
    return subprocess.Popen(
        [sys.executable, __file__, "--worker", folder, str(trials)],
        env=environment | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_for(folder: Path, trials: int, workers: list[subprocess.Popen[bytes]]) -> None:
    """Until so many trials were reported, or there is nobody left to do so."""
    while len(reported(folder)) < trials and any(worker.poll() is None for worker in workers):
        time.sleep(0.005)


def reported(folder: Path) -> list[int]:
    file = folder / "reported"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def check(folder: Path, asked: int) -> None:
    """All that must hold in the end."""
    noted = folder / "faults"
    assert not noted.exists(), noted.read_text()
    sampler = sampler_of(folder)
    study = existing(storage_of(folder), "shared")
    trials = study.get_trials(deepcopy=False)
    assert [trial.number for trial in trials] == [*range(len(trials))]
    complete = [trial for trial in trials if trial.state is TrialState.COMPLETE]

    done = reported(folder)
    assert len({*done}) == len(done)
    assert {*done} <= {trial.number for trial in complete}  # none that was finished is lost
    assert asked <= len(complete) <= asked + WORKERS - 1

    message = sampler.preview(study)
    agent = sampler.agent_of(study)
    assert agent is not None and message is not None and message.sequence == len(complete)
    told = [trial for trial in agent.trials if trial.state == "complete"]
    # none is told twice, and none is forgotten
    ended = sorted(complete, key=lambda trial: (trial.datetime_complete, trial.number))
    assert [(t.params, t.score) for t in told] == [(t.params, t.value) for t in ended]

    record = read_record(study)
    assert record is not None and agent.federation is not None
    [trusted] = FolderExchange(folder / "exchange").fetch(agent.federation)
    published = trusted.content
    assert published.sender == record.name == agent.name
    assert len(complete) - WORKERS < published.sequence <= len(complete)
    assert {release.agent for release in Ledger(folder / "ledger.jsonl").read()} == {agent.name}
    running = [trial.number for trial in trials if trial.state is TrialState.RUNNING]
    print(
        f"{len(complete)} of {asked} trials are complete, {len(running)} were begun by the killed"
    )


@pytest.mark.slow
def test_workers_that_are_killed_lose_nothing_and_tell_nothing_twice(tmp_path: Path) -> None:
    rounds(tmp_path, 3)


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        work(Path(sys.argv[2]), int(sys.argv[3]), workers=WORKERS)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            rounds(Path(scratch), int(sys.argv[1]))
