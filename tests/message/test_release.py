"""Releases as they travel, and as an agent receives them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contracts.inboxes import covariance
from contracts.releases import contribution, released
from msgspec.structs import replace

import fedbo
from fedbo.errors import MessageRefused
from fedbo.exchange import ExchangeWarning, Ledger
from fedbo.federation import Federation
from fedbo.federation.shared import Shared
from fedbo.message.inbox import BeliefInbox
from fedbo.message.message import Kind
from fedbo.message.release import Release
from fedbo.privacy import Plan
from fedbo.privacy.contribution import shape
from fedbo.privacy.release import draws
from fedbo.testing.keys import keys_of
from fedbo.trust import KeyPair, Keyring

SPACE = {"x": fedbo.Float(0, 1), "y": fedbo.Float(0, 1)}


PLAN = Plan(epsilon=4.0, delta=1e-2, releases=2)


def published(agreed: Federation, members: int = 20, seed: int = 0, sequence: int = 1) -> Release:
    """A release whose members' functions are largest near (0.2, 0.8)."""
    rng, best = np.random.default_rng(seed), np.array([0.2, 0.8])
    X = rng.random((200, 2))
    y = -((X - best) ** 2).sum(axis=1)
    nu = np.linalg.lstsq(Shared.of(agreed).phi(X), (y - y.mean()) / y.std(), rcond=1e-3)[0]
    cell, given = Shared.of(agreed).cell(best), shape(Shared.of(agreed), nu)
    sent = [contribution(agreed, f"site-{i}", cell=cell, y=given) for i in range(members)]
    return released(agreed, sent, sequence=sequence, seed=seed)


@pytest.fixture(scope="module")
def agreed() -> Federation:
    return Federation(SPACE, privacy=PLAN)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"epsilon": 0.0}, "epsilon is 0.0, expected 8.67362e-19 to 1"),
        ({"sums_deviation": float("inf")}, "sums_deviation is inf"),
        ({"members": 0}, "members is 0, expected 1"),
        ({"votes": ()}, "votes has 0 numbers"),
        ({"sums": (2**63,)}, "sums has 1 numbers, expected"),
        ({"neighbours": "nobody"}, "neighbours is 'nobody'"),
        ({"sender": "x" * 54}, "expected 1 to 53 bytes"),
    ],
)
def test_absurd_fields_are_refused(agreed: Federation, change: dict, text: str) -> None:
    with pytest.raises(MessageRefused, match=text):
        replace(published(agreed), **change)


def test_one_that_does_not_fit_is_refused(agreed: Federation) -> None:
    one = published(agreed)
    agent = fedbo.Agent(agreed, seed=0)
    with pytest.raises(MessageRefused, match="votes for 3 cells and 16 coordinates"):
        agent.receive(replace(one, votes=(1, 2, 3)))
    with pytest.raises(MessageRefused, match="coordinates"):
        agent.receive(replace(one, sums=one.sums[:5], squared=0))
    with pytest.raises(MessageRefused, match="release 1 of 'hub'"):
        fedbo.Agent(Federation(SPACE, seed=3, privacy=PLAN), seed=0).receive(one)
    assert len(agent.inbox) == 0


@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        ("compact", fedbo.TipsThenPool()),
        ("weights", fedbo.TipsThenPool()),
        ("weights", fedbo.FTS(schedule=1e-6)),
        ("belief", fedbo.RGPE()),
        ("belief", fedbo.TAF()),
    ],
)
def test_every_policy_can_use_it(kind: Kind, policy: fedbo.Policy) -> None:
    here = Federation(SPACE, kind=kind, privacy=PLAN)
    agent = fedbo.Agent(here, policy, seed=0)
    assert agent.receive(published(here).encode()) == 1
    assert agent.inbox.informed == len(agent.inbox) == 64
    for _ in range(4):
        trial = agent.ask()
        agent.tell(trial, -((trial.params["x"] - 0.2) ** 2) - (trial.params["y"] - 0.8) ** 2)


