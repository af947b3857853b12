"""What one program hears at one place in one federation: what is trusted there, and counts."""

from __future__ import annotations

from collections.abc import Iterable

from fedbo.caller import warn
from fedbo.errors import MessageRefused
from fedbo.exchange.errors import ExchangeWarning, failing
from fedbo.exchange.latest import latest
from fedbo.federation.federation import Federation
from fedbo.message import Message, Release, Withdrawal
from fedbo.outside import printable, shortened
from fedbo.trust import Border, Keyring, Trusted

NAMED = 5  # things skipped that one fetch names; the rest are counted
_LONGEST = 1000  # characters of a warning that may quote others


class Hearing:
    """Hears what is at a place, once for each change.

    Args:
        federation: The federation.
        keyring: Whose key is whose; None at a place inside one program.
        address: Of the place, for warnings.
    """

    def __init__(self, federation: Federation, keyring: Keyring | None, address: str) -> None:
        self._border, self._address = Border(federation, keyring), address
        self._told: set[str] = set()  # warnings that were given the last time
        self._heard: list[Trusted] = []
        self._messages: list[Trusted] = []  # the same list until something changes

    def is_settled(self, federation: Federation) -> bool:
        """Tell whether all that was heard the last time is still trusted.

        Args:
            federation: The same federation, with its list of members as it is now.
        """
        self._border.federation = federation
        return self._border.is_settled

    def hear(self, entries: Iterable[tuple[str, bytes | str]], faults: Iterable[str] = ()) -> None:
        """Take what is at the place now, in place of what was there before.

        What is not trusted is left out with a warning, which is not repeated.

        Args:
            entries: A name for people, and the bytes or why they cannot be read, of each thing.
            faults: What else there is to warn of.
        """
        labels: dict[bytes, str] = {}
        said = list(faults)
        for label, data in entries:
            if isinstance(data, str):
                said.append(f"{label} was skipped: {data}")
            else:
                labels[data] = label
        with failing(f"the keys of what is in {self._address} cannot be looked up"):
            outcomes = self._border.admit(labels)
        trusted: dict[object, Trusted] = {}
        for label, outcome in zip(labels.values(), outcomes, strict=True):
            if isinstance(outcome, MessageRefused):
                said.append(f"{label} was skipped: {outcome}")
            else:
                trusted[outcome.content] = outcome
        counting = latest(each.content for each in trusted.values())
        ordered = sorted(counting.items(), key=lambda item: (item[0].sender, item[0].key))
        self._heard = [
            trusted[content] for _, content in ordered if not isinstance(content, Withdrawal)
        ]
        wanted = Message if self._border.federation.privacy is None else Release
        self._messages = [each for each in self._heard if isinstance(each.content, wanted)]
        self._tell(said)

    def messages(self) -> list[Trusted]:
        """Return what agents hear: messages, or the latest release if there is a privacy plan."""
        return self._messages

    def contributions(self) -> list[Message]:
        """Return the contributions to private releases."""
        return [each.content for each in self._heard if isinstance(each.content, Message)]

    def _tell(self, faults: Iterable[str]) -> None:
        """Warn of each fault that was not told the last time; of very many, the rest is counted."""
        now = dict.fromkeys(printable(shortened(text, _LONGEST)) for text in faults)
        news = [text for text in now if text not in self._told]
        self._told = set(now)
        for text in news[:NAMED]:
            warn(text, ExchangeWarning)
        if (surplus := len(news) - NAMED) > 0:
            warn(f"{surplus:,} more messages in {self._address} were skipped", ExchangeWarning)


def foreign(address: str, federation: Federation, other: bytes) -> str:
    """Say that another federation is at a place too, and in what it differs."""
    return (
        f"another federation is here, in {address}, and ignored: "
        f"{federation.fingerprint.mismatch(other)}. Sites hear one another if they have the same "
        "federation file"
    )
