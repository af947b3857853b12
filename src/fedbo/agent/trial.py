"""An agent's trials (what was queried, why, and how it ended) and its traffic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from fedbo.message.message import Message
from fedbo.message.release import Release
from fedbo.model.kernel import Array
from fedbo.policy.target import Origin, Source
from fedbo.space.axis import Value, to_builtin
from fedbo.space.space import Space

State = Literal["pending", "complete", "failed"]


class Trial(msgspec.Struct, kw_only=True):
    """One trial; call the objective with its ``params``.

    Args:
        number: The trial's number, from 0.
        params: The values of the parameters, by name.
        origin: Where the query came from.
        t: The number of the policy's query, from 1; None if no policy chose it.
        state: ``"pending"``, ``"complete"`` or ``"failed"``.
        score: The score in the user's units, once it is complete.
        constraints: Values of the constraints; it is feasible if none is above 0.
        agent: The name of the agent that the trial belongs to.

    >>> trial = Trial(number=0, params={"C": 1.0}, origin=Origin("peer", {"site-a": 1.0}), t=1)
    >>> trial.state, trial.source, trial.peer
    ('pending', 'peer', 'site-a')
    """

    number: int
    params: dict[str, Value]
    origin: Origin = Origin()
    t: int | None = None
    state: State = "pending"
    score: float | None = None
    constraints: tuple[float, ...] = ()
    agent: str = ""

    @property
    def is_feasible(self) -> bool:
        """Whether no constraint is broken."""
        return all(value <= 0.0 for value in self.constraints)

    @property
    def source(self) -> Source:
        """Who proposed the query: see `fedbo.Origin`."""
        return self.origin.source

    @property
    def peer(self) -> str | None:
        """The name of the peer that was followed, if it was a single one."""
        return self.origin.peer

    @property
    def credit(self) -> dict[str, float]:
        """The share of each peer in the query, by name."""
        return dict(self.origin.credit)

    @property
    def trust(self) -> dict[str, float]:
        """How much the policy relied on each peer when it chose, by name."""
        return dict(self.origin.trust)

    def copy(self) -> Trial:
        origin = msgspec.structs.replace(self.origin)
        return msgspec.structs.replace(self, params=dict(self.params), origin=origin)


class History:
    """All trials of the agent with this name, and their points on the cube.

    >>> from fedbo.space import Float
    >>> history = History("site-a", Space({"x": Float(0, 2)}, direction="minimize"))
    >>> trial = history.tell({"x": 1.0}, 3.0)
    >>> history.X().tolist(), history.y().tolist()
    ([[0.5]], [-3.0])
    """

    def __init__(self, agent: str, space: Space) -> None:
        self.trials: list[Trial] = []  # by number
        self.points: list[Array] = []  # (D,) each
        self.order: list[int] = []  # numbers of the complete trials, in the order of their scores
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

    def restore(self, trials: Sequence[Trial], order: Sequence[int]) -> None:
        """Take over the trials of a file, and the order of their scores."""
        for trial in trials:
            try:
                self.points.append(self._space.encode(trial.params))
            except (ValueError, TypeError, ArithmeticError) as error:
                raise ValueError(f"trial {trial.number}: {error}") from None
            self.trials.append(trial)
        self.order = [*order]

    def tell(
        self,
        trial: Trial | Mapping[str, Value],
        score: float | None,
        constraints: Sequence[float] = (),
    ) -> Trial:
        """Record the score of a trial, or of params that were never asked for."""
        if isinstance(trial, Trial):
            mine = self._pending(trial)
            self._check(mine.number, mine.params, score, constraints)
        elif isinstance(trial, Mapping):
            self._check(len(self.trials), trial, score, constraints)
            mine = self.add(trial)
        else:
            raise TypeError(f"tell got {trial!r}, expected a trial from ask() or its params")
        if score is None:
            mine.state = "failed"
        else:
            mine.state, mine.score = "complete", float(score)
            mine.constraints = tuple(map(float, constraints))
            self.order.append(mine.number)
        return mine

    def _check(
        self,
        number: int,
        params: Mapping[str, Value],
        score: float | None,
        constraints: Sequence[float],
    ) -> None:
        if score is not None and not _is_number(score):
            raise ValueError(
                f"trial {number} with {params} was told {score!r}, expected a finite number, or "
                "None if it failed; nothing was recorded"
            )
        expected = len(self.trials[self.order[0]].constraints if self.order else constraints)
        is_right = all(map(_is_number, constraints)) and len(constraints) == expected
        if score is not None and not is_right:
            raise ValueError(
                f"trial {number} with {params} was told the constraints {constraints!r}, expected "
                f"{expected} finite numbers, as with the first score, each at most 0 if that "
                "constraint is satisfied; nothing was recorded"
            )

    def _pending(self, trial: Trial) -> Trial:
        mine = self.trials[trial.number] if 0 <= trial.number < len(self.trials) else None
        if mine is None or trial.agent != self._agent:
            raise ValueError(
                f"trial {trial.number} with {trial.params} was not asked of agent {self._agent!r}; "
                "to report a trial from elsewhere, give its params: tell(params, score)"
            )
        if mine.state != "pending":
            outcome = "failed" if mine.score is None else f"scored {mine.score}"
            raise ValueError(f"trial {mine.number} was told already: it {outcome}")
        if trial.params != mine.params:
            raise ValueError(
                f"trial {mine.number} was asked with {mine.params}, but is told with "
                f"{trial.params}; if the objective ran there, report it with tell(params, score)"
            )
        return mine

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

    def constraints(self) -> Array | None:
        """Return the values of the constraints (n, J) of all scores; None without constraints."""
        rows = [self.trials[number].constraints for number in self.order]
        return np.array(rows) if rows and rows[0] else None

    def count_feasible(self) -> int:
        """Count the scores of feasible trials."""
        return sum(self.trials[number].is_feasible for number in self.order)

    def open_points(self) -> Array:
        """Return the points (m, D) that have no score: those of pending and failed trials."""
        return self.X(trial.number for trial in self.trials if trial.score is None)

    def queries(self) -> int:
        """Count the policy's queries so far, without those that failed."""
        return sum(trial.t is not None and trial.state != "failed" for trial in self.trials)


class Traffic(msgspec.Struct):
    """Messages in one direction."""

    messages: int = 0
    parameters: int = 0  # numbers in their bodies
    nbytes: int = 0  # on the wire

    def count(self, message: Message | Release) -> None:
        self.messages += 1
        self.parameters += message.parameters
        self.nbytes += message.nbytes


class Account(msgspec.Struct):
    """An agent's traffic; a message that is sent again, unchanged, counts once."""

    sent: Traffic = msgspec.field(default_factory=Traffic)
    received: Traffic = msgspec.field(default_factory=Traffic)
    last_sent: int = -1  # sequence number

    def count_sent(self, message: Message) -> None:
        if message.sequence != self.last_sent:
            self.last_sent = message.sequence
            self.sent.count(message)


def _is_number(value: object) -> bool:
    try:
        is_finite = np.ndim(value) == 0 and math.isfinite(value)  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        return False
    return is_finite and not isinstance(value, bool | np.timedelta64)
