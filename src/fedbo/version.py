"""The version of fedbo."""

__version__ = "0.5.0"
