"""The paper's experiments and the contests: everything that measures fedbo.

fedbo itself never imports this package; its commands reach ``fedbo`` by entry points.
"""
