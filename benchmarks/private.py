"""Run `fedbo_paper.contests.private`: python benchmarks/private.py --help"""

from fedbo_paper.contests import private, screen

if __name__ == "__main__":
    screen.run(private.main)
