"""The version of fedbo."""

__version__ = "0.6.0"
