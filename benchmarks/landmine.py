"""Run `fedbo_paper.contests.landmine`: python benchmarks/landmine.py --help"""

from fedbo_paper.contests import landmine, screen

if __name__ == "__main__":
    screen.run(landmine.main)
