"""See `fedbo_paper.contests.hostile`: python benchmarks/hostile.py --help"""

from fedbo_paper.contests import screen
from fedbo_paper.contests.hostile import main

if __name__ == "__main__":
    screen.run(main)
