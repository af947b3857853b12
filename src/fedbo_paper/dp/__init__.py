"""DP-FTS-DE as published, on the landmine fields, beside TS, FTS and one private release.

Dai, Low and Jaillet, "Differentially Private Federated Bayesian Optimization with Distributed
Exploration" (NeurIPS 2021): all agents run at once through a trusted server, which hands out a
noisy weighted mean of their messages for each of several sub-regions, in every round.

=================  ============================================================================
`server`           sub-regions of the unit cube, and what the server hands out for each
`policy`           queries that follow the server, or a random peer
`methods`          the settings of each method: **a further method is added there**
`comparison`       which methods are compared, the published values, and one run
`results`          from a folder's finished runs to its tables
`picture`          the figure
=================  ============================================================================
"""
