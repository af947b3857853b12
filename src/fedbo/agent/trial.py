"""One trial of an agent: what was queried, where the query came from, how it ended."""

from __future__ import annotations

from typing import Literal

import msgspec

from fedbo.policy.origin import Origin, Source
from fedbo.space.axis import Value

State = Literal["pending", "complete", "failed"]


class Trial(msgspec.Struct, kw_only=True):
    """A trial of an agent; call the objective with its ``params``.

    Args:
        number: The trial's number, from 0.
        params: The values of the parameters, by name.
        origin: Where the query came from.
        t: The number of the policy's query, from 1; None if no policy chose it.
        state: ``"pending"``, ``"complete"`` or ``"failed"``.
        score: The score in the user's units, once it is complete.
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
    agent: str = ""

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
        """Return a copy that may be changed without changing this trial."""
        return msgspec.structs.replace(self, params=dict(self.params))
