"""Run `fedbo_paper.contests.scale`: python benchmarks/scale.py --help"""

from fedbo_paper.contests import scale, screen

if __name__ == "__main__":
    screen.run(scale.main)
