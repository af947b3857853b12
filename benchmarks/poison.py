"""Run `fedbo_paper.contests.poison`: python benchmarks/poison.py --help"""

from fedbo_paper.contests import poison, screen

if __name__ == "__main__":
    screen.run(poison.main)
