"""The paper's experiments and the demo.

fedbo itself never imports this package; its commands reach ``fedbo`` by entry points.
"""
