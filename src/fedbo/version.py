"""The version of fedbo."""

__version__ = "0.9.0"
