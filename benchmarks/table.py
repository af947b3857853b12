"""Run `fedbo_paper.contests.table`: python benchmarks/table.py --help"""

from fedbo_paper.contests import screen, table

if __name__ == "__main__":
    screen.run(table.main)
