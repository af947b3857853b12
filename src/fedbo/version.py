"""The version of fedbo."""

__version__ = "1.0.0.dev0"
