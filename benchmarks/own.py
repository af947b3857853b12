"""Compare one model of all parameters with two: `python benchmarks/own.py --help` says which."""

from contest import own, terminal

if __name__ == "__main__":
    terminal.run(own.main)
