"""A query, and where it came from."""

from __future__ import annotations

import math
from numbers import Real
from typing import Literal, get_args

import msgspec
from msgspec.structs import force_setattr

from fedbo.model.kernel import Array

Source = Literal["initial", "tip", "own", "peer", "pool", "told"]

_SLACK = 1e-6  # rounding in sums of shares


class Origin(msgspec.Struct, frozen=True):
    """Where a query came from: who proposed it, and how much the policy trusted each peer.

    Args:
        source: ``"initial"`` for an initial point, ``"tip"`` for a point that peers recommend,
            ``"own"`` for the agent's own model, ``"peer"`` for one peer's function, ``"pool"`` for
            several peers' functions together, ``"told"`` for a trial that was never asked for.
        credit: The share of each peer in the query, by name; at most 1 in total. Only the sources
            ``"peer"`` (that one peer), ``"tip"`` and ``"pool"`` (the most important peers) have it.
        trust: How much the policy relied on each peer when it chose, by name. The rest up to 1 is
            the share of the agent's own model.

    Raises:
        ValueError: If the source is unknown, or credit or trust do not fit it.

    >>> Origin("peer", credit={"site-a": 1.0}).peer
    'site-a'
    >>> Origin("magic")
    Traceback (most recent call last):
    ValueError: source is 'magic', expected initial, tip, ... or told
    """

    source: Source = "own"
    credit: dict[str, float] = {}
    trust: dict[str, float] = {}

    def __post_init__(self) -> None:
        *most, last = get_args(Source)
        if self.source not in get_args(Source):
            raise ValueError(f"source is {self.source!r}, expected {', '.join(most)} or {last}")
        for name in ("credit", "trust"):
            force_setattr(self, name, _checked_shares(name, getattr(self, name)))
        if self.source == "peer" and len(self.credit) != 1:
            raise ValueError(f"credit is {self.credit!r}, expected the one peer of source 'peer'")
        if self.source not in ("tip", "peer", "pool") and self.credit:
            raise ValueError(
                f"credit is {self.credit!r} with source {self.source!r}, expected {{}}: only "
                "queries of a tip, a peer or the pool are credited to peers"
            )

    @property
    def peer(self) -> str | None:
        """The name of the peer that was followed, if it was a single one."""
        return next(iter(self.credit)) if self.source == "peer" else None


def _checked_shares(name: str, shares: object) -> dict[str, float]:
    """Return a copy in Python's own types."""
    if not isinstance(shares, dict) or not all(
        isinstance(peer, str) and isinstance(share, Real) and 0.0 <= float(share) < math.inf
        for peer, share in shares.items()
    ):
        raise ValueError(f"{name} is {shares!r}, expected shares of 0 to 1 by the peers' names")
    if sum(shares.values()) > 1.0 + _SLACK:
        raise ValueError(f"{name} is {shares!r}, expected at most 1 in total")
    return {peer: float(share) for peer, share in shares.items()}


class Query(msgspec.Struct, frozen=True):
    """The next query, as a policy returns it.

    Args:
        x: A point (D,) of the unit cube.
        origin: Where the query came from; the agent's own model by default.
    """

    x: Array
    origin: Origin = Origin()
