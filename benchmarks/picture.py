"""Run `fedbo_paper.contests.picture`: python benchmarks/picture.py --help"""

from fedbo_paper.contests import picture, screen

if __name__ == "__main__":
    screen.run(picture.main)
