"""See `fedbo_paper.contests.small`: python benchmarks/small.py --help"""

from fedbo_paper.contests import screen
from fedbo_paper.contests.small import main

if __name__ == "__main__":
    screen.run(main)
