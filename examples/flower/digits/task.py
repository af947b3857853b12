"""What a site does: train an SVM on its own digits, and measure its accuracy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

import fedbo

SITES = 10
FEDERATION = fedbo.Federation.load(Path(__file__).with_name("federation.toml"))


def accuracy(site: int) -> Callable[[dict[str, float]], float]:
    """Return the objective of a site: the accuracy of an SVM on digits that it has not seen.

    Args:
        site: The number of the site, from 0; each has its own tenth of the digits.
    """
    X, y = load_digits(return_X_y=True)
    mine = slice(site % SITES, None, SITES)
    split = train_test_split(X[mine] / 16.0, y[mine], test_size=0.5, random_state=site)
    X_train, X_test, y_train, y_test = split

    def score(params: dict[str, float]) -> float:
        model = SVC(C=params["C"], gamma=params["gamma"]).fit(X_train, y_train)
        return float(model.score(X_test, y_test))

    return score
