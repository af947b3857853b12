"""See `fedbo_paper.contests.har`: python benchmarks/har.py --help"""

from fedbo_paper.contests import screen
from fedbo_paper.contests.har import main

if __name__ == "__main__":
    screen.run(main)
