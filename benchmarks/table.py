"""Run a contest: `python benchmarks/table.py --help` says which."""

from contest import compare, terminal

if __name__ == "__main__":
    terminal.run(compare.table)
