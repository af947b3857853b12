"""Sites that meet in a folder

Four post offices open one after the other, and each tunes how it reads handwritten digits. All that
they share is a folder, into which each puts its latest message.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

import fedbo
from fedbo.exchange import FolderExchange, Ledger
from fedbo.trust import KeyPair, Keyring

WEEKS = 20  # quick: 11
LATER = 5  # quick: 2
SEEDS = range(20)  # quick: range(1)

# %%
# All offices have the same federation file, with the parameters that they tune and their ranges.

federation = fedbo.Federation(
    space={
        "C": fedbo.Float(1e-3, 1e3, log=True),
        "gamma": fedbo.Float(1e-6, 1, log=True),
        "components": fedbo.Int(2, 40, log=True),
    },
)
file = Path(tempfile.mkdtemp()) / "federation.toml"
federation.save(file)

# %%
# The 1,797 digits are dealt to the offices.

X, y = load_digits(return_X_y=True)
offices = ["Aarau", "Bern", "Chur", "Davos"]
digits = np.array_split(np.random.default_rng(0).permutation(len(y)), len(offices))


def accuracy(office, params):
    train, test = train_test_split(digits[office], test_size=0.5, random_state=0)
    model = make_pipeline(PCA(params["components"]), SVC(C=params["C"], gamma=params["gamma"]))
    return model.fit(X[train], y[train]).score(X[test], y[test])


# %%
# This is what an office does each week. It fetches the messages of the others, runs a trial, and
# publishes if it was its best one so far: a message that changes after every trial reveals more.
# The ledger writes each message to a log before it leaves. Messages are signed: each office has a
# key, and the others remember whose name it belongs to.


def week(office, agent, exchange, ledger):
    if exchange:
        agent.receive(exchange.fetch(agent.federation))  # it ignores its own message
    trial = agent.ask()
    agent.tell(trial, accuracy(office, trial.params))
    if exchange and agent.best.number == trial.number:
        ledger.publish(exchange, agent.message())


# %%
# The offices open five weeks apart. Four computers would run four programs; here one program plays
# all of them, with several seeds, and again without a folder. (In real use, the key of an office is
# `KeyPair.load()`, and its folder needs no keyring. Leave out `seed` then: whoever knows it knows
# the noise in the messages.)

shape = len(SEEDS), len(offices), WEEKS
best = {"alone": np.full(shape, np.nan), "together": np.full(shape, np.nan)}
for seed in SEEDS:
    folder = Path(tempfile.mkdtemp())
    ledger = Ledger(folder / "ledger.jsonl")
    for way, curves in best.items():
        exchange = FolderExchange(folder / "messages", Keyring()) if way == "together" else None
        agents = []
        for office, name in enumerate(offices):
            own = {"name": name, "seed": 10 * seed + office, "keys": KeyPair.generate()}
            agents.append(fedbo.Agent(fedbo.Federation.load(file), **own))
        for now in range(WEEKS):
            for office, agent in enumerate(agents):
                if now >= LATER * office:
                    week(office, agent, exchange, ledger)
                    curves[seed, office, now] = agent.best.score

# %%
# This is in the folder of the last seed, and this has left the office in Davos. Nobody runs a
# server, and nobody waits for an office that is closed. Whoever can write to the folder can take
# part, but not under the name of an office that the others know.

for path in sorted((folder / "messages").rglob("*.fedbo")):
    print(f"{path.name:20} {path.stat().st_size} bytes")
for entry in ledger.read("Davos"):
    print(f"message {entry.sequence} of Davos: trials behind it {entry.t_n}, bytes {entry.nbytes}")

# %%
# These are means over the seeds; grey lines are the same offices alone. Aarau has nobody to learn
# from. Each later office begins better than the one before. For Chur and Davos, the first trial
# with messages is better than the best of five alone.

for office, name in enumerate(offices):
    opened = LATER * office
    for way, colour in {"alone": "grey", "together": "C0"}.items():
        mean = best[way][:, office].mean(axis=0)
        after = (f"trial {t}: {mean[opened + t - 1]:.3f}  " for t in (1, 2, 5))
        print(f"{name:6} {way:9}", *after)
        plt.plot(np.arange(WEEKS) + 1, mean, "o-", markevery=[opened], color=colour)
        if way == "alone":
            plt.text(opened + 1.3, mean[opened] - 0.01, name, color="grey")
plt.xticks([1, 5, 10, 15, 20])
plt.xlabel("week")
plt.ylabel("best accuracy of an office so far")
plt.show()
