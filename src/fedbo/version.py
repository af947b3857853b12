"""The version of fedbo."""

__version__ = "0.7.0"
