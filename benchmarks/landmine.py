"""See `fedbo_paper.contests.landmine`: python benchmarks/landmine.py --help"""

from fedbo_paper.contests import screen
from fedbo_paper.contests.landmine import main

if __name__ == "__main__":
    screen.run(main)
