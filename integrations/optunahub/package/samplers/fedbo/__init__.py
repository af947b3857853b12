"""Samplers of fedbo, for Optuna: a federation of studies, and transfer from past studies."""

try:
    from fedbo.optuna import FederatedSampler
except ImportError as error:
    raise ImportError(
        f"this package needs fedbo ({error}): pip install 'fedbo[optuna]', with Python 3.11 or "
        "newer. Sites that meet at a hub need 'fedbo[optuna,client]'"
    ) from error

from .rgpe import RGPESampler

__all__ = ["FederatedSampler", "RGPESampler"]
