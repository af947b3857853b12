"""Make two tables of scores for table.py with scikit-learn: 44 small data sets, two models.

The tasks are small classification sets that scikit-learn ships or generates. The score is the
accuracy on the two fifths of a set that the model was not trained on. `boosted.npz` has 175
configurations of AdaBoost (tree depth, learning rate, number of trees). `network.npz` has 150
random configurations of a small neural network (units, penalty, learning rate, epochs, momentum).
Tasks on which all configurations score much the same are left out.

    python benchmarks/small.py FOLDER
    python benchmarks/table.py FOLDER/boosted.npz
"""

from __future__ import annotations

import warnings
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbo_paper.contests import options
from fedbo_paper.contests.screen import refuse, say, work

Task = tuple[NDArray[Any], NDArray[Any]]  # inputs (n, d) and labels (n,)
Scored = tuple[list[float], list[list[float]]]  # a score for each configuration

_MOST = 500  # rows of a set
_LEAST = 0.02  # difference between a task's best and worst score
_TREES = (2, 5, 10, 20, 50, 100, 200)
_CONFIGURATIONS = 150  # of the network


def sets() -> list[Task]:
    """Load or generate the data sets, each with its rows in random order."""
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


def _shuffled(X: NDArray[Any], y: NDArray[Any]) -> Task:
    order = np.random.default_rng(1).permutation(len(y))[:_MOST]
    return X[order], y[order]


def _split(task: Task, seed: int) -> tuple[NDArray[Any], ...]:
    X, y = task
    order = np.random.default_rng(seed).permutation(len(y))
    seen, unseen = np.split(order, [int(0.6 * len(y))])
    return X[seen], y[seen], X[unseen], y[unseen]


def boosted(k: int, task: Task) -> Scored:
    """Score all configurations of AdaBoost on task k."""
    from sklearn.ensemble import AdaBoostClassifier
    from sklearn.tree import DecisionTreeClassifier

    X, y, X_new, y_new = _split(task, k)
    scores: list[float] = []
    configurations: list[list[float]] = []
    for depth, rate in product((1, 2, 3, 4, 6), (0.05, 0.2, 0.5, 1.0, 2.0)):
        tree = DecisionTreeClassifier(max_depth=depth, random_state=0)
        model = AdaBoostClassifier(
            tree, n_estimators=_TREES[-1], learning_rate=rate, random_state=0
        )
        stages = [np.mean(y_new == said) for said in model.fit(X, y).staged_predict(X_new)]
        for trees in _TREES:
            scores.append(float(stages[min(trees, len(stages)) - 1]))
            configurations.append([depth, np.log(rate), np.log(trees)])
    return scores, configurations


def network(k: int, task: Task) -> Scored:
    """Score all configurations of a network on task k; the score is 0 if training fails."""
    from sklearn.neural_network import MLPClassifier

    X, y, X_new, y_new = _split(task, k)
    centre, scale = X.mean(axis=0), X.std(axis=0) + 1e-9
    X, X_new = (X - centre) / scale, (X_new - centre) / scale
    scores: list[float] = []
    configurations: list[list[float]] = []
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
            warnings.simplefilter(
                "ignore"
            )  # few epochs often do not converge: they are to score badly
            try:
                scores.append(float(model.fit(X, y).score(X_new, y_new)))
            except ValueError:  # the weights became infinite
                scores.append(0.0)
        configurations.append([*np.log([units, penalty, rate, epochs]).tolist(), momentum])
    return scores, configurations


def main() -> None:
    """Run the command."""
    parser = options.parser(__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    options.add_jobs(parser)
    given = parser.parse_args()
    if not given.folder.is_dir():
        raise refuse(f"there is no folder {given.folder}; make it first")
    tasks = sets()
    for make in (boosted, network):
        calls = [partial(make, k, task) for k, task in enumerate(tasks)]
        made = work(make.__name__, calls, given.jobs)
        accuracy, config = np.array([scores for scores, _ in made]), np.array(made[0][1])
        kept = np.ptp(accuracy, axis=1) > _LEAST
        path = given.folder / f"{make.__name__}.npz"
        np.savez(path, accuracy=accuracy[kept], config=config)
        say(f"{path}: {kept.sum()} tasks, {len(config)} configurations")
