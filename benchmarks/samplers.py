"""Compare samplers: `python benchmarks/samplers.py --help` says which."""

from contest import samplers, terminal

if __name__ == "__main__":
    terminal.run(samplers.main)
