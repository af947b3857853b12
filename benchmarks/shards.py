"""Run `fedbo_paper.contests.shards`: python benchmarks/shards.py --help"""

from fedbo_paper.contests import screen, shards

if __name__ == "__main__":
    screen.run(shards.main)
