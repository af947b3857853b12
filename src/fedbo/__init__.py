"""fedbo: federated Bayesian optimisation.

Many parties, each tuning its own black box, help one another without showing anyone a trial.
"""

from fedbo.agent import Agent
from fedbo.agent.settings import Settings
from fedbo.agent.trial import Trial
from fedbo.federation import Federation, FederationMismatch
from fedbo.files import FileRefused
from fedbo.message import Message, MessageRefused
from fedbo.message.inbox import Inbox
from fedbo.policy import EI, FTS, RGPE, TAF, TS, Origin, Policy, Query, Target, TipsThenPool
from fedbo.policy.base import Gradual, Power, Steps
from fedbo.simulate import Party, simulate
from fedbo.space import Categorical, Float, Int, Space
from fedbo.table import Table
from fedbo.version import __version__

__all__ = [
    "EI",
    "FTS",
    "RGPE",
    "TAF",
    "TS",
    "Agent",
    "Categorical",
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
