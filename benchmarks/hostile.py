"""Run `fedbo_paper.contests.hostile`: python benchmarks/hostile.py --help"""

from fedbo_paper.contests import hostile, screen

if __name__ == "__main__":
    screen.run(hostile.main)
