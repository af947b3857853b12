"""The version of fedbo."""

__version__ = "0.4.0"
