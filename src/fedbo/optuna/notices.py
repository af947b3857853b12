"""Warnings about a study, each given once: problems that the study can continue with."""

from __future__ import annotations

import time
import warnings
from typing import Literal

from fedbo.exchange import ExchangeError, ExchangeWarning

Errand = Literal["publish", "fetch"]

_NOTICES = {
    "name is kept": "peers know this study as {known!r}, and a study keeps its name: {given!r} is "
    "ignored",
    "cannot tune": "{reason}; it is sampled independently",
    "cannot learn": "trial {number} has a value, but the federation cannot learn from it: "
    "{reason}. Suggest all parameters of the federation, or create a federation with those that "
    "you suggest. Other trials like this one are ignored without another warning",
    "counts where asked": "trial {number} did not suggest {name!r}, so its score counts at the "
    "value that was asked for. This is right for a parameter that some trials do not need",
    "message ignored": "a message was ignored: {reason}",
    "name is taken": "{exchange} has a message of {name!r} that this study did not make: another "
    "study uses that name, or did. Peers receive that message instead of this study's until this "
    "study has more scores. Give this study another name, or withdraw the other message",
}
_ABOUT_EXCHANGES = ("message ignored", "name is taken")

_PATIENCE = 30.0  # seconds without an answer
_OVERTAKEN = 5  # messages in a row; workers of one study overtake one another now and then
_ONCE = "This warning is given once"
_TITLES = {
    "make": "This study's message was not made",
    "publish": "This study's message was not published",
    "fetch": "Messages of peers were not fetched",
}


class Notices:
    """Gives each warning about a study once."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def warn(self, notice: str, **values: object) -> None:
        if notice not in self._given:
            self._given.add(notice)
            category = ExchangeWarning if notice in _ABOUT_EXCHANGES else UserWarning
            warnings.warn(_NOTICES[notice].format(**values), category, stacklevel=3)


class Complaints:
    """Collects what goes wrong at an exchange, until the study's thread can warn about it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._new: list[str] = []
        self._given: set[str] = set()
        self._failing: set[str] = set()  # errands that failed the last time
        self._unanswered: set[str] = set()  # errands that took too long the last time
        self._running: tuple[Errand, float] | None = None  # an errand, and when it began
        self._overtaken = 0

    def take(self) -> list[str]:
        """Return what went wrong since the last call."""
        if self._running is not None:
            errand, begun = self._running
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
        self._running = errand, time.monotonic()

    def end(self, errand: Errand, error: Exception | None) -> None:
        """Note how an errand ended. If both kinds of errands fail, one complaint is enough."""
        self._running = None
        if error is None:
            self._failing.discard(errand)
            self._unanswered.discard(errand)
            return
        if self._failing <= {errand}:
            self.failed(errand, error)
        self._failing.add(errand)

    def failed(self, kind: Literal["make", "publish", "fetch"], error: Exception) -> None:
        reason = str(error)
        if not isinstance(error, ExchangeError):
            where = "" if kind == "make" else f" at {self._address}"
            reason = f"{type(error).__name__}{where}: {error}"
        self._add(
            kind,
            f"{_TITLES[kind]}: {reason}. The study goes on, and this is tried again after each "
            f"trial. {_ONCE}",
        )

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

    def _add(self, kind: str, sentence: str) -> None:
        if kind not in self._given:
            self._given.add(kind)
            self._new.append(sentence)
