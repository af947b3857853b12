"""What an agent hands out: its scores as a belief over the shared features, and the message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fedbo.agent.history import History
from fedbo.agent.settings import Settings
from fedbo.agent.streams import Stream, generator
from fedbo.federation import Federation
from fedbo.message.message import Header, Message, MessageRefused
from fedbo.model.kernel import Array
from fedbo.model.linear import Posterior, Regression, posteriors


class Outbox:
    """The message of an agent, made anew after every score.

    Args:
        name: The agent's name.
        federation: The federation that the message is for.
        settings: The agent's settings.
        history: The agent's trials.
        entropy: The agent's entropy, which the noise of messages is seeded with.
    """

    def __init__(
        self,
        name: str,
        federation: Federation,
        settings: Settings,
        history: History,
        entropy: Any,
    ) -> None:
        self.name = name
        self.federation = federation
        self.message: Message | None = None  # until the next score
        self._settings = settings
        self._history = history
        self._entropy = entropy
        self._regression = Regression(federation.phi, federation.noise_variance)

    def evidence(self) -> tuple[Regression, Array]:
        """Return the observations that messages draw on, and their standard scores (n,)."""
        numbers = [trial.number for trial in self._history.told() if self._settings.informs(trial)]
        new = numbers[len(self._regression) :]
        if new:
            self._regression.add(self._history.X(new))
        return self._regression, self._settings.scores(self._history.y(numbers)).z

    def write(self) -> Message:
        """Make the message, unless nothing was told since the last one."""
        if self.message is None:
            regression, y = self.evidence()
            if not len(y):
                raise ValueError(
                    f"agent {self.name!r} has nothing to hand out yet: tell it a score first"
                )
            self._compose(regression.posterior(y), y)
        assert self.message is not None
        return self.message

    def _compose(self, belief: Posterior, y: Array) -> None:
        federation, sequence = self.federation, len(self._history.order)
        header: Header = {
            "fingerprint": federation.fingerprint,
            "epoch": federation.epoch,
            "sender": self.name,
            "sequence": sequence,
            "t_n": len(self._regression),
        }
        if federation.kind == "weights":
            # Other noise in each epoch: otherwise two messages of the same scores would share it.
            key = (sequence, federation.epoch) if federation.epoch else (sequence,)
            omega = belief.draw(generator(self._entropy, Stream.MESSAGE, *key))
            message = Message.of_weights(omega, **header)
        else:
            incumbent = float(y.max()) if federation.kind == "belief+incumbent" else None
            message = Message.of_belief(belief.nu, belief.covariance(), incumbent, **header)
        try:
            federation.check(message)
        except MessageRefused as error:
            raise ValueError(
                f"agent {self.name!r} has scores that no peer would accept: {error}; use settings "
                "that standardise them"
            ) from None
        self.message = message


def write_together(outboxes: Iterable[Outbox]) -> None:
    """Make the messages of many agents at once, for all that have a score to tell of.

    This may change the last bits of their numbers against `Outbox.write`.
    """
    groups: dict[int, list[tuple[Outbox, Regression, Array]]] = {}
    for outbox in outboxes:
        if outbox.message is None:
            regression, y = outbox.evidence()
            if len(y):
                groups.setdefault(outbox.federation.features, []).append((outbox, regression, y))
    for group in groups.values():
        beliefs = posteriors([regression for _, regression, _ in group], [y for *_, y in group])
        for (outbox, _, y), belief in zip(group, beliefs, strict=True):
            outbox._compose(belief, y)
