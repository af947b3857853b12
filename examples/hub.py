"""A hub with three sites

Three banks share no folder and no network. One of them runs a hub, the others reach it, and each
tunes a neural network that reads the digits on its own cheques.
"""

import os
import shlex
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import fedbo
from fedbo.exchange import HubExchange, Ledger
from fedbo.trust import KeyPair, Keyring

TRIALS = 15  # quick: 5
SEEDS = range(8)  # quick: range(1)

# %%
# Each bank has a fifth of the 1,797 digits: half to train a network, half to score it.

X, y = load_digits(return_X_y=True)
banks = ["lyon", "milan", "nice"]
warnings.simplefilter("ignore", ConvergenceWarning)  # 20 epochs must do


def accuracy(bank, params, seed):
    fifths = np.array_split(np.random.default_rng(seed).permutation(len(y)), 5)
    train, test = train_test_split(fifths[banks.index(bank)], test_size=0.5, random_state=0)
    model = MLPClassifier(max_iter=20, random_state=0, **params)
    return model.fit(X[train] / 16, y[train]).score(X[test] / 16, y[test])


# %%
# The operator and the banks would be on four machines. Here each has a folder of its own, in which
# it runs its commands. `FEDBO_STATE` keeps their keys, tokens and ledgers apart.

home = tempfile.TemporaryDirectory()
folders = {who: Path(home.name) / who for who in ("operator", *banks)}
for folder in folders.values():
    folder.mkdir()


def run(who, command, stdin=""):
    return subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=folders[who],
        env=os.environ | {"FEDBO_STATE": str(folders[who] / "state"), "COLUMNS": "90"},
        input=stdin,
        check=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
    ).stdout


# %%
# The operator writes the federation file, and starts the hub at a free port. A hub that other
# machines reach needs a certificate; this one serves its own machine only.

fedbo.Federation(
    space={
        "learning_rate_init": fedbo.Float(1e-4, 1, log=True),
        "alpha": fedbo.Float(1e-6, 10, log=True),
        "hidden_layer_sizes": fedbo.Int(4, 128, log=True),
        "batch_size": fedbo.Int(4, 64, log=True),
    },
).save(folders["operator"] / "federation.toml")

hub = subprocess.Popen(
    [sys.executable, "-m", "fedbo", "hub", "serve", "--port", "0"],
    cwd=folders["operator"],
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,  # its log
    text=True,
)
address = hub.stdout.readline().split()[-1]

# %%
# A hub serves many federations. Each repetition of this experiment is one: the operator creates it,
# and sends the banks an invitation. A bank that joins gets a token and the federation file. It
# makes a key, which never leaves its machine, and will sign its messages with it.


def create(name):
    invitation = run("operator", f"fedbo hub create {name} --federation federation.toml --uses 3")
    for bank in banks:
        run(bank, f"fedbo join {address} --invite - --name {bank}", stdin=invitation)


# %%
# A bank tunes alone, or in a federation at the hub. Then it fetches the messages of the others
# before each trial, and publishes after those that are its best so far. The ledger writes each
# message to a log before it leaves. (In real use, leave out `seed`, because whoever knows it knows
# the noise in the messages, and `Keyring()`, which forgets what was heard in other repetitions.)


def tune(bank, seed, place=None):
    os.environ["FEDBO_STATE"] = str(folders[bank] / "state")
    federation = fedbo.Federation.load(folders[bank] / "federation.toml")
    own = {"name": bank, "seed": 10 * seed + banks.index(bank), "keys": KeyPair.load()}
    agent, ledger, best = fedbo.Agent(federation, **own), Ledger(), []
    exchange = HubExchange(place, Keyring()) if place else None
    for _ in range(TRIALS):
        if exchange:
            agent.receive(exchange.fetch(federation))
        trial = agent.ask()
        agent.tell(trial, accuracy(bank, trial.params, seed))
        if exchange and agent.best.number == trial.number:
            ledger.publish(exchange, agent.message())
        best.append(agent.best.score)
    return best


# %%
# The banks start one after the other. The third one does so twice: with the hub, and alone.

best = {"with the hub": [], "alone": []}
try:
    for seed in SEEDS:
        create(f"cheques-{seed}")
        *_, third = (tune(bank, seed, f"{address}/cheques-{seed}") for bank in banks)
        best["with the hub"].append(third)
        best["alone"].append(tune("nice", seed))
finally:
    hub.terminate()
    hub.communicate()

# %%
# The hub has ended, but the operator's commands need only its database. The hub knows who the
# members are, how many trials are behind their messages, and when it last heard of them.

print(run("operator", "fedbo hub members cheques-0"))

# %%
# It could also read the messages. This is a whole one, the last of the third bank, from its ledger.
# No image and no accuracy is in it. But it says in which of 64 cells of the space the trials are,
# and which was best, with numbers rounded: the tip.

last = len(Ledger().read())
print(run("nice", f"fedbo ledger --show {last}"))
home.cleanup()

# %%
# These are means over the repetitions. The first trial with the hub is about as good as the best of
# nine alone. After 15 trials, there is little difference.

for way, curves in best.items():
    mean = np.mean(curves, axis=0)
    print(f"{way:12}", *(f"trial {t}: {mean[t - 1]:.3f}  " for t in (1, 2, 5, TRIALS)))
    colour = "grey" if way == "alone" else None
    plt.plot(np.arange(TRIALS) + 1, mean, color=colour, label=way)
plt.xticks([1, 5, 10, 15])
plt.xlabel("trials of the third bank")
plt.ylabel("best accuracy so far")
plt.legend()
plt.show()
