"""Problems of samplers of Optuna: objectives that suggest their parameters one by one.

All are minimised. Instance n of a problem is a task of a table, or a split of a data set that ships
with scikit-learn. Tables are extended to all settings: that of SVMs, a grid, by its nearest
setting, and LCBench by a random forest on the scores of each task.

`OBJECTIVES` have whole numbers, logarithms, categories (None among them) and parameters that only
some trials have. `CONSTRAINED` have constraints: of a trial that breaks none, each is at most 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbo_paper.data import find
from fedbo_paper.harness.intervals import Floats

from .grounds import SVM_TABLE

if TYPE_CHECKING:
    from optuna.trial import Trial

Objective = Callable[["Trial", int], float]  # of a trial and an instance

LCBENCH = "lcbench_35x2000.npz"
TREES = 100  # of a forest that extends a table
KERNELS = ("rbf", "poly", "linear")


# Tables


@cache
def _table(file: str, columns: str) -> tuple[Floats, Floats]:
    with np.load(find(file, [file]), allow_pickle=False) as arrays:
        return np.asarray(arrays["accuracy"], dtype=float), np.asarray(arrays[columns])


def svm_error(task: int, kernel: str, C: float, gamma: float, degree: float) -> float:
    """Return the error of the table's SVM with this kernel that is nearest."""
    accuracy, config = _table(SVM_TABLE, "config_natural")
    rows = np.flatnonzero(config[:, 0] == KERNELS.index(kernel))
    log_C, log_gamma = np.log2(config[rows, 1] / C), np.log10(config[rows, 2] / gamma)
    distance = np.abs(log_C) + np.nan_to_num(np.abs(log_gamma))
    distance += np.nan_to_num(np.abs(config[rows, 3] - degree))
    return 1.0 - float(accuracy[task, rows[distance.argmin()]])


@lru_cache(maxsize=2)
def _forest(task: int) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    accuracy, config = _table(LCBENCH, "config")
    return RandomForestRegressor(TREES, random_state=0).fit(config, accuracy[task])


def lcbench_error(
    task: int,
    batch: int,
    dropout: float,
    units: int,
    layers: int,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
) -> float:
    """Predict the error of a network on a task of LCBench, in per cent."""
    config = (np.log2(batch), dropout, np.log2(units), layers, np.log10(learning_rate))
    config += (momentum, weight_decay)
    return 100.0 - float(_forest(task).predict(np.array([config]))[0])


def _svm(trial: Trial, task: int) -> float:
    kernel = trial.suggest_categorical("kernel", KERNELS)
    C = trial.suggest_float("C", 2**-5, 2**6, log=True)
    gamma = trial.suggest_float("gamma", 1e-4, 1e3, log=True) if kernel == "rbf" else 1.0
    degree = trial.suggest_int("degree", 2, 10) if kernel == "poly" else 2
    return svm_error(task, kernel, C, gamma, degree)


def _lcbench(trial: Trial, task: int) -> float:
    return lcbench_error(
        task,
        batch=trial.suggest_int("batch", 16, 512, log=True),
        dropout=trial.suggest_float("dropout", 0.0, 1.0),
        units=trial.suggest_int("units", 64, 1024, log=True),
        layers=trial.suggest_int("layers", 1, 4),
        learning_rate=trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True),
        momentum=trial.suggest_float("momentum", 0.1, 0.99),
        weight_decay=trial.suggest_float("weight_decay", 1e-5, 1e-1),
    )


# Training on data sets of scikit-learn


@cache
def _split(name: str, seed: int, train: int) -> tuple[Floats, ...]:
    """Return the training and validation sets of an instance, with standardised inputs."""
    from sklearn import datasets
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import scale

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    sets = train_test_split(scale(X), y, train_size=train, random_state=seed)
    return tuple(np.asarray(part) for part in sets)


def _log_loss(model: Any, X: Floats, X_val: Floats, y: Floats, y_val: Floats) -> float:
    from sklearn.metrics import log_loss

    model.fit(X, y)
    return float(log_loss(y_val, model.predict_proba(X_val), labels=model.classes_))


