"""A policy of your own, compared with TS and FTS: python examples/custom_policy.py

It runs six agents once for each policy: an illustration, not a benchmark.
"""

from typing import ClassVar

import numpy as np

import fedbo
from fedbo.message import Kind


class Crowd(fedbo.Policy, frozen=True):
    """In query t, with probability share / t, maximise the mean of all peers' functions.

    The probability falls with t, so that useless peers do harm for a while only.
    """

    share: float = 1.0

    kinds: ClassVar[tuple[Kind, ...]] = ("weights",)

    def query(self, target: fedbo.Target) -> fedbo.Query:
        if not len(target.inbox) or target.rng.random() >= self.share / target.t:
            return target.query_draw(target.own_draw())
        # A function is linear in its weights, so the mean of the weights is the mean function.
        omega = target.inbox.omega.mean(axis=0, dtype=np.float64)
        rows = np.arange(len(target.inbox))
        credit = target.named(rows, np.full(len(rows), 1 / len(rows)))
        origin = fedbo.Origin("pool", credit=credit)
        return target.query_acquisition(target.phi.function(omega), origin)


def mean_best(policy: fedbo.Policy, every: int | None, agents: int = 6) -> float:
    """Mean best score of agents with similar objectives, after 3 initial points and 7 queries."""
    federation = fedbo.Federation({"x": fedbo.Float(0, 1), "y": fedbo.Float(0, 1)}, kind="weights")
    parties = []
    for n, (x, y) in enumerate(np.random.default_rng(0).normal(0.7, 0.05, (agents, 2))):

        def score(params: dict, x: float = x, y: float = y) -> float:
            return float(np.exp(-((params["x"] - x) ** 2 + (params["y"] - y) ** 2) / 0.02))

        agent = fedbo.Agent(federation, policy, name=f"agent {n}", seed=n)
        parties.append(fedbo.Party(agent=agent, objective=score))
    table = fedbo.simulate(parties, 7, every=every)
    return float(np.mean(table.where(iteration=7)["best"]))


if __name__ == "__main__":
    print(f"TS     {mean_best(fedbo.TS(), every=None):.3f}")
    print(f"FTS    {mean_best(fedbo.FTS(), every=1):.3f}")
    print(f"Crowd  {mean_best(Crowd(), every=1):.3f}")
