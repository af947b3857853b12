"""Logistic regression by SGD against its own loss, scikit-learn's solutions and a simple loop."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from fedbo_paper.data import Samples
from fedbo_paper.problems.logistic import Regression, Split, halves


def made(n: int, d: int, classes: int, seed: int = 0) -> Samples:
    """Draw samples around one centre for each class; labels are 3, 5, 7, …"""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % classes)
    centres = rng.normal(size=(classes, d))
    return Samples(X=3 * rng.normal(size=d) + rng.normal(size=(n, d)) + centres[y], y=2 * y + 3)


def plain(split: Split, epochs: int, size: int, l2: float, rate: float) -> float:
    """Compute the score with a simple loop."""
    train, validate = split
    mean, deviation = train.X.mean(axis=0), train.X.std(axis=0)
    X, X_validate = (train.X - mean) / deviation, (validate.X - mean) / deviation
    classes = np.unique(train.y)
    W, bias = np.zeros((X.shape[1], len(classes))), np.zeros(len(classes))
    rng = np.random.default_rng(0)
    for _ in range(epochs):
        order = rng.permutation(len(X))
        for start in range(0, len(X), size):
            rows = order[start : start + size]
            P = np.exp(log_softmax(X[rows] @ W + bias, axis=1))
            R = (P - (train.y[rows][:, None] == classes)) / len(rows)
            W, bias = W - rate * (X[rows].T @ R + l2 * W), bias - rate * R.sum(axis=0)
    told = classes[np.argmax(X_validate @ W + bias, axis=1)]
    return float(np.mean(told != validate.y))


def score(regression: Regression, size: int, l2: float, rate: float) -> float:
    return regression({"batch_size": size, "l2": l2, "learning_rate": rate})


# ---------------------------------------------------------------- training


@pytest.mark.parametrize("classes", [2, 4])
def test_many_small_steps_lead_to_scikit_learn_s_solution(classes: int) -> None:
    split, l2 = halves(made(160, 3, classes)), 0.02
    task = Regression(split, epochs=4000)
    V = task.train(batch_size=80, l2=l2, learning_rate=0.5)
    best = LogisticRegression(C=1 / (80 * l2), tol=1e-10, max_iter=10_000)
    best.fit(task.X[:, :-1], split.train.y)
    bias = V[:, -1] - (V[:, -1].mean() if classes > 2 else 0.0)  # softmax ignores the mean
    intercept = best.intercept_ - (best.intercept_.mean() if classes > 2 else 0.0)
    np.testing.assert_allclose(V[:, :-1], best.coef_, atol=1e-5)
    np.testing.assert_allclose(bias, intercept, atol=1e-5)


@pytest.mark.parametrize(("n", "d", "classes"), [(120, 4, 3), (50, 90, 4)])
@pytest.mark.parametrize("size", [1, 7, 20, 1000])
def test_scores_are_those_of_a_plain_loop(n: int, d: int, classes: int, size: int) -> None:
    """With a smaller last batch, and with fewer or more features than samples."""
    split = halves(made(n, d, classes))
    task = Regression(split, epochs=5)
    for l2, rate in ((1e-6, 0.1), (0.3, 0.03), (1.0, 0.01)):
        assert score(task, size, l2, rate) == plain(split, 5, size, l2, rate)


# ---------------------------------------------------------------- samples


def test_halves_have_equal_shares_of_every_class() -> None:
    samples = made(101, 3, 4)
    train, validate = halves(samples)
    assert (len(train), len(validate)) == (51, 50)
    difference = np.bincount(train.y, minlength=10) - np.bincount(validate.y, minlength=10)
    assert np.abs(difference).max() <= 1
    np.testing.assert_array_equal(halves(samples).train.X, train.X)
