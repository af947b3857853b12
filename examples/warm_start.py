"""Finished studies help the next team

Three teams have tuned the same kind of model on their own data, with plain Optuna, and are done.
Now each of their studies leaves a message, and a fourth team starts ahead.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np
import optuna
from sklearn import datasets
from sklearn.decomposition import PCA
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import fedbo
from fedbo.exchange import FolderExchange
from fedbo.optuna import FederatedSampler
from fedbo.optuna.stored import StoredStudy
from fedbo.trust import Keyring

PAST = 30  # quick: 10
TRIALS = 12  # quick: 5
SEEDS = range(5)  # quick: range(1)
optuna.logging.set_verbosity(optuna.logging.WARNING)

# %%
# The teams have four different data sets: flowers, wines, tumours and handwritten digits (500 of
# them). They tune a support vector machine, and how many components of the data it sees.

data = {}
for name in ("iris", "wine", "breast_cancer", "digits"):
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    chosen = np.random.default_rng(0).permutation(len(y))[:500]
    data[name] = X[chosen], y[chosen]


def objective(name):
    def accuracy(trial):
        variance = trial.suggest_float("variance", 0.2, 0.99)  # the share that PCA keeps
        C = trial.suggest_float("C", 1e-4, 1e4, log=True)
        gamma = trial.suggest_float("gamma", 1e-6, 1e2, log=True)
        model = make_pipeline(StandardScaler(), PCA(variance), SVC(C=C, gamma=gamma))
        return cross_val_score(model, *data[name], cv=3).mean()

    return accuracy


# %%
# This is all that the old studies know: Optuna's own sampler has made them, and nobody thought of
# fedbo then. (The seeds make this page repeatable: leave them out in real use.)


def old_study(name, seed):
    sampler = optuna.samplers.TPESampler(seed=seed)
    study = optuna.create_study(study_name=name, direction="maximize", sampler=sampler)
    study.optimize(objective(name), n_trials=PAST)
    return study


past = {(name, seed): old_study(name, 100 + seed) for name in data for seed in SEEDS}
for name in data:
    print(f"{name:13} best accuracy {past[name, SEEDS[0]].best_value:.3f}")

# %%
# A federation says what the parameters are. `fedbo federation new --from-study` makes its file from
# the trials of a study. Then each study publishes a message of about 200 bytes into a folder. For a
# study in a database, this command does it:
#
# `fedbo study publish --storage sqlite:///wine.db --study wine --to messages --name wine`
#
# (`Keyring()` forgets what was heard in other repetitions: leave it out in real use.)

federation = fedbo.Federation(
    {
        "variance": fedbo.Float(0.2, 0.99),
        "C": fedbo.Float(1e-4, 1e4, log=True),
        "gamma": fedbo.Float(1e-6, 1e2, log=True),
    },
)


def publish(names, seed):
    exchange = FolderExchange(tempfile.mkdtemp(), Keyring())
    for name in names:
        StoredStudy(past[name, seed], federation, name=name).publish(exchange)
    return exchange


# %%
# Each team in turn is the next one, and the other three are the past. It starts with their
# messages, without them, with TPE, or as most people would do: it tries the best settings of the
# other three first, and goes on with TPE. For this, the teams must show each other their settings.

best = {"past studies": [], "alone": [], "TPE": [], "TPE, best settings first": []}
for seed in SEEDS:
    for number, name in enumerate(data):
        others = [other for other in data if other != name]
        own = {"name": name, "seed": 10 * seed + number}
        samplers = {
            "past studies": FederatedSampler(federation, publish(others, seed), **own),
            "alone": FederatedSampler(federation, **own),
            "TPE": optuna.samplers.TPESampler(seed=own["seed"]),
            "TPE, best settings first": optuna.samplers.TPESampler(seed=own["seed"]),
        }
        for way, sampler in samplers.items():
            study = optuna.create_study(direction="maximize", sampler=sampler)
            if way == "TPE, best settings first":
                for other in others:
                    study.enqueue_trial(past[other, seed].best_params)
            study.optimize(objective(name), n_trials=TRIALS)
            best[way].append(np.maximum.accumulate([trial.value for trial in study.trials]))

# %%
# These are means over the four teams and all seeds. With messages of past studies, the first trial
# is about as good as the best of 11 alone. Best settings that are shown to everybody help as much.

for way, curves in best.items():
    mean = np.mean(curves, axis=0)
    print(f"{way:25}", *(f"trial {t}: {mean[t - 1]:.3f}  " for t in (1, 3, 5, TRIALS)))
    colour = "grey" if way == "alone" else None
    plt.plot(np.arange(TRIALS) + 1, mean, color=colour, label=way)
plt.xticks([1, 3, 6, 9, 12])
plt.xlabel("trials of the next team")
plt.ylabel("best accuracy so far")
plt.legend()
plt.show()
