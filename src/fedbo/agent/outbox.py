"""What an agent hands out: its scores as a belief over the shared features, and the message.

======  ======================================================================  ========
symbol  meaning                                                                 shape
======  ======================================================================  ========
x_i     the shared parameters of trial i: those that the federation knows       (D,)
o_i     its own parameters: those that only this agent has                      (d,)
μ       mean of the agent's own GP, of all parameters                           function
O       o_i of the 32 trials with the best scores                               set
g(x_i)  max of μ(x_i, o) over o in O and o = o_i                                scalar
======  ======================================================================  ========

A message speaks of the shared parameters only. If an agent has parameters of its own, its scores
depend on these too, so the message is made of g in place of the scores: what each trial would be
worth with the agent's own parameters at their best. The tip is the x_i where g is largest. With
constraints, the scores stay as they are: o_i may be infeasible beside another x.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from fedbo.agent.settings import Settings, Stream
from fedbo.agent.trial import History
from fedbo.errors import MessageRefused
from fedbo.federation.federation import Federation
from fedbo.federation.shared import Shared
from fedbo.message.message import Message
from fedbo.message.release import Release
from fedbo.model.kernel import Array
from fedbo.model.linear import Posterior, Regression
from fedbo.model.summary import quantise, saturated, summarise
from fedbo.model.surrogate import Surrogate
from fedbo.privacy.contribution import shape
from fedbo.trust.keys import KeyPair

_PROFILED = 32  # trials whose own parameters are tried beside those of others


class Recorder(Protocol):
    """A log of what an agent hands out, such as `fedbo.exchange.Ledger`."""

    def record(self, message: Message) -> None:
        """Record a message that is about to be handed out; raise an error if that fails."""

    def receive(self, published: Release) -> None:
        """Record a private release that was received, and what it cost."""


@dataclass(eq=False, repr=False)
class Outbox:
    """The message of an agent, made anew after every score."""

    name: str
    federation: Federation
    settings: Settings
    history: History
    entropy: Any  # of the agent
    keys: KeyPair | None = field(default=None, init=False)  # that sign
    message: Message | None = field(default=None, init=False)  # until the next score

    def __post_init__(self) -> None:
        self.shared = Shared.of(self.federation)
        self._regression = Regression(self.shared.phi, self.federation.noise_variance)

    def evidence(self) -> tuple[Regression, Array]:
        """Return the observations that messages draw on, and their standard scores (n,)."""
        numbers = self.informing()
        if new := numbers[len(self._regression) :]:
            self._regression.add(self._known(new))
        y = self.settings.scores(self.history.y(numbers)).z
        has_own = self.federation.space.dimensions < (X := self.history.X(numbers)).shape[1]
        if has_own and len(y) and self.history.constraints() is None:
            y = self.settings.scores(self._profile(X, y)).z
        return self._regression, y

    def _known(self, numbers: list[int]) -> Array:
        """Return what the federation knows of the points of trials, (n, D)."""
        known: Array = self.history.X(numbers)[:, : self.federation.space.dimensions]
        return known

    def _model(self, X: Array, y: Array) -> Surrogate:
        model = self.settings.model(X.shape[1])
        model.update(X, y, Stream.TIP.generator(self.entropy, len(y)))
        return model

    def _profile(self, X: Array, y: Array) -> Array:
        """Return g(x_i) (n,), what trials are worth with the best of the agent's own parameters."""
        D, model = self.federation.space.dimensions, self._model(X, y)
        own = np.unique(X[np.argsort(-y)[:_PROFILED], D:], axis=0)
        pairs = np.hstack([np.repeat(X[:, :D], len(own), axis=0), np.tile(own, (len(X), 1))])
        highest = model.predict(pairs)[0].reshape(len(X), len(own)).max(axis=1)
        return np.asarray(np.maximum(model.predict(X)[0], highest))

    def informing(self) -> list[int]:
        return [number for number in self._told() if self.history.trials[number].is_feasible]

    def _told(self) -> list[int]:
        trials = self.history.trials
        return [n for n in self.history.order if self.settings.informs(trials[n])]

    @property
    def is_ready(self) -> bool:
        """Whether there is something to hand out.

        A contribution is, whether its trials are feasible or not.
        """
        return bool(self.informing() if self.federation.privacy is None else self._told())

    def _tip(self, y: Array) -> bytes:
        """Return where the agent's own model is largest among its trials, rounded; none if flat."""
        if not (self.federation.tips and self.settings.tips) or np.ptp(y) == 0.0:
            return b""
        X, known = self.history.X(numbers := self.informing()), self._known(numbers)
        worth = self._model(X, y).predict(X)[0] if X.shape == known.shape else y
        return self.shared.lattice.pack(known[np.argmax(worth)])

    def _contribution(self, belief: Posterior, y: Array, header: dict[str, Any]) -> Message:
        """Return the contribution to a private release."""
        shared = self.shared
        if numbers := self.informing():
            cell = shared.cell(self._known([numbers[int(np.argmax(y))]])[0])
        else:  # without a feasible trial, it votes for any cell, and always for the same
            rng = Stream.VOTE.generator(self.entropy)
            cell = int(rng.integers(len(shared.cells)))
        y = shape(shared, belief.nu)
        return Message.of_contribution(y, cell, basis=shared.digest, **header)

    def write(self) -> Message:
        """Return the message, made anew if a score was told since the last one."""
        if self.message is None:
            if not self.is_ready:
                is_private = self.federation.privacy is not None
                first = "a score" if is_private else "the score of a feasible trial"
                raise ValueError(
                    f"agent {self.name!r} has nothing to hand out yet: tell it {first} first"
                )
            regression, y = self.evidence()
            self.message = self._compose(regression.posterior(y), y)
        return self.message

    def _compose(self, belief: Posterior, y: Array) -> Message:
        # What breaks a constraint does not count: it must not be told from what was never tried.
        # With a plan, how many trials a member has is public, and it counts as any other.
        federation, sequence, t_n = self.federation, len(self.history.order), len(self._told())
        if federation.privacy is None:
            sequence, t_n = self.history.count_feasible(), len(self._regression)
        header = {
            "fingerprint": federation.fingerprint,
            "sender": self.name,
            "sequence": sequence,
            "t_n": t_n,
        }
        # Two messages of the same scores must not share noise: each kind has its own.
        stream = Stream.COMPACT if federation.is_compact else Stream.MESSAGE
        rng = stream.generator(self.entropy, sequence)
        if federation.privacy is not None:
            message = self._contribution(belief, y, header)
        elif federation.kind == "weights":
            message = Message.of_weights(belief.draw(rng), **header)
        elif federation.is_compact:
            counts = saturated(self.shared.counts(self._known(self.informing())))
            V = self.shared.factor_of(counts)
            m, _ = summarise(belief.nu, belief.draw(rng), V.T @ V, self.shared.basis.vectors)
            levels, scales = quantise(m[None], rng)
            message = Message.of_compact(
                levels[0],
                float(scales[0]),
                counts,
                self._tip(y),
                basis=self.shared.digest,
                **header,
            )
        else:
            message = Message.of_belief(belief.nu, belief.covariance(), y.max(), **header)
        try:
            self.shared.check(message)
        except MessageRefused as error:
            raise ValueError(
                f"agent {self.name!r} has scores that no peer would accept: {error}; use settings "
                "that standardise them"
            ) from None
        return message if self.keys is None else self.keys.sign(message)
