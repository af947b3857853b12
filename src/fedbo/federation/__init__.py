"""What agents agree on: the specification, its TOML file, and how they agree on its scalars."""

from fedbo.federation.federation import Federation, FederationMismatch
from fedbo.federation.scalars import Scalars

__all__ = ["Federation", "FederationMismatch", "Scalars"]
