"""The commands of agents that tune: `fedbo federation`, `fedbo join`, `fedbo ledger`.

`fedbo.cli` mounts them. Each loads what it needs when it is called, so that `fedbo --help` is quick
and works without any of the extras.
"""
