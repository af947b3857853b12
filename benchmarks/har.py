"""Run `fedbo_paper.contests.har`: python benchmarks/har.py --help"""

from fedbo_paper.contests import har, screen

if __name__ == "__main__":
    screen.run(har.main)
