"""An agent's trials, where they lie on the cube, and the order in which their scores came."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from fedbo.agent.trial import Trial
from fedbo.model.kernel import Array
from fedbo.policy.origin import Origin
from fedbo.space import Space
from fedbo.space.axis import Value, to_builtin


class History:
    """All ``trials`` of an agent by number, their ``points`` (D,), and the ``order`` of its scores.

    Args:
        agent: The agent's name.
        space: The space of the federation.

    >>> from fedbo.space import Float
    >>> history = History("site-a", Space({"x": Float(0, 2)}, direction="minimize"))
    >>> trial = history.tell({"x": 1.0}, 3.0)
    >>> history.X().tolist(), history.y().tolist()
    ([[0.5]], [-3.0])
    """

    def __init__(self, agent: str, space: Space) -> None:
        self.trials: list[Trial] = []
        self.points: list[Array] = []
        self.order: list[int] = []  # numbers of the complete trials
        self._agent = agent
        self._space = space

    def add(
        self, params: Mapping[str, Value], origin: Origin | None = None, t: int | None = None
    ) -> Trial:
        """Add a pending trial; its origin is ``"told"`` by default."""
        x = self._space.encode(params)
        trial = Trial(
            number=len(self.trials),
            params={name: to_builtin(params[name]) for name in self._space.names},
            origin=Origin("told") if origin is None else origin,
            t=t,
            agent=self._agent,
        )
        self.trials.append(trial)
        self.points.append(x)
        return trial

    def tell(self, trial: Trial | Mapping[str, Value], score: float | None) -> Trial:
        """Record the score of a trial, or of params that were never asked for."""
        if isinstance(trial, Trial):
            mine = self._pending(trial)
            _check_score(mine.number, mine.params, score)
        elif isinstance(trial, Mapping):
            _check_score(len(self.trials), trial, score)
            mine = self.add(trial)
        else:
            raise TypeError(f"tell got {trial!r}, expected a trial from ask() or its params")
        if score is None:
            mine.state = "failed"
        else:
            mine.state, mine.score = "complete", float(score)
            self.order.append(mine.number)
        return mine

    def _pending(self, trial: Trial) -> Trial:
        mine = self.trials[trial.number] if 0 <= trial.number < len(self.trials) else None
        if mine is None or trial.agent != self._agent:
            raise ValueError(
                f"trial {trial.number} with {trial.params} was not asked of agent {self._agent!r}; "
                "to tell of a trial from elsewhere, give its params: tell(params, score)"
            )
        if mine.state != "pending":
            outcome = "failed" if mine.score is None else f"scored {mine.score}"
            raise ValueError(f"trial {mine.number} was told already: it {outcome}")
        return mine

    @property
    def best(self) -> Trial | None:
        """The complete trial with the best score; None before any."""
        return self.trials[self.order[int(np.argmax(self.y()))]] if self.order else None

    def X(self, numbers: Iterable[int] | None = None) -> Array:
        """Return the points (n, D) of these trials; of all complete ones, in order, by default."""
        chosen = self.order if numbers is None else numbers
        points = [self.points[number] for number in chosen]
        return np.array(points).reshape(-1, self._space.dimensions)

    def y(self, numbers: Iterable[int] | None = None) -> Array:
        """Return the scores (n,) of these trials, to be maximised; all scores by default."""
        chosen = self.order if numbers is None else numbers
        scores = [self.trials[number].score for number in chosen]
        return self._space.sign * np.array(scores, dtype=np.float64)

    def open_points(self) -> Array:
        """Return the points (m, D) that have no score: those of pending and failed trials."""
        return self.X(trial.number for trial in self.trials if trial.score is None)

    def queries(self) -> int:
        """Count the policy's queries so far; failed ones do not count."""
        return sum(trial.t is not None and trial.state != "failed" for trial in self.trials)


def _check_score(number: int, params: Mapping[str, Value], score: float | None) -> None:
    try:
        valid = score is None or (math.isfinite(score) and not isinstance(score, bool))
    except (TypeError, OverflowError):
        valid = False
    if not valid:
        raise ValueError(
            f"trial {number} with {params} was told {score!r}, expected a finite number, or None "
            "if it failed; nothing was recorded"
        )
