"""Support vector machines for three data sets help to tune one for a fourth.

`python example.py --quick` runs fewer trials. It needs scikit-learn.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import optuna
import optunahub
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import fedbo

REGISTRY = Path(__file__).parents[2]
module = optunahub.load_local_module("samplers/fedbo", registry_root=str(REGISTRY))
# From OptunaHub: module = optunahub.load_module("samplers/fedbo")

PAST, TRIALS = (12, 5) if "--quick" in sys.argv else (40, 15)


def tune(load_data, sampler: optuna.samplers.BaseSampler, n_trials: int) -> optuna.Study:
    X, y = load_data(return_X_y=True)
    X, y = X[:600], y[:600]

    def objective(trial: optuna.Trial) -> float:
        svm = SVC(
            C=trial.suggest_float("C", 1e-3, 1e3, log=True),
            gamma=trial.suggest_float("gamma", 1e-5, 10, log=True),
            tol=trial.suggest_float("tol", 1e-4, 1e-1, log=True),
        )
        return cross_val_score(make_pipeline(StandardScaler(), svm), X, y, cv=3).mean()

    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, n_trials=n_trials)
    return study


def best_values(study: optuna.Study) -> str:
    scores = [trial.value for trial in study.trials]
    return " ".join(f"{max(scores[:n]):.3f}" for n in range(1, len(scores) + 1))


optuna.logging.set_verbosity(optuna.logging.WARNING)
past = [
    tune(load_data, optuna.samplers.TPESampler(seed=0), PAST)
    for load_data in (load_breast_cancer, load_iris, load_wine)
]

# Past studies that this process can read: RGPE.
rgpe = tune(load_digits, module.RGPESampler(past, seed=0), TRIALS)

# Studies elsewhere, whose trials stay there: a federation. These sites share a folder.
with tempfile.TemporaryDirectory() as folder:
    federation = fedbo.Federation(
        {
            "C": fedbo.Float(1e-3, 1e3, log=True),
            "gamma": fedbo.Float(1e-5, 10, log=True),
            "tol": fedbo.Float(1e-4, 1e-1, log=True),
        }
    )
    for i, load_data in enumerate((load_breast_cancer, load_iris, load_wine)):
        sampler = module.FederatedSampler(federation, folder, seed=i)
        tune(load_data, sampler, PAST)
        sampler.flush()
    sampler = module.FederatedSampler(federation, folder, seed=9)
    federated = tune(load_digits, sampler, TRIALS)
    sampler.flush()

tpe = tune(load_digits, optuna.samplers.TPESampler(seed=0), TRIALS)
print("best score after each trial")
print("RGPE:     ", best_values(rgpe))
print("federated:", best_values(federated))
print("TPE:      ", best_values(tpe))