def _squared_error(model: Any, X: Floats, X_val: Floats, y: Floats, y_val: Floats) -> float:
    return float(np.mean((model.fit(X, y).predict(X_val) - y_val) ** 2) / np.var(y_val))


def _trees(trial: Trial, seed: int) -> float:
    """Randomised trees on wine: whole numbers, categories, and None among them."""
    from sklearn.ensemble import ExtraTreesClassifier

    model = ExtraTreesClassifier(
        trial.suggest_int("n_estimators", 5, 40, log=True),
        criterion=trial.suggest_categorical("criterion", ["gini", "entropy"]),
        max_depth=trial.suggest_categorical("max_depth", [None, 2, 4, 8]),
        min_samples_leaf=trial.suggest_int("min_samples_leaf", 1, 20),
        max_features=trial.suggest_categorical("max_features", ["sqrt", "log2", None]),
        ccp_alpha=trial.suggest_float("ccp_alpha", 1e-5, 1e-1, log=True),
        random_state=0,
    )
    return _log_loss(model, *_split("wine", seed, 89))


def _kernel_ridge(trial: Trial, seed: int) -> float:
    """Kernel ridge regression on diabetes; gamma and degree matter for some kernels only."""
    from sklearn.kernel_ridge import KernelRidge

    model = KernelRidge(
        kernel=trial.suggest_categorical("kernel", ["rbf", "laplacian", "poly", "linear"]),
        alpha=trial.suggest_float("alpha", 1e-4, 1e3, log=True),
        gamma=trial.suggest_float("gamma", 1e-4, 1e1, log=True),
        degree=trial.suggest_int("degree", 1, 5),
        coef0=trial.suggest_float("coef0", 0.0, 2.0),
    )
    X, X_val, y, y_val = _split("diabetes", seed, 221)
    return _squared_error(model, X, X_val, y - y.mean(), y_val - y.mean())


def _classifier(trial: Trial, seed: int) -> float:
    """A choice among classifiers of breast cancer, each with parameters of its own."""
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    kind = trial.suggest_categorical("classifier", ["linear", "trees", "neighbours"])
    model: Any
    if kind == "linear":
        C = trial.suggest_float("C", 1e-4, 1e3, log=True)
        model = LogisticRegression(C=C, tol=1e-3, max_iter=1000)
    elif kind == "trees":
        depth = trial.suggest_int("max_depth", 2, 12, log=True)
        leaf = trial.suggest_int("min_samples_leaf", 1, 10)
        model = ExtraTreesClassifier(20, max_depth=depth, min_samples_leaf=leaf, random_state=0)
    else:
        neighbours = trial.suggest_int("n_neighbors", 1, 60, log=True)
        weights = trial.suggest_categorical("weights", ["uniform", "distance"])
        model = KNeighborsClassifier(neighbours, weights=weights)
    return _log_loss(model, *_split("breast_cancer", seed, 150))


def shard_error(
    task: int,
    learning_rate: float,
    max_leaf_nodes: int,
    n_estimators: int,
    min_samples_leaf: int,
    subsample: float,
) -> float:
    """Train gradient boosting on a tenth of the digits, to tell whether they are even, or above 4.

    The task is the number of the shard or, for the second question, 10 more.
    """
    from sklearn.ensemble import GradientBoostingClassifier

    X, X_val, digit, digit_val = _shard(task % 10)
    is_high = task >= 10
    y, y_val = (part > 4 if is_high else part % 2 == 0 for part in (digit, digit_val))
    model = GradientBoostingClassifier(
        learning_rate=learning_rate,
        max_leaf_nodes=max_leaf_nodes,
        max_depth=None,
        n_estimators=n_estimators,
        min_samples_leaf=min_samples_leaf,
        subsample=subsample,
        max_features="sqrt",
        random_state=0,
    )
    return _log_loss(model, X, X_val, y, y_val)


@cache
def _shard(number: int) -> tuple[Floats, ...]:
    from sklearn.datasets import load_digits

    X, digit = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(X))[number::10]
    return X[rows[::2]], X[rows[1::2]], digit[rows[::2]], digit[rows[1::2]]


