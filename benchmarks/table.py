"""See `fedbo_paper.contests.table`: python benchmarks/table.py --help"""

from fedbo_paper.contests import screen
from fedbo_paper.contests.table import main

if __name__ == "__main__":
    screen.run(main)
