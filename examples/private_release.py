"""A release with differential privacy

Sixty post offices want to help new ones, but none of them may give itself away. So a trusted party
adds up what they know, adds noise, and publishes the sum once.
"""

import tempfile
import textwrap
from itertools import combinations
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

import fedbo
from fedbo.exchange import Ledger
from fedbo.privacy import Plan, Simulated, next_release, release, signal, statement
from fedbo.trust import KeyPair

MEMBERS = range(60)  # quick: range(12)
NEWCOMERS = range(60, 70)  # quick: range(60, 61)
HISTORY = 20  # quick: 5
TRIALS = 10  # quick: 7
DRAWS = range(8)  # quick: range(2)

# %%
# Each office sorts letters to three districts, so it has to tell three of the ten digits apart. No
# two offices have the same three. An office has 200 images of its digits. (There are 1,797 images
# in all, so offices share some, and have more in common than real ones would.)

X, y = load_digits(return_X_y=True)
districts = np.random.default_rng(0).permutation([*combinations(range(10), 3)])
space = {
    "C": fedbo.Float(1e-3, 1e3, log=True),
    "gamma": fedbo.Float(1e-6, 1, log=True),
    "components": fedbo.Int(2, 40, log=True),
}


def accuracy(office, params):
    mine = np.flatnonzero(np.isin(y, districts[office]))
    mine = np.random.default_rng(office).permutation(mine)[:200]
    train, test = train_test_split(mine, test_size=0.5, random_state=0)
    model = make_pipeline(
        PCA(params["components"], random_state=0), SVC(C=params["C"], gamma=params["gamma"])
    )
    return model.fit(X[train], y[train]).score(X[test], y[test])


# %%
# Every member has made 20 trials, alone.


def tune(agent, office, trials):
    for _ in range(trials):
        trial = agent.ask()
        agent.tell(trial, accuracy(office, trial.params))
    return [trial.score for trial in agent.trials]


members = [fedbo.Agent(fedbo.Federation(space), name=f"office-{i}", seed=i) for i in MEMBERS]
for office, agent in enumerate(members):
    tune(agent, office, HISTORY)

# %%
# In a federation with a privacy plan, members contribute to releases, and hear nothing else. All
# releases together cost each member at most ε. Below, the same trials are told to agents in
# federations with several plans, to compare these; a real member tunes with one agent, in one.


def contributions(federation):
    messages = []
    for member in members:
        agent = fedbo.Agent(federation, name=member.name)
        for trial in member.trials:
            agent.tell(trial.params, trial.score)
        messages.append(agent.message())
    return messages


federation = fedbo.Federation(space, privacy=Plan(epsilon=2, delta=1e-3))
contributed = contributions(federation)
print(contributed[0])
print(textwrap.fill(str(signal(federation, len(contributed))), 88))

# %%
# The trusted party makes the release. It is in the ledger before anybody can see it, and the ledger
# says in words what it costs. (`Simulated` noise makes this page repeatable. Leave `source` out in
# real use: whoever can predict the noise can remove it.)

keys = KeyPair.generate()  # in real use, KeyPair.load()
ledger = Ledger(Path(tempfile.mkdtemp()) / "ledger.jsonl")


def make(released):
    return next_release(federation, released, contributed, keys=keys, source=Simulated(0))


published = ledger.add_release(federation, make)
for paragraph in statement(ledger.releases(federation)).splitlines():
    print(textwrap.fill(paragraph, 88))

# %%
# One release was planned, so a second one is refused.

try:
    ledger.add_release(federation, make)
except ValueError as refusal:
    print(textwrap.shorten(str(refusal), 88))

# %%
# What is it worth? Ten new offices start with a release, for three values of ε; with ordinary
# messages of the same members, which promise nothing; and alone. One draw of noise serves all
# newcomers, so all of them are lucky or unlucky together. This program makes eight releases for
# each ε, to show how much is luck. That is for study only: in real use, each would cost ε again.

best = {}
for epsilon in (2, 0.5, 0.1):
    federation = fedbo.Federation(space, privacy=Plan(epsilon=epsilon, delta=1e-3))
    contributed = contributions(federation)
    best[f"release, ε = {epsilon}"] = [
        (federation, release(federation, contributed, source=Simulated(draw))) for draw in DRAWS
    ]
ordinary = fedbo.Federation(space)
best["ordinary messages"] = [(ordinary, [member.message() for member in members]) for _ in DRAWS]
best["alone"] = [(ordinary, []) for _ in DRAWS]
for way, heard in best.items():
    scores = []
    for draw, (federation, messages) in enumerate(heard):
        for office in NEWCOMERS:
            agent = fedbo.Agent(federation, name="newcomer", seed=1000 * draw + office)
            agent.receive(messages)
            scores.append(tune(agent, office, TRIALS))
    scores = np.reshape(scores, (len(DRAWS), len(NEWCOMERS), TRIALS))
    best[way] = np.maximum.accumulate(scores, axis=2).mean(axis=1)

# %%
# These are means over all newcomers and draws. With ε = 2, a release is worth as much as ordinary
# messages: the first trial is about as good as the best of seven alone. There are many members,
# which have much in common. As a rule of thumb, multiply ε by their number: here that is 120. With
# ε = 0.5 it is 30, and most of the gain is left. With ε = 0.1 it is 6, and a release is mostly
# noise. On the right is the first trial in each draw: with ε = 0.1 it depends on luck, and is worse
# than alone in three of eight.

figure, (left, right) = plt.subplots(1, 2, width_ratios=(3, 2), sharey=True)
for number, (way, curves) in enumerate(best.items()):
    errors = 100 * (1 - curves)
    mean = errors.mean(axis=0)
    print(f"{way:18}", *(f"trial {t}: {mean[t - 1]:.1f} %  " for t in (1, 2, 3, 7, TRIALS)))
    colour = "grey" if way == "alone" else None
    left.plot(np.arange(TRIALS) + 1, mean, color=colour, label=way)
    right.plot(np.full(len(DRAWS), number), errors[:, 0], "o", color=colour, alpha=0.5)
left.set(xlabel="trials of a newcomer", ylabel="lowest error so far, in %", xticks=[1, 5, 10])
left.set(yscale="log", yticks=[1, 3, 10, 30], yticklabels=["1", "3", "10", "30"])
left.legend()
right.set(xlabel="the first trial, in each draw", xticks=[])
plt.show()
