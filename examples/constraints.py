"""A limit that must hold

Four post offices read handwritten digits with a random forest, on machines that can hold a forest
of 500 leaves. How many leaves a forest has shows only when it has grown: the limit is a constraint.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

import fedbo

LIMIT = 500
TRIALS = 15  # quick: 5
SEEDS = range(5)  # quick: range(1)

# %%
# The federation has the parameters of a forest. It says nothing about limits: these are each
# office's own.

federation = fedbo.Federation(
    space={
        "n_estimators": fedbo.Int(1, 100, log=True),
        "max_depth": fedbo.Int(1, 20, log=True),
        "max_features": fedbo.Float(0.02, 1, log=True),
        "min_samples_leaf": fedbo.Int(1, 20, log=True),
    },
)
X, y = load_digits(return_X_y=True)
offices = np.array_split(np.random.default_rng(0).permutation(len(y)), 4)


def evaluate(digits, params):
    """Return the accuracy of a forest on digits that it has not seen, and its number of leaves."""
    train, test = train_test_split(digits, test_size=0.5, random_state=0)
    forest = RandomForestClassifier(**params, random_state=0).fit(X[train], y[train])
    leaves = sum(tree.get_n_leaves() for tree in forest.estimators_)
    return forest.score(X[test], y[test]), leaves


# %%
# `tell` takes the values of constraints beside the score. A trial is feasible if none of them is
# above 0. The logarithm is smoother than the number of leaves itself, which ranges from 2 to
# thousands; so the agent learns sooner where the limit runs.


def tune(agent, digits, is_told):
    """Run trials; return the accuracy and the leaves of each."""
    results = []
    for _ in range(TRIALS):
        trial = agent.ask()
        accuracy, leaves = evaluate(digits, trial.params)
        constraints = [np.log(leaves / LIMIT)] if is_told else []
        agent.tell(trial, accuracy, constraints=constraints)
        results.append((accuracy, leaves))
    return results


# %%
# Each office tunes in three ways: alone, without a word about the limit; alone, with the
# constraint; and with the constraint and the messages of the other three, which have tuned with it
# before. (The seeds make this page repeatable. Leave them out in real use.)

ways = {"limit ignored": [], "limit told": [], "limit told, and peers": []}
for seed in SEEDS:
    messages = []
    for is_told, way in enumerate(["limit ignored", "limit told"]):
        for i, digits in enumerate(offices):
            agent = fedbo.Agent(federation, name=f"office-{i}", seed=10 * seed + i)
            ways[way].append(tune(agent, digits, is_told))
            if is_told:
                messages.append(agent.message())
    for i, digits in enumerate(offices):
        agent = fedbo.Agent(federation, name=f"office-{i}", seed=10 * seed + i)
        agent.receive(messages)  # it ignores the one under its own name
        ways["limit told, and peers"].append(tune(agent, digits, True))

# %%
# Only feasible trials are of use: what counts is the best of them, and 0 before there is one. These
# are means over the offices and all seeds. An office that ignores the limit makes two thirds of its
# trials beyond it, where forests are better, and may not use them. One that tells the limit makes
# most trials below it, and ends with a better forest. What peers know is worth most in the first
# trials. On the right are all trials of the first and the last way, and the limit.

colours = {"limit ignored": "black", "limit told": "grey", "limit told, and peers": "C0"}
figure, (left, right) = plt.subplots(1, 2)
for way, results in ways.items():
    accuracy, leaves = np.moveaxis(np.array(results), 2, 0)
    feasible = leaves <= LIMIT
    best = np.maximum.accumulate(np.where(feasible, accuracy, 0), axis=1).mean(axis=0)
    print(
        f"{way:21} {100 * feasible.mean():3.0f} % of the trials feasible, best:",
        *(f"trial {t}: {best[t - 1]:.3f}  " for t in (1, 5, TRIALS)),
    )
    colour = colours[way]
    left.plot(np.arange(TRIALS) + 1, best, color=colour, label=way)
    if way != "limit told":
        right.scatter(leaves, accuracy, 8, color=colour, alpha=0.5)
left.set(xlabel="trials of an office", ylabel="best feasible accuracy", xticks=[1, 5, 10, 15])
left.legend()
right.axvline(LIMIT, color="grey", linestyle="--", linewidth=1.5)
right.set(xlabel="leaves", ylabel="accuracy", xscale="log")
plt.show()
