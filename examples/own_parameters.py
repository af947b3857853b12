"""Parameters of one's own

Four post offices read handwritten digits. A fifth one has an old scanner with dust on its glass. So
it has a parameter that nobody else knows: the brightness at which it cuts off specks of dust.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

import fedbo

TRIALS = 15  # quick: 5
SEEDS = range(20)  # quick: range(2)

# %%
# The federation knows the two parameters of the model.

federation = fedbo.Federation(
    space={
        "C": fedbo.Float(1e-3, 1e3, log=True),
        "gamma": fedbo.Float(1e-6, 1, log=True),
    },
)

# %%
# Each office has a fifth of the digits. Their pixels have values up to 16. In the images of the
# last office, one pixel in ten has a speck on it, which may be much brighter.

X, y = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
offices = np.array_split(rng.permutation(len(y)), 5)
old = offices[4]
specks = rng.random((len(old), X.shape[1])) < 0.1
X[old] += specks * rng.exponential(100, specks.shape)


def accuracy(office, C, gamma, cut=np.inf):
    mine = offices[office]
    split = train_test_split(np.minimum(X[mine], cut), y[mine], test_size=0.5, random_state=0)
    X_train, X_test, y_train, y_test = split
    return SVC(C=C, gamma=gamma).fit(X_train, y_train).score(X_test, y_test)


def tune(agent, office):
    for _ in range(TRIALS):
        trial = agent.ask()
        agent.tell(trial, accuracy(office, **trial.params))
    return agent.message()


# %%
# `own` adds the parameter to one agent. Its space then has three parameters, and its messages are
# about two, so that everybody understands them.

own = {"cut": fedbo.Float(1, 1000, log=True)}
agent = fedbo.Agent(federation, name="office-4", seed=0, own=own)
print("tuned here: ", *agent.space.parameters)
print("in messages:", *agent.federation.space.parameters)

# %%
# Messages of the other four help with the shared parameters. The last office tries what they
# recommend, with `cut` in the middle of its range, and then tunes all three together. To compare,
# it also tunes all three without messages, and the two shared ones with messages. (The seeds make
# this page repeatable: leave them out in real use.)

ways = {"cut, and peers": [], "cut, alone": [], "peers, no cut": []}
for seed in SEEDS:
    messages = []
    for office in range(4):
        agent = fedbo.Agent(federation, name=f"office-{office}", seed=10 * seed + office)
        messages.append(tune(agent, office))
    for way, agents in ways.items():
        extra = None if "no cut" in way else own
        agent = fedbo.Agent(federation, name="office-4", seed=10 * seed + 4, own=extra)
        if "peers" in way:
            agent.receive(messages)
        tune(agent, 4)
        agents.append(agent)

# %%
# These are means over all seeds. Without the parameter of its own, the last office reads one digit
# in seven, whatever its peers say. With it, peers who know nothing of specks help: the mean after
# five trials with them is above that after 15 alone. Most runs alone end nearly as well, but four
# of 20 never find where anything can be read. The points on the right are all trials with the
# parameter, in the colours of the left: the best cut is near 16, the brightest value of ink.

figure, (left, right) = plt.subplots(1, 2)
for way, agents in ways.items():
    scores = [[trial.score for trial in agent.trials] for agent in agents]
    best = np.maximum.accumulate(scores, axis=1).mean(axis=0)
    poor = sum(agent.best.score < 0.5 for agent in agents)
    means = "   ".join(f"trial {t}: {best[t - 1]:.3f}" for t in (1, 5, TRIALS))
    print(f"{way:14}   {means}   runs below 0.5: {poor}")
    colour = "grey" if "alone" in way else None
    left.plot(np.arange(TRIALS) + 1, best, color=colour, label=way)
    if "no cut" not in way:
        trials = [trial for agent in agents for trial in agent.trials]
        cuts = [trial.params["cut"] for trial in trials]
        right.scatter(cuts, [trial.score for trial in trials], 8, color=colour, alpha=0.5)
left.set(xlabel="trials of the last office", ylabel="best accuracy so far", xticks=[1, 5, 10, 15])
left.legend(loc="lower right", bbox_to_anchor=(1, 0.1))
right.set(xlabel="cut", ylabel="accuracy", xscale="log")
plt.show()
