"""Run a contest: `python benchmarks/hostile.py --help` says which."""

from contest import hostile, terminal

if __name__ == "__main__":
    terminal.run(hostile.main)
