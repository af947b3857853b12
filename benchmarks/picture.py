"""Draw what contests found: `python benchmarks/picture.py --help` says how."""

from contest import picture, terminal

if __name__ == "__main__":
    terminal.run(picture.main)
