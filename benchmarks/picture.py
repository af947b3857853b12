"""See `fedbo_paper.contests.picture`: python benchmarks/picture.py --help"""

from fedbo_paper.contests import screen
from fedbo_paper.contests.picture import main

if __name__ == "__main__":
    screen.run(main)
