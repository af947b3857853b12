"""How far a study has come, for the page of its hub. Nothing of it is reported unless wanted."""

from __future__ import annotations

import math
from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from fedbo.exchange import Exchange, Progress
from fedbo.optuna.mirror import Mirror

_DRAWS = 16  # replays behind an estimate: about a second for 50 trials
_GROWTH = 1.25  # times as many scores as behind the last estimate make another one


def can_show(exchange: Exchange) -> bool:
    """Return whether an exchange may be able to show progress.

    Args:
        exchange: The exchange.
    """
    return type(exchange).report is not Exchange.report


class Reporter:
    """Makes the reports of one study."""

    def __init__(self) -> None:
        self._scores = 0  # behind the last estimate
        self._saved: float | None = None

    def __call__(self, mirror: Mirror, trials: Sequence[FrozenTrial]) -> Progress:
        """Report what an agent was told. This may take seconds, and nobody else may use the agent.

        Args:
            mirror: The agent, which was told these trials.
            trials: The trials of its study.
        """
        agent, told = mirror.agent, mirror.told
        values = [
            trial.value
            for trial in trials
            if trial.number in told and trial.state is TrialState.COMPLETE
        ]
        known = [value for value in values if value is not None and math.isfinite(value)]
        best = max if agent.federation.space.sign > 0 else min
        return Progress(
            fingerprint=agent.federation.fingerprint,
            sender=agent.name,
            trials=mirror.scores,
            best=best(known, default=None),
            saved=self._estimate(mirror),
        )

    def _estimate(self, mirror: Mirror) -> float | None:
        """Return about how many trials peers have saved; None if there is no estimate."""
        if mirror.scores >= _GROWTH * self._scores:
            self._scores = mirror.scores
            saved = mirror.agent.explain(_DRAWS).saved
            self._saved = None if saved is None else float(saved.median)
        return self._saved
