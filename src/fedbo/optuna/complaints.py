"""What goes wrong at an exchange, as sentences for the user, each kind of them once."""

from __future__ import annotations

import time
from typing import Literal

from fedbo.exchange import ExchangeError

Errand = Literal["publish", "fetch"]

_PATIENCE = 30.0  # seconds without an answer
_OVERTAKEN = 5  # messages in a row; workers of one study overtake one another now and then
_ONCE = "This warning is given once"
_TITLES = {
    "make": "This study's message was not made",
    "publish": "This study's message was not published",
    "fetch": "Messages of peers were not fetched",
}


class Complaints:
    """The complaints about one exchange, which is named by its address."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._new: list[str] = []
        self._given: set[str] = set()
        self._failing: set[str] = set()  # errands that failed the last time
        self._unanswered: set[str] = set()  # errands that took too long the last time
        self._under_way: tuple[Errand, float] | None = None  # an errand, and when it began
        self._overtaken = 0

    def take(self) -> list[str]:
        """Return what went wrong since the last call."""
        if self._under_way is not None:
            errand, begun = self._under_way
            if time.monotonic() - begun > _PATIENCE and errand not in self._unanswered:
                self._unanswered.add(errand)
                self._new.append(
                    f"{self._address} has not answered for more than {_PATIENCE:g} seconds. The "
                    "study goes on without it: no message comes in or goes out until it answers. "
                    f"{_ONCE} until then"
                )
        taken, self._new = self._new, []
        return taken

    def begin(self, errand: Errand) -> None:
        self._under_way = errand, time.monotonic()

    def end(self, errand: Errand, error: Exception | None) -> None:
        """Note how an errand ended. If nothing works, one complaint is enough."""
        self._under_way = None
        if error is None:
            self._failing.discard(errand)
            self._unanswered.discard(errand)
            return
        if self._failing <= {errand}:
            where = "" if isinstance(error, ExchangeError) else f" at {self._address}"
            self._add_error(errand, error, where)
        self._failing.add(errand)

    def not_made(self, error: Exception) -> None:
        self._add_error("make", error)

    def published(self, sender: str, is_out: bool) -> None:
        """Note whether the exchange took a message, or already had a later one."""
        self._overtaken = 0 if is_out else self._overtaken + 1
        if self._overtaken == _OVERTAKEN:
            self._add(
                "overtaken",
                f"{self._address} already has a later message under the name {sender!r}, so "
                "another study seems to use this name, or did. Peers receive that message instead "
                "of this study's. Give this study another name, or withdraw the other message "
                f"(fedbo join {self._address} ... --withdraw). {_ONCE}",
            )

    def _add_error(self, kind: str, error: Exception, where: str = "") -> None:
        is_clear = isinstance(error, ExchangeError)
        reason = str(error) if is_clear else f"{type(error).__name__}{where}: {error}"
        self._add(
            kind,
            f"{_TITLES[kind]}: {reason}. The study goes on, and this is tried again after each "
            f"trial. {_ONCE}",
        )

    def _add(self, kind: str, sentence: str) -> None:
        if kind not in self._given:
            self._given.add(kind)
            self._new.append(sentence)
