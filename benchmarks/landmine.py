"""Run a contest: `python benchmarks/landmine.py --help` says which."""

from contest import compare, terminal

if __name__ == "__main__":
    terminal.run(compare.landmine)
