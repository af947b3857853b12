"""The version of fedbo."""

__version__ = "0.8.0"
