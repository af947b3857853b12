"""What agents agree on: the federation, its TOML file, and its privacy plan."""

from fedbo.errors import FederationMismatch
from fedbo.federation.federation import Federation
from fedbo.federation.plan import Plan

__all__ = ["Federation", "FederationMismatch", "Plan"]
