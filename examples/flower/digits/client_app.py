"""The ClientApp: each node is a site."""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import Context

from digits.task import FEDERATION, accuracy
from fedbo.flower import client_app


def objective(context: Context) -> Callable[[dict[str, float]], float]:
    """Return the objective of this node."""
    return accuracy(int(context.node_config["partition-id"]))


app = client_app(FEDERATION, objective, seed=0)
