"""Run `fedbo_paper.contests.small`: python benchmarks/small.py --help"""

from fedbo_paper.contests import screen, small

if __name__ == "__main__":
    screen.run(small.main)
