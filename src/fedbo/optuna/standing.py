"""How a study takes part at an exchange: as whose agent, and with which key.

At a folder, a study has any name. At a hub it is an agent of a member, so that a team's second
study does not replace its first: its name is the member's, or begins with it (``clinic/liver``).
"""

from __future__ import annotations

from typing import NamedTuple

from fedbo.exchange import Exchange, ExchangeError
from fedbo.federation import Federation
from fedbo.message.signed import SENDER_BYTES, member
from fedbo.optuna.record import is_drawn


class Standing(NamedTuple):
    """How a study takes part at an exchange."""

    member: str | None = None  # whose agent the study is; None if any name will do
    key: str | None = None  # that messages must be signed with, as text; None if any will do
    hindrance: str = ""  # why the study cannot take part

    def name(self, given: str) -> str:
        """Return the name of a study here.

        Args:
            given: The name that it has, or should have.

        >>> clinic = Standing("clinic")
        >>> clinic.name("liver"), clinic.name("clinic/lung"), clinic.name("clinic")
        ('clinic/liver', 'clinic/lung', 'clinic')
        """
        if self.member in (None, member(given)):
            return given
        last = given.rpartition("/")[2]
        return f"{self.member}/{last if is_drawn(last) else given}"

    @property
    def unsigned(self) -> str:
        """Why a study that must sign cannot publish if its member has no key."""
        return (
            f"{self.member!r} joined without a key, so that only messages that are not signed are "
            "taken: leave out signed=True, or join again with a key"
        )

    def signs(self, signed: bool | None, known: str) -> tuple[bool | None, str]:
        """Return whether messages are signed here, and with which key, as `signing.prepare` wants.

        Args:
            signed: Whether the user wants to sign; None if it does not matter.
            known: The public key that the study has stored; empty if there is none.
        """
        if self.key is None:
            return signed, known
        return signed if self.key else False, self.key

    def fits(self, name: str) -> Standing:
        """Return the same, or the hindrance that a name is too long.

        Args:
            name: What `name` returned.
        """
        if self.hindrance or (size := len(name.encode())) <= SENDER_BYTES:
            return self
        return Standing(
            hindrance=f"its name would be {name!r}, with {size} bytes, and at most {SENDER_BYTES} "
            "are possible: give the study a shorter name with name=... (or --name)"
        )


def standing_at(exchange: Exchange, federation: Federation) -> Standing:
    """Find out how this user's studies take part in a federation.

    Args:
        exchange: Where messages go.
        federation: The federation.
    """
    try:
        return Standing(exchange.member(federation), exchange.signer(federation))
    except ExchangeError as error:
        return Standing(hindrance=str(error))
