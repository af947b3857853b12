"""fedbo: federated Bayesian optimisation.

Many parties, each tuning its own black box, help one another without showing anyone a trial.

`import fedbo` loads what a federation and a message are. Agents and policies, with the models that
they need, are loaded at their first use: a hub has no use for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from fedbo.errors import FedboError, FederationMismatch, FileRefused, MessageRefused
from fedbo.federation import Federation
from fedbo.message import Message
from fedbo.space import Categorical, Float, Int, Space
from fedbo.table import Table
from fedbo.version import __version__

if TYPE_CHECKING:
    from fedbo.agent import Agent, Settings, Trial
    from fedbo.message.inbox import Inbox
    from fedbo.policy import EI, FTS, RGPE, TAF, TS, Origin, Policy, Query, Target, TipsThenPool
    from fedbo.policy.base import Gradual, Power, Steps
    from fedbo.simulation import Party, simulate
else:
    _LATER = {
        "fedbo.agent": ("Agent", "Settings", "Trial"),
        "fedbo.message.inbox": ("Inbox",),
        "fedbo.policy": (
            *("EI", "FTS", "RGPE", "TAF", "TS"),
            *("Origin", "Policy", "Query", "Target", "TipsThenPool"),
        ),
        "fedbo.policy.base": ("Gradual", "Power", "Steps"),
        "fedbo.simulation": ("Party", "simulate"),
    }

    def __getattr__(name):
        for module, names in _LATER.items():
            if name in names:
                return globals().setdefault(name, getattr(import_module(module), name))
        raise AttributeError(f"module 'fedbo' has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "EI",
    "FTS",
    "RGPE",
    "TAF",
    "TS",
    "Agent",
    "Categorical",
    "FedboError",
    "Federation",
    "FederationMismatch",
    "FileRefused",
    "Float",
    "Gradual",
    "Inbox",
    "Int",
    "Message",
    "MessageRefused",
    "Origin",
    "Party",
    "Policy",
    "Power",
    "Query",
    "Settings",
    "Space",
    "Steps",
    "Table",
    "Target",
    "TipsThenPool",
    "Trial",
    "__version__",
    "simulate",
]
