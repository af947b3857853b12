"""The packages that the experiments need, but the library does not."""

from __future__ import annotations

from fedbo.cli import checks

_PACKAGES = {"sklearn": "scikit-learn", "matplotlib": "matplotlib", "joblib": "joblib"}


def require() -> None:
    """End the program if one of the packages is not installed, and say how to install it."""
    checks.require("experiments", _PACKAGES)


def require_accountant() -> None:
    """End the program if the package that computes ε is not installed."""
    checks.require("privacy", {"dp_accounting": "dp-accounting"})


def require_cluster(backend: str) -> None:
    """End the program if the package of a cluster is not installed."""
    package = {"dask": "distributed", "ray": "ray"}[backend]
    checks.require("cluster", {package: package})
