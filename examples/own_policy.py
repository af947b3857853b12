"""A policy of your own

A policy decides where an agent queries next. This program writes a new one in 20 lines, and
compares it with two of fedbo's on the data of five hospitals.
"""

from typing import ClassVar

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

import fedbo
from fedbo.message import Kind

# %%
# A policy is a small class. Its `query` sees all that the agent knows, its `target`, and returns a
# point. This one goes where the mean of all peers' functions is largest, from the first trial on.
# In trial t it does so with probability 1 / t, so that useless peers do harm for a while only. The
# other queries are initial points, and then Thompson sampling on the agent's own trials.


class Crowd(fedbo.Policy, frozen=True):
    """Follow the mean of all peers, less and less often."""

    kinds: ClassVar[tuple[Kind, ...]] = ("weights",)  # the messages that it understands
    begins: ClassVar[bool] = True  # it chooses the first trials, too

    def query(self, target: fedbo.Target) -> fedbo.Query:
        peers = len(target.inbox)
        t = 1 + len(target.y) + len(target.open_points)  # trials that failed count, too
        if peers and target.rng.random() < 1 / t:
            # A function is linear in its weights: the mean of the weights is the mean function.
            omega = target.inbox.omega.mean(axis=0, dtype=np.float64)
            credit = target.named(np.arange(peers), np.full(peers, 1 / peers))
            origin = fedbo.Origin("pool", credit=credit)
            return target.query_acquisition(target.phi.function(omega), origin)
        if target.initial is not None:
            return fedbo.Query(target.initial, fedbo.Origin("initial"))
        return target.query_draw(target.own_draw())


# %%
# The hospitals tune a model of how diabetes progresses; its score is a cross-validated R². The
# policy needs messages that are weights of a function, and the federation says so.

X, y = load_diabetes(return_X_y=True)
X = StandardScaler().fit_transform(X)
hospitals = np.array_split(np.random.default_rng(0).permutation(len(y)), 5)
space = {
    "C": fedbo.Float(1e-2, 1e4, log=True),
    "epsilon": fedbo.Float(0.1, 100, log=True),
    "gamma": fedbo.Float(1e-5, 10, log=True),
}
federation = fedbo.Federation(space, kind="weights")


def tune(agent, patients, trials):
    for _ in range(trials):
        trial = agent.ask()
        model = SVR(**trial.params)
        agent.tell(trial, cross_val_score(model, X[patients], y[patients], cv=3).mean())
    return np.maximum.accumulate([trial.score for trial in agent.trials])


# %%
# Each hospital in turn is the newcomer, when the other four have finished 20 trials. (An agent
# ignores messages under its own name.) EI hears nobody: it is what the default policy does alone.
# FTS is the paper's algorithm, which begins with three initial points.

TRIALS = 15  # quick: 5
SEEDS = range(6)  # quick: range(1)

policies = {"EI": fedbo.EI(), "FTS": fedbo.FTS(), "Crowd": Crowd()}
curves = {name: [] for name in policies}
for seed in SEEDS:
    messages = []
    for i, patients in enumerate(hospitals):
        peer = fedbo.Agent(federation, fedbo.EI(), name=f"hospital-{i}", seed=100 + 10 * seed + i)
        tune(peer, patients, 20)
        messages.append(peer.message())
    for name, policy in policies.items():
        for i, patients in enumerate(hospitals):
            newcomer = fedbo.Agent(federation, policy, name=f"hospital-{i}", seed=10 * seed + i)
            newcomer.receive(messages)
            curves[name].append(tune(newcomer, patients, TRIALS))

# %%
# These are means over all hospitals and seeds. The crowd is far ahead in the first trials; in the
# end all three are nearly as good.

for name, best in curves.items():
    mean = np.mean(best, axis=0)
    print(f"{name:6}", *(f"trial {t}: {mean[t - 1]:.3f}  " for t in (1, 3, 5, TRIALS)))
    colour = "grey" if name == "EI" else None
    plt.plot(np.arange(TRIALS) + 1, mean, color=colour, label=name)
plt.xticks([1, 5, 10, 15])
plt.xlabel("trials of the newcomer")
plt.ylabel("best R² so far")
plt.legend()
plt.show()
