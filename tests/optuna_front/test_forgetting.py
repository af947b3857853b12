"""A study forgets what its exchange no longer hands out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from contracts.studies import settle

from fedbo import Agent, Federation, Float, Message, Space
from fedbo.exchange import (
    Exchange,
    ExchangeError,
    ExchangeWarning,
    FolderExchange,
    MemoryExchange,
)
from fedbo.identity import KeyPair
from fedbo.optuna import FederatedSampler
from fedbo.optuna.study import Mirror

pytestmark = pytest.mark.usefixtures("patient")

FEDERATION = Federation(Space({"x": Float(0, 1)}, direction="minimize"), features=20)


def peer(name: str, scores: int = 5, keys: KeyPair | None = None) -> Message:
    agent = Agent(FEDERATION, name=name, seed=0, keys=keys)
    for i in range(scores):
        agent.tell({"x": (i + 1) / (scores + 2)}, float(i))
    return agent.message()


def run(study: optuna.Study, n: int = 1) -> None:
    """Run trials; each knows what the exchange had before it."""
    for _ in range(n):
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
        settle(study)


def inbox(study: optuna.Study) -> list[str]:
    return study.sampler.agent.inbox.senders  # type: ignore[attr-defined]


@pytest.fixture(params=["memory", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Exchange:
    return MemoryExchange() if request.param == "memory" else FolderExchange(tmp_path / "exchange")


@pytest.mark.parametrize("make_keys", [lambda: None, KeyPair.generate])
def test_a_message_that_is_withdrawn_is_forgotten_and_heard_again_later(
    place: Exchange, make_keys: Callable[[], KeyPair | None]
) -> None:
    keys = make_keys()
    place.publish(peer("a", keys=keys))
    place.publish(peer("b"))
    study = optuna.create_study(sampler=FederatedSampler(FEDERATION, place))
    run(study, 2)
    assert inbox(study) == ["a", "b"]
    assert place.withdraw(FEDERATION, "a", keys)
    run(study, 2)
    assert inbox(study) == ["b"]
    place.publish(peer("a", 6, keys))
    run(study, 2)
    assert sorted(inbox(study)) == ["a", "b"]


def test_an_exchange_that_fails_makes_nobody_forget() -> None:
    class Flaky(MemoryExchange):
        is_down = False

        def fetch(self, federation: Federation) -> list[Message]:
            if self.is_down:
                raise ExchangeError("the drive is not there; mount it")
            return super().fetch(federation)

    place = Flaky()
    place.publish(peer("a"))
    study = optuna.create_study(sampler=FederatedSampler(FEDERATION, place))
    run(study, 2)
    place.is_down = True
    with pytest.warns(ExchangeWarning, match="the drive is not there"):
        run(study, 3)
    assert inbox(study) == ["a"]
    place.withdraw(FEDERATION, "a")
    place.is_down = False
    run(study, 2)
    assert inbox(study) == []


def mirror() -> Mirror:
    return Mirror(Agent(FEDERATION, name="here", seed=0))


def test_the_agent_holds_what_was_handed_out_last() -> None:
    one, keys = mirror(), KeyPair.generate()
    assert one.hear([peer("a"), peer("b", 9), peer("here")]) == []
    assert one.agent.inbox.senders == ["a", "b"]
    one.hear([peer("b", 4), peer("c")])  # an earlier message of b has taken its place
    assert dict(zip(one.agent.inbox.senders, one.agent.inbox.t_n, strict=True)) == {"b": 4, "c": 5}
    one.hear([peer("b", 3, keys), peer("c")])
    assert dict(zip(one.agent.inbox.senders, one.agent.inbox.t_n, strict=True)) == {"c": 5, "b": 3}
    one.hear([])
    assert len(one.agent.inbox) == 0


def test_an_old_signed_message_that_somebody_puts_back_is_not_heard() -> None:
    one, keys = mirror(), KeyPair.generate()
    one.hear([peer("a", 9, keys)])
    one.hear([peer("a", 4, keys)])
    assert len(one.agent.inbox) == 0
    one.hear([])
    one.hear([peer("a", 4, keys)])
    assert len(one.agent.inbox) == 0
    one.hear([peer("a", 9, keys)])  # such as when a hub selects it again
    assert one.agent.inbox.senders == ["a"]