def _boosting_model(trial: Trial) -> Any:
    from sklearn.ensemble import GradientBoostingRegressor

    return GradientBoostingRegressor(
        n_estimators=trial.suggest_int("n_estimators", 5, 60, log=True),
        learning_rate=trial.suggest_float("learning_rate", 0.01, 1.0, log=True),
        max_leaf_nodes=trial.suggest_int("max_leaf_nodes", 2, 32, log=True),
        subsample=trial.suggest_float("subsample", 0.3, 1.0),
        max_features=trial.suggest_categorical("max_features", ["sqrt", None]),
        min_samples_leaf=trial.suggest_int("min_samples_leaf", 1, 50, log=True),
        random_state=0,
    )


def _boosting(trial: Trial, seed: int) -> float:
    """Gradient boosting on diabetes."""
    return _squared_error(_boosting_model(trial), *_split("diabetes", seed, 221))


def _weights(trial: Trial, seed: int) -> float:
    """The weights of all 30 features of breast cancer in a classifier by distances."""
    X, X_val, y, y_val = _split("breast_cancer", seed, 150)
    names = [f"w{d:02}" for d in range(X.shape[1])]
    w = np.array([trial.suggest_float(name, 1e-2, 1.0, log=True) for name in names])
    A, B = X * w, X_val * w
    distance2 = (A**2).sum(axis=1) + (B**2).sum(axis=1)[:, None] - 2.0 * B @ A.T
    nearness = np.exp(distance2.min(axis=1, keepdims=True) - distance2)
    p = np.clip(nearness @ y / nearness.sum(axis=1), 1e-3, 1.0 - 1e-3)
    return float(-np.mean(y_val * np.log(p) + (1 - y_val) * np.log1p(-p)))


#: The problems of samplers that are alone, by name, with their numbers of parameters.
OBJECTIVES: dict[str, Objective] = {
    "SVM table, D = 2 to 3": _svm,
    "LCBench, D = 7": _lcbench,
    "trees, D = 6": _trees,
    "kernel ridge, D = 5": _kernel_ridge,
    "three classifiers, D = 2 to 3": _classifier,
    "gradient boosting, D = 6": _boosting,
    "weights, D = 30": _weights,
}


# Problems with constraints


def _disconnected(trial: Trial, seed: int) -> float:
    """A linear objective whose feasible region has two parts (Gramacy et al., 2016)."""
    x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
    waves = 0.5 * np.sin(2.0 * np.pi * (x**2 - 2.0 * y))
    trial.set_constraint("inner", 1.5 - x - 2.0 * y - waves)
    trial.set_constraint("outer", x**2 + y**2 - 1.5)
    return x + y


#: Coefficients of the function Hartmann 6.
ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8],
     [17, 8, 0.05, 10, 0.1, 14]]
)  # fmt: skip
P = 1e-4 * np.array(
    [[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
     [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]]
)  # fmt: skip


def _hartmann(trial: Trial, seed: int) -> float:
    """Hartmann 6 inside a ball that excludes its optimum."""
    x = np.array([trial.suggest_float(f"x{d}", 0, 1) for d in range(6)])
    trial.set_constraint("ball", float(np.linalg.norm(x) - 0.8))
    return float(-ALPHA @ np.exp(-(A * (x - P) ** 2).sum(axis=1)))


def _small_boosting(trial: Trial, seed: int) -> float:
    """Gradient boosting on diabetes with at most 100 leaves in all."""
    model = _boosting_model(trial)
    error = _squared_error(model, *_split("diabetes", seed, 221))
    leaves = sum(tree.get_n_leaves() for tree in model.estimators_[:, 0])
    trial.set_constraint("leaves", leaves / 100.0 - 1.0)
    return error


#: The problems with constraints.
CONSTRAINED: dict[str, Objective] = {
    "two regions, D = 2": _disconnected,
    "Hartmann in a ball, D = 6": _hartmann,
    "boosting with few leaves, D = 6": _small_boosting,
}
