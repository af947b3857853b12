"""Messages of a study are signed, and what keeps them from being published is said once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from contracts.exchange import heard
from contracts.studies import record_of

from fedbo import Federation, Float, Space
from fedbo.exchange import ExchangeWarning, FolderExchange
from fedbo.optuna import FederatedSampler
from fedbo.trust import KeyPair, Keyring, verify

pytestmark = pytest.mark.usefixtures("patient")

SPACE = Space({"x": Float(0, 1)}, direction="minimize")
FEDERATION = Federation(SPACE, features=20)


@pytest.fixture
def exchange(tmp_path: Path) -> FolderExchange:
    return FolderExchange(tmp_path / "exchange")


def run(study: optuna.Study, n: int = 1) -> None:
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=n)
    study.sampler.flush()  # type: ignore[attr-defined]


def study_at(exchange: Any, federation: Any = FEDERATION, **options: Any) -> optuna.Study:
    options = {"name": "site", "every": 1} | options
    return optuna.create_study(sampler=FederatedSampler(federation, exchange, **options))


def held(exchange: FolderExchange) -> list[tuple[str, str, int]]:
    """The sender, the key and the sequence of all that is in the exchange, whoever accepts it."""
    messages = [held.message for held in exchange.holdings()]
    return [(one.sender, one.signer, one.sequence) for one in messages if one is not None]


def texts(caught: Any) -> list[str]:
    return [str(warning.message) for warning in caught]


# Keys


def test_messages_are_signed_with_the_users_key(exchange: FolderExchange) -> None:
    study = study_at(exchange)
    run(study, 2)
    own = str(KeyPair.load())
    [message] = heard(exchange, FEDERATION)
    verify(message)
    assert (message.signer, record_of(study).key) == (own, own)
    agent = study.sampler.agent  # type: ignore[attr-defined]
    assert agent.keyring is exchange.keyring
    assert exchange.keyring.known(FEDERATION) == {"site": own}


# What keeps messages from being published


def test_a_worker_without_the_private_key_publishes_nothing_until_it_is_imported(
    exchange: FolderExchange, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_at(exchange)
    run(study, 2)
    first = KeyPair.load()
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "elsewhere"))
    study.sampler = FederatedSampler(FEDERATION, FolderExchange(tmp_path / "exchange"), every=1)
    with pytest.warns(ExchangeWarning) as caught:
        run(study, 3)
    [text] = texts(caught)
    assert text.startswith(
        "no message of this study is published from here: peers know this study by its key "
        f"{first}, and that private key is not on this machine"
    )
    assert "fedbo identity show" in text and "fedbo identity import FILE" in text
    assert held(exchange) == [("site", str(first), 2)]
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 5
    assert first.path is not None
    KeyPair.add(first.path)  # fedbo identity import
    run(study)
    assert held(exchange) == [("site", str(first), 6)]


def test_only_a_listed_member_publishes(exchange: FolderExchange) -> None:
    own, other = str(KeyPair.load()), str(KeyPair.generate())
    cases = {
        "'site' is not among the members that the federation lists: clinic": {"clinic": own},
        "lists a key of 'site', and its private key is not on this machine": {"site": other},
    }
    for expected, members in cases.items():
        study = study_at(exchange, Federation(SPACE, features=20, members=members))
        with pytest.warns(ExchangeWarning) as caught:
            run(study, 2)
        [text] = texts(caught)
        assert expected in text
        assert held(exchange) == []
    listed = Federation(SPACE, features=20, members={"site": own})
    study = study_at(exchange, listed, name="site/liver")
    run(study, 2)
    assert held(exchange) == [("site/liver", own, 2)]


def test_a_key_that_cannot_be_used_costs_no_trial(exchange: FolderExchange, state: Path) -> None:
    (state / "identity.pem").write_text("not a key")
    (state / "identity.pem").chmod(0o600)
    study = study_at(exchange)
    with pytest.warns(ExchangeWarning, match="is not a private key"):
        run(study, 3)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 3
    assert held(exchange) == []


@pytest.mark.filterwarnings("ignore:.* was skipped")
def test_a_revoked_key_is_replaced_and_peers_must_be_told(exchange: FolderExchange) -> None:
    study = study_at(exchange)
    run(study)
    old = KeyPair.load()
    new = KeyPair.retire()
    Keyring.user().revoke(old.public)
    study.sampler = FederatedSampler(FEDERATION, exchange, every=1)
    with pytest.warns(ExchangeWarning, match=f"fedbo identity trust site {new}"):
        run(study)
    assert record_of(study).key == str(new)
    assert str(old) in exchange.keyring.revoked()
    assert held(exchange) == [("site", str(new), 2)]
