"""Run a contest: `python benchmarks/private.py --help` says which."""

from contest import private, terminal

if __name__ == "__main__":
    terminal.run(private.main)
