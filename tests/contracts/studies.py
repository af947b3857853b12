"""What tests of studies share."""

from __future__ import annotations

from collections.abc import Callable

import optuna

from fedbo import Agent, Federation, Float, Message, Space
from fedbo.optuna.study import StudyRecord, read_record
from fedbo.testing.keys import keys_of
from fedbo.trust import KeyPair

PATIENCE = 60.0  # seconds, for what takes none on a machine that is not busy
FEDERATION = Federation(Space({"x": Float(0, 1)}, direction="minimize"), features=20)


def bowl(trial: optuna.Trial) -> float:
    return (trial.suggest_float("x", 0, 1) - 0.3) ** 2


def settle(study: optuna.Study) -> None:
    """Wait for what is fetched and sent after a trial; what went wrong becomes warnings."""
    sampler = study.sampler
    assert sampler._mail.courier.wait(PATIENCE)  # type: ignore[attr-defined]
    sampler._pass_on_complaints()  # type: ignore[attr-defined]


def run(study: optuna.Study, n: int = 1, objective: Callable[[optuna.Trial], float] = bowl) -> None:
    """Run trials; each knows what the exchange had before it."""
    for _ in range(n):
        study.optimize(objective, n_trials=1)
        settle(study)


def peer(name: str, scores: int = 5, keys: KeyPair | None = None) -> Message:
    """The signed message of a peer with so many scores."""
    agent = Agent(FEDERATION, name=name, seed=0, keys=keys or keys_of(name))
    for i in range(scores):
        agent.tell({"x": (i + 1) / (scores + 2)}, float(i))
    return agent.message()


def inbox(study: optuna.Study) -> list[str]:
    """Whose messages the study's agent holds."""
    return sorted(study.sampler.agent.inbox.senders)  # type: ignore[attr-defined]


def record_of(study: optuna.Study) -> StudyRecord:
    record = read_record(study)
    assert record is not None
    return record
