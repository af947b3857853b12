"""DP-FTS-DE as published, on the landmine fields, beside TS, FTS and one private release.

Dai, Low and Jaillet, "Differentially Private Federated Bayesian Optimization with Distributed
Exploration" (NeurIPS 2021): all agents run at once through a trusted server, which hands out a
noisy weighted mean of their messages for each of several sub-regions, in every round.

=================  ============================================================================
`regions`          sub-regions of the unit cube, and the weights of agents in each
`server`           from the messages of a round to what the server hands out
`policy`           queries that follow the server, or a random peer
`methods`          the settings of each method: **a further method is added there**
`one_release`      the library's own way: one private release, and what it is judged against
`run`              one run of a whole federation
`comparison`       which methods are compared, the published values, and the runs they need
`cost`             the ε of a method
`results`          means, paired differences and intervals
`picture`          the figure
`reproduce`        all of this, from a folder's finished runs to its files
=================  ============================================================================
"""
