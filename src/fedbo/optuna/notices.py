"""Warnings about a study, each given once: problems that the study can continue with."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable, Sequence
from typing import Literal

from fedbo import caller
from fedbo.exchange import ExchangeError, ExchangeWarning

Errand = Literal["publish", "fetch", "report"]

_RENAME = (
    "Give this study another name with name=... in FederatedSampler, or with --name in fedbo join: "
    "its trials stay, and its message under the old name is withdrawn"
)
_NOTHING = (
    "no message of this study is published from here: {reason}. {still}. This warning is given once"
)
_NOTICES = {
    "renamed": "peers knew this study as {known!r}; it is now {given!r}{more}",
    "about signatures": "{remark}. This warning is given once",
    "nothing published": _NOTHING,
    "alone": "{reason}. Until then, the study tunes alone: no message comes in or goes out. It "
    "takes part by itself as soon as it can. This warning is given once",
    "namesake": _NOTHING,
    "left federation": "{reason}",
    "no progress": "{exchange} cannot show the progress of a study, so none is reported: only a "
    "hub can. This warning is given once",
    "private progress": "the federation has a privacy plan, which does not cover progress: a best "
    "score says something about trials. So none is reported. This warning is given once",
    "cannot tune": "{reason}; it is sampled independently",
    "cannot learn": "trial {number} has a value, but the federation cannot learn from it: "
    "{reason}. Other trials like this one are ignored without another warning",
    "does not match": "in trial {number}, {differences}. So the federation learns nothing from "
    "this trial, or from others like it, and no message is sent about them. Suggest all parameters "
    "of the federation under its names, or create a federation with those that the objective "
    "suggests (fedbo federation new). This warning is given once",
    "misspelt": "{differences}: no message is sent, and no peer helps, until the objective "
    "suggests {names}. Rename {it} in the objective, or create a federation with {near} "
    "(fedbo federation new). This warning is given once",
    "misspelt in some trials": "in trial {number}, {differences}: the federation learns nothing "
    "from this trial, or from others like it. Rename {it} in the objective. This warning is given "
    "once",
    "misspelt later": "in trial {number}, {differences}: its score counts at the value that was "
    "asked for {names}, and not at that of {near}. Rename {it} in the objective. This warning is "
    "given once",
    "counts later": "in trial {number}, {differences}. No message is sent about this trial until "
    "another one suggests {names}: then its score counts at the value that was asked for. That is "
    "right if only some trials need {names}. Otherwise, suggest {names} in the objective, or "
    "create a federation without {names} (fedbo federation new). This warning is given once",
    "counts where asked": "trial {number} did not suggest {names}, so its score counts at the "
    "value that was asked for. This is right for a parameter that only some trials need",
    "message ignored": "a message was ignored: {reason}",
    "name is taken": "{exchange} has a message of {name!r} that this study did not make: another "
    "study uses that name, or did, and peers may receive its message instead of this study's. "
    + _RENAME,
}
_ABOUT_EXCHANGES = (
    "about signatures",
    "alone",
    "left federation",
    "message ignored",
    "name is taken",
    "namesake",
    "no progress",
    "nothing published",
    "private progress",
)

_LISTED = 8  # names that a warning lists
_PATIENCE = 30.0  # seconds without an answer
_OVERTAKEN = 5  # messages in a row; workers of one study overtake one another now and then
_ONCE = "This warning is given once"
_TITLES = {
    "make": "This study's message was not made",
    "publish": "This study's message was not published",
    "fetch": "Messages of peers were not fetched",
    "withdraw": "A former message of this study was not withdrawn",
    "report": "This study's progress was not reported",
}
_AGAIN = {
    "publish": "after later trials, with pauses of up to a minute",
    "withdraw": "when the study is run again",
    "report": "after the next message",
}


class Notices:
    """Gives each warning about a study once."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def warn(self, notice: str, **values: object) -> None:
        if notice not in self._given:
            self._given.add(notice)
            category = ExchangeWarning if notice in _ABOUT_EXCHANGES else UserWarning
            caller.warn(_NOTICES[notice].format(**values), category)

    def has_given(self, notice: str) -> bool:
        return notice in self._given