@pytest.mark.parametrize("kind", ["compact", "weights", "belief"])
def test_a_draw_is_held_like_a_message_that_is_sure_of_the_leading_coordinates(kind: Kind) -> None:
    """Mean z or B z, and no covariance along the first coordinates."""
    here = Federation(SPACE, kind=kind, privacy=PLAN)
    one = published(here)
    agent = fedbo.Agent(here, fedbo.FTS(), seed=0)
    agent.receive(one)
    inbox = agent.inbox
    digest = hashlib.sha256(one.content).digest()
    Z = draws(Shared.of(here), one, np.random.default_rng(list(digest)))
    B = np.eye(len(Shared.of(here).basis)) if kind == "compact" else Shared.of(here).basis.vectors
    assert inbox.senders == one.names and inbox.sequence.tolist() == [1] * 64
    assert inbox.t_n.tolist() == [one.trials // one.members] * 64
    if kind == "weights":
        np.testing.assert_allclose(inbox.omega, Z @ B.T, atol=1e-6)
        return
    assert isinstance(inbox, BeliefInbox)
    np.testing.assert_allclose(inbox.nu, Z @ B.T, atol=1e-6)
    sure = B[:, : one.coordinates]
    np.testing.assert_allclose(covariance(inbox, 7), np.eye(len(B)) - sure @ sure.T, atol=1e-6)
    along, expected = inbox.omega @ sure, Z[:, : one.coordinates]
    np.testing.assert_allclose(along, expected, atol=2e-3)  # the draws of it keep what is sure
    assert np.abs(inbox.omega - inbox.nu).max() > 1.0


def test_its_signature_is_checked(agreed: Federation) -> None:
    ours, theirs = KeyPair.generate(), KeyPair.generate()
    plan = Plan(epsilon=4.0, delta=1e-2, by="trustee")
    listed = Federation(SPACE, members={"trustee": str(ours)}, privacy=plan)
    one = published(listed)
    agent = fedbo.Agent(listed, seed=0)
    unsigned, changed = replace(one, key=b"", signature=b""), replace(ours.sign(one), members=19)
    for wrong, why in (
        (unsigned, "not signed"),
        (theirs.sign(one), "the federation lists"),
        (changed, "wrong signature"),
    ):
        with pytest.raises(MessageRefused, match=why):
            agent.receive(wrong.encode())
    assert agent.receive(ours.sign(one)) == 1
    assert len(agent.inbox) == 64


def test_the_limit_of_peers_holds(agreed: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbo.agent.agent.MOST_PEERS", 60)
    agent = fedbo.Agent(agreed, seed=0)
    with pytest.warns(UserWarning, match="holds those of 0 peers"):
        assert agent.receive(published(agreed)) == 0
    assert len(agent.inbox) == 0


# What a plan allows


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"sender": "other"}, "the federation names 'hub' as the party that makes releases"),
        ({"epsilon": 4.5}, r"number of releases are \(4.5, 0.01, 2\), expected \(4.0, 0.01, 2\)"),
        ({"delta": 0.02}, r"are \(4.0, 0.02, 2\), expected"),
        ({"releases": 3}, r"are \(4.0, 0.01, 3\), expected"),
        ({"sequence": 0}, "its plan has 2 releases"),
        ({"sequence": 3}, "its plan has 2 releases"),
    ],
)
def test_a_release_that_was_not_planned_is_refused(
    agreed: Federation, change: dict[str, Any], text: str
) -> None:
    one = replace(published(agreed), **change)
    with pytest.raises(MessageRefused, match=text):
        agreed.check(one)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"basis": b"abcd"}, "other directions of the features, 61626364, .*update NumPy"),
        ({"votes": (0,)}, r"it has votes for 1 cells and \d+ coordinates, not"),
    ],
)
def test_a_release_of_other_directions_or_cells_is_refused(
    agreed: Federation, change: dict[str, Any], text: str
) -> None:
    one = replace(published(agreed), **change)
    agreed.check(one)  # its terms are those of the plan
    with pytest.raises(MessageRefused, match=text):
        Shared.of(agreed).check(one)
    agent = fedbo.Agent(agreed, seed=0)
    with pytest.raises(MessageRefused, match=text):
        agent.receive(one)
    assert len(agent.inbox) == 0


