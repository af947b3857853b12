"""Two tables for `table.py`, made with scikit-learn: 44 small data sets, two kinds of model.

The tasks are small classification sets that come with scikit-learn or are made by it; the score is
the accuracy on two fifths of a set that the model has not seen. `boosted.npz` has 175
configurations of AdaBoost (depth of the trees, learning rate, how many), `network.npz` 150 random
ones of a small neural network (units, penalty, learning rate, epochs, momentum). A task on which
all configurations are much the same is left out.

    python benchmarks/small.py FOLDER
    python benchmarks/table.py FOLDER/boosted.npz
"""

from __future__ import annotations

import argparse
import os
import warnings
from itertools import product
from pathlib import Path

import numpy as np

from fedbo_paper.contests.screen import Call, refuse, say, work

Array = np.ndarray
Task = tuple[Array, Array]

_MOST = 500  # rows of a set
_LEAST = 0.02  # difference between a task's best and worst score
_TREES = (2, 5, 10, 20, 50, 100, 200)
_CONFIGURATIONS = 150  # of the network


def sets() -> list[Task]:
    """The data sets: inputs (n, d) and labels (n,), in a random order."""
    from sklearn import datasets

    ready = datasets.load_iris, datasets.load_wine, datasets.load_breast_cancer
    found = [load(return_X_y=True) for load in ready]
    X, digit = datasets.load_digits(return_X_y=True)
    for one, other in ((3, 8), (1, 7), (4, 9), (5, 6)):
        rows = (digit == one) | (digit == other)
        found.append((X[rows], (digit[rows] == one).astype(int)))
    X, progress = datasets.load_diabetes(return_X_y=True)
    found.append((X, (progress > np.median(progress)).astype(int)))
    found += [datasets.make_moons(300, noise=0.1 + 0.08 * i, random_state=i) for i in range(6)]
    rng = np.random.default_rng(0)
    for i in range(20):
        columns = int(rng.integers(4, 30))
        informative = max(int(rng.integers(2, columns)), 3)
        rows, classes = int(rng.integers(120, 500)), int(rng.integers(2, 5))
        found.append(
            datasets.make_classification(
                rows,
                columns,
                n_informative=informative,
                n_redundant=0,
                n_classes=classes,
                n_clusters_per_class=1 + i % 2,
                flip_y=float(rng.choice([0, 0.05, 0.2])),
                class_sep=float(rng.uniform(0.4, 1.5)),
                random_state=i,
            )
        )
    for i in range(6):
        rings = datasets.make_gaussian_quantiles(
            n_samples=300, n_features=3 + 2 * i, n_classes=2, random_state=i
        )
        found.append(rings)
    found += [datasets.make_hastie_10_2(300, random_state=i) for i in range(4)]
    return [_shuffled(X, y) for X, y in found]


def _shuffled(X: Array, y: Array) -> Task:
    order = np.random.default_rng(1).permutation(len(y))[:_MOST]
    return X[order], y[order]


def _split(task: Task, seed: int) -> tuple[Array, Array, Array, Array]:
    X, y = task
    order = np.random.default_rng(seed).permutation(len(y))
    seen, unseen = np.split(order, [int(0.6 * len(y))])
    return X[seen], y[seen], X[unseen], y[unseen]


def boosted(k: int, task: Task) -> tuple[int, list[float], list[tuple[float, ...]]]:
    """Scores of AdaBoost on task k, and its configurations."""
    from sklearn.ensemble import AdaBoostClassifier
    from sklearn.tree import DecisionTreeClassifier

    X, y, X_new, y_new = _split(task, k)
    scores, configurations = [], []
    for depth, rate in product((1, 2, 3, 4, 6), (0.05, 0.2, 0.5, 1.0, 2.0)):
        tree = DecisionTreeClassifier(max_depth=depth, random_state=0)
        model = AdaBoostClassifier(
            tree, n_estimators=_TREES[-1], learning_rate=rate, random_state=0
        )
        stages = [np.mean(y_new == said) for said in model.fit(X, y).staged_predict(X_new)]
        for trees in _TREES:
            scores.append(float(stages[min(trees, len(stages)) - 1]))
            configurations.append((depth, np.log(rate), np.log(trees)))
    return k, scores, configurations


def network(k: int, task: Task) -> tuple[int, list[float], list[tuple[float, ...]]]:
    """Scores of a network on task k, and its configurations; 0 where training breaks down."""
    from sklearn.neural_network import MLPClassifier

    X, y, X_new, y_new = _split(task, k)
    centre, scale = X.mean(axis=0), X.std(axis=0) + 1e-9
    X, X_new = (X - centre) / scale, (X_new - centre) / scale
    scores, configurations = [], []
    rng = np.random.default_rng(5)
    for _ in range(_CONFIGURATIONS):
        units, penalty = int(2 ** rng.uniform(1, 6.5)), 10 ** rng.uniform(-6, 1)
        rate, epochs = 10 ** rng.uniform(-4.5, -0.5), int(2 ** rng.uniform(2, 6))
        momentum = rng.uniform(0.1, 0.98)
        model = MLPClassifier(
            (units,),
            alpha=penalty,
            learning_rate_init=rate,
            max_iter=epochs,
            solver="sgd",
            momentum=momentum,
            random_state=0,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that few epochs are not enough, which is the point
            try:
                scores.append(float(model.fit(X, y).score(X_new, y_new)))
            except ValueError:  # weights that are no longer finite
                scores.append(0.0)
        configurations.append(
            (np.log(units), np.log(penalty), np.log(rate), np.log(epochs), momentum)
        )
    return k, scores, configurations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="J")
    options = parser.parse_args()
    if not options.folder.is_dir():
        raise refuse(f"there is no folder {options.folder}; make it first")
    tasks = sets()
    for make in (boosted, network):
        calls: list[Call] = [(make, (k, task), 1) for k, task in enumerate(tasks)]
        made = sorted(work(make.__name__, calls, options.jobs))
        accuracy, config = np.array([scores for _, scores, _ in made]), np.array(made[0][2])
        kept = np.ptp(accuracy, axis=1) > _LEAST
        path = options.folder / f"{make.__name__}.npz"
        np.savez(path, accuracy=accuracy[kept], config=config)
        say(f"{path}: {kept.sum()} tasks, {len(config)} configurations")
