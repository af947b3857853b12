"""A small federation with a privacy plan: contributions to its releases, and releases of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedbo import Federation, Float, Message, Space
from fedbo.exchange import Ledger
from fedbo.federation.shared import Shared
from fedbo.privacy import Plan, Release, Simulated, Source, next_release, release
from fedbo.testing.keys import keys_of
from fedbo.trust import KeyPair

LINE = {"x": Float(0, 1)}
PLAN = Plan(epsilon=2.0, delta=1e-3)


def private(space: Any = None, plan: Plan | None = PLAN, **given: Any) -> Federation:
    """A federation with a privacy plan, over a line if no space is given."""
    place: Space | dict[str, Any] = LINE if space is None else space
    return Federation(place, privacy=plan, **given)


def contribution(
    federation: Federation, sender: str = "site-a", *, keys: KeyPair | None = None, **given: Any
) -> Message:
    """A signed contribution of an agent; its shape is the first coordinate if none is given."""
    return (keys or keys_of(sender)).sign(unsigned_contribution(federation, sender, **given))


def unsigned_contribution(
    federation: Federation,
    sender: str = "site-a",
    *,
    cell: int = 0,
    y: Any = None,
    sequence: int = 10,
    t_n: int = 10,
    **changes: Any,
) -> Message:
    """The same without a signature."""
    header = {
        "fingerprint": federation.fingerprint,
        "sender": sender,
        "sequence": sequence,
        "t_n": t_n,
        "basis": Shared.of(federation).basis.digest,
        **changes,
    }
    shape = np.eye(Shared.of(federation).shape_coordinates)[0] if y is None else y
    return Message.of_contribution(shape, cell, **header)


def released(
    federation: Federation,
    contributions: Sequence[Message | None] = (None,) * 20,
    *,
    sequence: int = 1,
    seed: int = 0,
    trials: int | None = None,
    keys: KeyPair | None = None,
) -> Release:
    """A signed release whose noise a seed repeats."""
    source: Source = Simulated(seed)
    unsigned = release(federation, contributions, trials=trials, sequence=sequence, source=source)
    return (keys or keys_of(unsigned.sender)).sign(unsigned)


def record(
    ledger: Ledger,
    federation: Federation,
    contributions: Sequence[Message | None] = (None,) * 20,
    **given: Any,
) -> Release:
    """Make the next release, within the budget that a ledger keeps."""
    keys = keys_of(federation.require_plan().by)

    def make(made: list[Release]) -> Release:
        return next_release(federation, made, contributions, keys=keys, **given)

    return ledger.add_release(federation, make)