@pytest.mark.parametrize("name", ["votes_scale", "sums_deviation"])
@pytest.mark.parametrize(("factor", "word"), [(0.999, "less"), (1.001, "more")])
def test_a_release_with_less_or_more_noise_than_planned_is_refused(
    agreed: Federation, name: str, factor: float, word: str, tmp_path: Path
) -> None:
    one = published(agreed)
    changed = replace(one, **{name: factor * getattr(one, name)})
    text = f"release 1 of 'hub': {name} is .*, expected .*{word} noise than the plan asks for"
    with pytest.raises(MessageRefused, match=text):
        agreed.read(changed.encode())
    agent = fedbo.Agent(agreed, seed=0, ledger=Ledger(tmp_path / "ledger"))
    with pytest.raises(MessageRefused, match=text):
        agent.receive(changed)
    assert len(agent.inbox) == 0 and Ledger(tmp_path / "ledger").read() == []
    rounded = replace(one, **{name: (1 + 1e-12) * getattr(one, name)})  # on another processor
    assert agent.receive(keys_of("hub").sign(rounded)) == 1


def test_the_second_moments_are_those_of_so_many_members(agreed: Federation) -> None:
    """A weight of the sender's choice would decide how much noise the mean has."""
    few, many = published(agreed, members=20), released(agreed, (None,) * 300)
    assert (few.weight, few.squared, many.weight, many.squared) == (0.5, 6, 1.0, 16)
    for members, one in ((300, few), (299, many)):
        with pytest.raises(MessageRefused, match=f"its second moments have .* {members} members"):
            agreed.check(replace(one, members=members))
    with pytest.raises(MessageRefused, match="have weight 32 and 6 coordinates"):
        agreed.check(replace(few, weight=32.0))
    agreed.check(few)
    agreed.check(many)


def test_nobody_may_publish_releases_without_a_plan(agreed: Federation) -> None:
    open_one = Federation(SPACE)
    agent = fedbo.Agent(open_one, seed=0)
    with pytest.raises(MessageRefused, match="another privacy plan"):
        agent.receive(published(agreed))
    forged = replace(published(agreed), fingerprint=bytes(open_one.fingerprint))
    with pytest.raises(MessageRefused, match="the federation has no privacy plan"):
        agent.receive(forged)


def test_two_releases_with_one_number_are_reported(agreed: Federation, tmp_path: Path) -> None:
    agent = fedbo.Agent(agreed, seed=0, ledger=Ledger(tmp_path / "ledger"))
    agent.receive(published(agreed))
    agent.receive(published(agreed))  # again: a warning would be an error
    with pytest.warns(ExchangeWarning, match="2 different releases with the number 1"):
        agent.receive(published(agreed, seed=1))
    assert len(Ledger(tmp_path / "ledger").read()) == 2


def test_what_a_revoked_key_has_published_is_forgotten(agreed: Federation) -> None:
    keys, keyring = KeyPair.generate(), Keyring()
    agent = fedbo.Agent(agreed, seed=0, keyring=keyring)
    agent.receive(keys.sign(published(agreed, members=60)))
    keyring.revoke(keys.public)
    assert agent.ask().params == fedbo.Agent(agreed, seed=0).ask().params
    assert len(agent.inbox) == 0


@pytest.mark.parametrize("seed", range(40))
def test_a_hostile_release_overflows_nothing(agreed: Federation, seed: int, tmp_path: Path) -> None:
    """Every number may be as large or as small as its form allows; a warning would be an error."""
    rng, members = np.random.default_rng(seed), [1, 5, 2**31 - 1][seed % 3]
    one = replace(released(agreed, (None,) * min(members, 300)), members=members)
    whole = [0, 1, -1, 2**31, -(2**52), 2**62, -(2**62)]
    changes: dict[str, Any] = {
        "votes": tuple(rng.choice(whole, len(one.votes)).tolist()),
        "sums": tuple(rng.choice(whole, len(one.sums)).tolist()),
    }
    agent = fedbo.Agent(agreed, seed=0)
    agent.receive(keys_of("hub").sign(replace(one, **changes)).encode())
    assert np.isfinite(agent.inbox.nu).all() and np.isfinite(agent.inbox.omega).all()
    agent.ask()
    agent.save(tmp_path / "agent")
    assert len(fedbo.Agent.load(tmp_path / "agent").inbox) == 64
