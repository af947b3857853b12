"""What agents agree on: the federation, its TOML file, and the agreement on its scalars."""

from fedbo.federation.federation import Federation, FederationMismatch
from fedbo.federation.plan import Plan
from fedbo.federation.scalars import Scalars

__all__ = ["Federation", "FederationMismatch", "Plan", "Scalars"]
