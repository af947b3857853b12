"""The packages that experiments need and the library does not."""

from __future__ import annotations

from fedbo.cli import checks

_PACKAGES = {"sklearn": "scikit-learn", "matplotlib": "matplotlib", "joblib": "joblib"}


def require() -> None:
    """End with a sentence that helps if one of the packages is not installed."""
    checks.require("experiments", _PACKAGES)
