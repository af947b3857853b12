"""What every exchange must do in a private federation, as tests: inherit them as in `exchange`.

They are for places that hand out contributions to whoever makes the releases, such as a folder.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from contracts.exchange import Place, heard, unwarned, withdrawal
from contracts.releases import contribution, private, released
from fedbo import Agent
from fedbo.exchange import Exchange, ExchangeWarning, Ledger
from fedbo.exchange.contributions import make_release
from fedbo.federation.shared import Shared
from fedbo.message import MessageRefused, Release
from fedbo.privacy import Plan
from fedbo.testing.keys import keys_of, new_keys
from fedbo.trust import KeyPair

PLAN = Plan(epsilon=2.0, delta=1e-3, releases=3)
OURS = private(plan=PLAN)


class PrivateExchangeContract(Place):
    """The tests."""

    knows_keys = True  # whether it hears only what is signed

    def put(self, exchange: Exchange, content: Release) -> None:
        """Put a release there as somebody can who controls the place."""
        exchange.publish(content)

    def test_agents_hear_releases_only(self, exchange: Exchange) -> None:
        sent = [contribution(OURS, sender) for sender in ("b", "a")]
        for one in sent:
            assert exchange.publish(one) is True
        assert exchange.fetch(OURS) == []
        one = released(OURS)
        assert exchange.publish(one) is True
        for place in (exchange, self.again(exchange)):
            assert [found.encode() for found in heard(place, OURS)] == [one.encode()]
            assert place.contributions(OURS) == sent[::-1]

    def test_a_party_may_contribute_and_make_releases(self, exchange: Exchange) -> None:
        """Its contribution and its release do not replace each other, whatever their numbers."""
        ours, one = contribution(OURS, "hub", sequence=1), released(OURS)
        assert exchange.publish(one) is exchange.publish(ours) is True
        for place in (exchange, self.again(exchange)):
            assert heard(place, OURS) == [one]
            assert place.contributions(OURS) == [ours]

    # Withdrawing

    def test_a_release_cannot_be_withdrawn(self, exchange: Exchange, tmp_path: Path) -> None:
        """Whoever has it has it: nothing could be taken back."""
        one = released(OURS)
        exchange.publish(one)
        assert Ledger(tmp_path / "ledger").withdraw(exchange, OURS, "hub", keys_of("hub")) is False
        exchange.publish(withdrawal(one))
        assert heard(exchange, OURS) == [one]

    # What does not fit

    def test_a_release_that_was_not_planned_is_skipped(self, exchange: Exchange) -> None:
        stranger = replace(released(OURS), sender="stranger")
        exchange.publish(keys_of("stranger").sign(stranger))
        exchange.publish(contribution(OURS))
        with pytest.warns(ExchangeWarning, match="names 'hub' as the party that makes releases"):
            assert heard(exchange, OURS) == []
        assert heard(exchange, OURS) == []  # and says no more: a warning is an error here
        assert exchange.contributions(OURS) == [contribution(OURS)]

    @pytest.mark.parametrize("forgery", ["unsigned", "another key", "wrong signature"])
    def test_a_forged_release_is_skipped(
        self, exchange: Exchange, keys: KeyPair, forgery: str
    ) -> None:
        if not self.knows_keys:
            pytest.skip("the agents of one program need no keys")
        listed = private(plan=PLAN, members={"hub": str(keys)})
        forged = released(listed, sequence=3, keys=new_keys())
        if forgery == "unsigned":
            forged = replace(forged, key=b"", signature=b"")
        elif forgery == "wrong signature":
            forged = replace(forged, key=keys.public, signature=bytes(64))
        self.put(exchange, forged)
        with pytest.warns(ExchangeWarning, match="skipped"):
            assert heard(exchange, listed) == []
        real = released(listed, keys=keys)
        assert exchange.publish(real) is True
        assert unwarned(exchange, listed) == [real]

    def test_an_absurd_contribution_is_skipped(self, exchange: Exchange) -> None:
        exchange.publish(contribution(OURS, "good"))
        exchange.publish(
            contribution(OURS, "bad", y=np.full(Shared.of(OURS).shape_coordinates, np.nan))
        )
        exchange.publish(contribution(OURS, "wrong", cell=99))
        with pytest.warns(ExchangeWarning) as caught:
            assert [one.sender for one in exchange.contributions(OURS)] == ["good"]
        texts = sorted(str(one.message) for one in caught)
        assert len(texts) == 2 and any("nan" in text for text in texts)

    # The whole way

    def test_from_contributions_to_the_first_trial(
        self, exchange: Exchange, tmp_path: Path
    ) -> None:
        many = private(plan=Plan(epsilon=50.0, delta=1e-2))
        for i in range(20):
            agent = Agent(many, name=f"site-{i}", seed=i, keys=keys_of(f"site-{i}"))
            for x in (0.1, 0.55, 0.9):
                agent.tell({"x": x}, -abs(x - 0.6))
            exchange.publish(agent.message())
        made, _ = make_release(exchange, many, Ledger(tmp_path / "ledger"), keys_of("hub"))
        newcomer = Agent(many, name="new", seed=99)
        assert newcomer.receive(self.again(exchange).fetch(many)) == 1
        assert abs(float(newcomer.ask().params["x"]) - 0.55) < 0.2
        with pytest.raises(MessageRefused):
            newcomer.receive(exchange.contributions(many))
        assert made.members == 20
