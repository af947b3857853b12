"""Run a contest: `python benchmarks/shards.py --help` says which."""

from contest import shards, terminal

if __name__ == "__main__":
    terminal.run(shards.main)
