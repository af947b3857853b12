"""What agents agree on: the federation, its TOML file, and its privacy plan."""

from fedbo.federation.federation import Federation, FederationMismatch
from fedbo.federation.plan import Plan

__all__ = ["Federation", "FederationMismatch", "Plan"]
