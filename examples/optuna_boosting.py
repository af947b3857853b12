"""Gradient boosting in Optuna, on three sites

Three clinics diagnose tumours, and each tunes gradient boosting on its own patients with an Optuna
study. A study joins the others by its sampler.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import optuna
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import cross_val_score

import fedbo
from fedbo.optuna import FederatedSampler

TRIALS = 15  # quick: 5
SEEDS = range(8)  # quick: range(1)
optuna.logging.set_verbosity(optuna.logging.WARNING)

# %%
# What is tuned stands in the federation, with the ranges that the objective uses. The score is the
# log loss, which is small for a model that is right and knows how sure it may be.

federation = fedbo.Federation(
    fedbo.Space(
        {
            "learning_rate": fedbo.Float(1e-3, 1, log=True),
            "max_iter": fedbo.Int(10, 200, log=True),
            "max_leaf_nodes": fedbo.Int(2, 32, log=True),
            "min_samples_leaf": fedbo.Int(1, 50, log=True),
            "l2_regularization": fedbo.Float(1e-3, 100, log=True),
        },
        direction="minimize",
    )
)
X, y = load_breast_cancer(return_X_y=True)
clinics = np.array_split(np.random.default_rng(0).permutation(len(y)), 3)


def objective(clinic):
    def log_loss(trial):
        model = HistGradientBoostingClassifier(
            learning_rate=trial.suggest_float("learning_rate", 1e-3, 1, log=True),
            max_iter=trial.suggest_int("max_iter", 10, 200, log=True),
            max_leaf_nodes=trial.suggest_int("max_leaf_nodes", 2, 32, log=True),
            min_samples_leaf=trial.suggest_int("min_samples_leaf", 1, 50, log=True),
            l2_regularization=trial.suggest_float("l2_regularization", 1e-3, 100, log=True),
            early_stopping=False,
            random_state=0,
        )
        patients = clinics[clinic]
        return -cross_val_score(
            model, X[patients], y[patients], cv=3, scoring="neg_log_loss"
        ).mean()

    return log_loss


# %%
# The three studies meet in a folder. They start one after the other here; on three machines they
# may as well run at the same time. To compare, each study also runs without a folder, and with
# Optuna's TPE. (Leave out `seed` in real use: whoever knows it knows the noise in the messages.)

best = {"alone": [], "together": [], "TPE": []}
for seed in SEEDS:
    folder = Path(tempfile.mkdtemp())
    for clinic in range(3):
        own = {"name": f"clinic-{clinic + 1}", "seed": 10 * seed + clinic}
        samplers = {
            "alone": FederatedSampler(federation, **own),
            "together": FederatedSampler(federation, folder, **own),
            "TPE": optuna.samplers.TPESampler(seed=own["seed"]),
        }
        for way, sampler in samplers.items():
            study = optuna.create_study(sampler=sampler)
            study.optimize(objective(clinic), n_trials=TRIALS)
            if way == "together":
                sampler.flush()  # a script that ends does this by itself
            if clinic:  # the first one has nobody to learn from
                best[way].append(np.minimum.accumulate([t.value for t in study.trials]))

# %%
# These are means over clinics 2 and 3 and all seeds. What together has in the first trial, the
# others have after five or six. After 15 trials there is no difference any more.

for way, curves in best.items():
    mean = np.mean(curves, axis=0)
    print(f"{way:9}", *(f"trial {t}: {mean[t - 1]:.3f}  " for t in (1, 3, 5, TRIALS)))
    colour = "grey" if way == "alone" else None
    plt.plot(np.arange(TRIALS) + 1, mean, color=colour, label=way)
plt.xticks([1, 5, 10, 15])
plt.xlabel("trials of a clinic")
plt.ylabel("lowest log loss so far")
plt.legend()
plt.show()