def namesake(name: str) -> str:
    """Say why a study does not publish under the name of another one, and what to do."""
    return (
        f"another study of this user publishes under the name {name!r}: give this one another name "
        "(name=..., or fedbo join --name NEW). If that study no longer exists, withdraw its "
        "message (fedbo join --withdraw)"
    )


def differences(missing: Sequence[str], suggested: Iterable[str]) -> str:
    """Say which parameters of a federation an objective lacks, each with the closest name it has.

    Args:
        missing: The parameters that the objective did not suggest.
        suggested: The others that it suggested, and that the federation does not have.

    >>> print(differences(["lr", "depth"], ["LR", "decay"]))
    the objective suggests 'LR', but the federation has 'lr' (misspelt?); it does not suggest
    'depth', but 'decay'
    """
    rest, texts = list(suggested), []
    near = misspellings(missing, rest)
    if near:
        here, there = quoted([*near.values()]), quoted([*near])
        texts.append(f"the objective suggests {here}, but the federation has {there} (misspelt?)")
    rest = [name for name in rest if name not in near.values()]
    absent = [name for name in missing if name not in near]
    if absent:
        others = f", but {quoted(rest)}" if rest else ""
        subject = "it" if texts else "the objective"
        texts.append(f"{subject} does not suggest {quoted(absent)}{others}")
    return "; ".join(texts)


def misspellings(missing: Sequence[str], suggested: Iterable[str]) -> dict[str, str]:
    """Return parameters that an objective probably misspells, each with the name that it has.

    Args:
        missing: The parameters that the objective did not suggest.
        suggested: The others that it suggested, and that the federation does not have.

    >>> misspellings(["lr", "depth"], ["LR", "decay"])
    {'lr': 'LR'}
    """
    rest, found = list(suggested), {}
    for name in missing:
        near = _closest(name, rest)
        if near is not None:
            rest.remove(near)
            found[name] = near
    return found


def quoted(names: Sequence[str]) -> str:
    """List names.

    >>> quoted(["a", "b", "c"])
    "'a', 'b' and 'c'"
    """
    shown = [repr(name) for name in names[:_LISTED]]
    if len(names) > _LISTED:
        shown.append(f"{len(names) - _LISTED} more")
    *first, last = shown
    return f"{', '.join(first)} and {last}" if first else last


def _closest(name: str, names: Sequence[str]) -> str | None:
    """The name that is spelt most like this one, upper and lower case alike."""
    spelt = {other.lower(): other for other in reversed(names)}
    near = difflib.get_close_matches(name.lower(), spelt, 1)
    return spelt[near[0]] if near else None


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
            self._given.discard(errand)  # if it fails again, that is another outage
            return
        if self._failing <= {errand}:
            self.failed(errand, error)
        self._failing.add(errand)

    def failed(
        self, kind: Literal["make", "publish", "fetch", "withdraw", "report"], error: Exception
    ) -> None:
        reason = str(error)
        if not isinstance(error, ExchangeError):
            where = "" if kind == "make" else f" at {self._address}"
            reason = f"{type(error).__name__}{where}: {error}"
        again = _AGAIN.get(kind, "after each trial")
        once = _ONCE if kind in ("make", "withdraw") else f"{_ONCE}, until it works again"
        self._add(
            kind,
            f"{_TITLES[kind]}: {reason}. The study goes on, and this is tried again {again}. "
            f"{once}",
        )

    def pass_on(self, texts: Iterable[str]) -> None:
        """Collect warnings that were given on an errand, each once."""
        for text in texts:
            self._add(text, text)

    def published(self, sender: str, is_out: bool) -> None:
        """Note whether the exchange took a message, or already had a later one."""
        self._overtaken = 0 if is_out else self._overtaken + 1
        if self._overtaken == _OVERTAKEN:
            self._add(
                "overtaken",
                f"{self._address} already has a later message under the name {sender!r}, so "
                "another study seems to use this name, or did. Peers receive that message instead "
                f"of this study's. {_RENAME}. {_ONCE}",
            )

    def _add(self, kind: str, sentence: str) -> None:
        if kind not in self._given:
            self._given.add(kind)
            self._new.append(sentence)
