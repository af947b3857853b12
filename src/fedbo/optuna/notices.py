"""The warnings that a study gives, each kind of them once."""

from __future__ import annotations

import warnings

from optuna.trial import FrozenTrial

from fedbo.exchange import Exchange, ExchangeWarning


class Notices:
    """Warns about things that a user should know, but that need not stop the study."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def name_is_kept(self, known: str, given: str) -> None:
        self._warn(
            "name",
            f"peers know this study as {known!r}, and {given!r} is not used: a study keeps its "
            "name",
        )

    def cannot_tune(self, reason: str) -> None:
        self._warn("axis", f"{reason}; it is sampled independently")

    def cannot_learn(self, trial: FrozenTrial, reason: ValueError) -> None:
        self._warn(
            "useless",
            f"trial {trial.number} has a value, but the federation cannot learn from it: {reason}. "
            "Suggest all parameters of the federation, or create a federation with those that you "
            "suggest. Other trials like this one are ignored without another warning",
        )

    def counts_where_asked(self, trial: FrozenTrial, parameter: str) -> None:
        self._warn(
            "missing",
            f"trial {trial.number} did not suggest {parameter!r}, so its score counts at the value "
            "that was asked for. This is right for a parameter that some trials do not need",
        )

    def message_ignored(self, reason: str) -> None:
        self._warn("message", f"a message was ignored: {reason}", ExchangeWarning)

    def name_is_taken(self, name: str, exchange: Exchange) -> None:
        self._warn(
            "namesake",
            f"{exchange} has a message of {name!r} that this study did not make: another study "
            "uses that name, or did. Peers receive that message instead of this study's until this "
            "study has more scores. Give this study another name, or withdraw the other message",
            ExchangeWarning,
        )

    def _warn(self, kind: str, text: str, category: type[Warning] = UserWarning) -> None:
        if kind not in self._given:
            self._given.add(kind)
            warnings.warn(text, category, stacklevel=3)
