"""Ask and tell

Five hospitals tune the same model, each on its own patients. An agent proposes what to try, the
hospital evaluates it, and one short message goes to the next hospital.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

import fedbo

TRIALS = 15  # quick: 5
SEEDS = range(10)  # quick: range(2)

# %%
# A federation is what all hospitals agree on: which parameters are tuned, and in which ranges.

federation = fedbo.Federation(
    space={
        "C": fedbo.Float(1e-2, 1e4, log=True),
        "epsilon": fedbo.Float(0.1, 100, log=True),
        "gamma": fedbo.Float(1e-5, 10, log=True),
    },
)

# %%
# The model predicts how diabetes progresses, and its score is a cross-validated R². An objective
# may be anything that takes parameters and returns a number. The 442 patients are dealt at random
# to five hospitals.

X, y = load_diabetes(return_X_y=True)
X = StandardScaler().fit_transform(X)
hospitals = np.array_split(np.random.default_rng(0).permutation(len(y)), 5)


def score(patients, params):
    return cross_val_score(SVR(**params), X[patients], y[patients], cv=3).mean()


def tune(agent, patients):
    for _ in range(TRIALS):
        trial = agent.ask()
        agent.tell(trial, score(patients, trial.params))
    return agent.message()


# %%
# The first hospital has nobody to learn from. It hands out a message of about 100 bytes, which
# contains no score, and of all trials names only the best one, rounded.

first = fedbo.Agent(federation, name="hospital-1", seed=0)
message = tune(first, hospitals[0])
print(message)
print("its best trial:", first.best.score, first.best.params)

# %%
# The second hospital receives the message. Each trial says where its query came from: a *tip* is a
# point that peers recommend, *initial* an arbitrary one, *own* is the model of the hospital's own
# trials, and *pool* a model that has learnt from all messages.

second = fedbo.Agent(federation, name="hospital-2", seed=1)
second.receive(message)
tune(second, hospitals[1])
for trial in second.trials:
    print(f"{trial.source:8} {trial.score:6.3f}", trial.params)

# %%
# One run may be luck. So all five tune one after the other, with several seeds. To compare, each
# also tunes alone: the same agent with the same seed, without messages.

scores = {"alone": [], "together": []}
for seed in SEEDS:
    messages = []
    for number, patients in enumerate(hospitals):
        for way, curves in scores.items():
            agent = fedbo.Agent(federation, name=f"hospital-{number + 1}", seed=10 * seed + number)
            if way == "together":
                agent.receive(messages)
            message = tune(agent, patients)
            if number > 0:  # the first one hears nobody
                curves.append([trial.score for trial in agent.trials])
        messages.append(message)

# %%
# Means over the hospitals 2 to 5 and all seeds: those with messages are ahead from the first trial
# on, and less so with every trial.

for way, curves in scores.items():
    best = np.maximum.accumulate(curves, axis=1).mean(axis=0)
    print(f"{way:9}", *(f"trial {t}: {best[t - 1]:.3f}  " for t in (1, 3, 5, TRIALS)))
    colour = "grey" if way == "alone" else None
    plt.plot(np.arange(TRIALS) + 1, best, color=colour, label=way)
plt.xticks([1, 5, 10, 15])
plt.xlabel("trials of a hospital")
plt.ylabel("best R² so far")
plt.legend()
plt.show()
