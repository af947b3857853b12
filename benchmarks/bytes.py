"""Run `fedbo_paper.contests.sizes`: python benchmarks/bytes.py --help"""

from fedbo_paper.contests import screen, sizes

if __name__ == "__main__":
    screen.run(sizes.main)
