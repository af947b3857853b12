"""``python -m fedbo``, the same as ``fedbo``."""

from fedbo.cli.app import app

if __name__ == "__main__":
    app()
