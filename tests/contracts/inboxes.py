"""Inboxes that are filled by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedbo.message.inbox import BeliefInbox, Held, Inbox


def hold_all(
    inbox: Inbox,
    omegas: Any,
    names: Sequence[str] | None = None,
    *,
    t_n: Any = 20,
    sequence: Any = 1,
    chance: Any = 1.0,
) -> int:
    """Hold weights (N, M) of peer-0, peer-1, …; return how many are new."""
    weights = np.asarray(omegas, np.float32)
    senders = [f"peer-{i}" for i in range(len(weights))] if names is None else names
    numbers = (np.broadcast_to(value, len(weights)).tolist() for value in (sequence, t_n, chance))
    rows = zip(senders, weights, *numbers, strict=True)
    return sum(inbox.hold(Held(name, s, t, omega), p) for name, omega, s, t, p in rows)


def covariance(inbox: BeliefInbox, row: int) -> np.ndarray:
    """The covariance C_n = I − RᵀR of the weights in a row."""
    R = inbox.R[row].astype(np.float64)
    return np.eye(inbox.M) - R.T @ R
