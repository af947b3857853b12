"""Activity recognition: the validation error of a logistic regression, trained by mini-batch SGD.

======  ==========================================================================  =========
symbol  meaning                                                                     shape
======  ==========================================================================  =========
n, d    training samples, features of a sample                                      scalars
k       outputs: one for each class (softmax), or one for two classes (sigmoid)     scalar
X       standardised training features, and a last column of ones                   (n, d + 1)
Y       target outputs: 1 for the sample's class, 0 for the others                  (k, n)
V       weights W (k, d), and the bias in the last column                           (k, d + 1)
G       gradient of the loss by the outputs of a batch, times the learning rate     (k, b)
Z, P    outputs of a batch, and their probabilities                                 (k, b)
======  ==========================================================================  =========

For a batch B of b samples, SGD descends on

    (1/b) Σ_B cross-entropy + (l2/2) ‖W‖²

from W = 0, with a constant learning rate and without momentum. The bias is not penalised. (So l2
does not depend on the batch size. scikit-learn's MLPClassifier divides its alpha by the batch size,
and its LogisticRegression has C = 1/(n · l2).) Each epoch visits all samples once, in a new order;
the last batch may be smaller.

The orders depend on n and ``shuffle`` only. So the same parameters always have the same score, and
close rates and penalties have close scores. Only the batch size, which changes every batch, moves
the score as another order would.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fedbo.space.axis import Array
from fedbo_paper.data.samples import Samples

#: The paper does not give this number. On HAR, over people who are not targets, with a medium rate
#: (0.05) and a small penalty (0.03), the error is 0.039 after 10 epochs, 0.026 after 20 and 0.021
#: after 50. Over the box, after 20 epochs, it is 0.069 on average and 0.015 at the best of 200
#: random points. So with 20 epochs good parameters train well, and there is something to tune.
EPOCHS = 20


class Split(NamedTuple):
    """Training samples and validation samples."""

    train: Samples
    validate: Samples


def halves(samples: Samples) -> Split:
    """Split the samples into random halves with equal shares of each class.

    >>> samples = Samples(X=np.arange(8.0)[:, None], y=np.array([1, 2] * 4))
    >>> [np.bincount(part.y).tolist() for part in halves(samples)]
    [[0, 2, 2], [0, 2, 2]]
    """
    return _split(samples, len(samples) // 2, samples.y)


def hold_out(samples: Samples, n: int) -> Split:
    """Split off n random samples for validation.

    >>> samples = Samples(X=np.arange(8.0)[:, None], y=np.array([1, 2] * 4))
    >>> [len(part) for part in hold_out(samples, 3)]
    [5, 3]
    """
    return _split(samples, n, None)


def _split(samples: Samples, n: int, strata: NDArray[np.int64] | None) -> Split:
    from sklearn.model_selection import train_test_split

    X, X_validate, y, y_validate = train_test_split(
        samples.X, samples.y, test_size=n, stratify=strata, random_state=0
    )
    return Split(Samples(X=X, y=y), Samples(X=X_validate, y=y_validate))


class Regression:
    """The fraction of validation samples that are misclassified, from 0 to 1.

    Args:
        split: Training and validation samples.
        epochs: Number of epochs.
        shuffle: Seed of the orders of samples.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> score = Regression(halves(Samples(X=X, y=(X.sum(axis=1) > 0).astype(np.int64))))
    >>> score({"batch_size": 20, "l2": 0.01, "learning_rate": 0.1}) < 0.1
    True
    """

    truth = None
    optimum = None

    def __init__(self, split: Split, epochs: int = EPOCHS, shuffle: int = 0) -> None:
        train, validate = split
        classes = np.unique(np.concatenate([train.y, validate.y]))
        self.Y = _wanted(np.searchsorted(classes, train.y), len(classes))
        self.validate = np.searchsorted(classes, validate.y)
        X, X_validate = _standardised(train.X, validate.X)
        if X.shape[1] > len(X):
            X, X_validate = _in_span(X, X_validate)
        self.X, self.X_validate = _with_ones(X), _with_ones(X_validate)
        self.epochs = epochs
        self.shuffle = shuffle

    def __call__(self, params: dict[str, Any]) -> float:
        size, l2, rate = params["batch_size"], params["l2"], params["learning_rate"]
        Z = self.train(int(size), float(l2), float(rate)) @ self.X_validate.T
        predicted = Z.argmax(axis=0) if len(Z) > 1 else Z[0] > 0
        return float(np.mean(predicted != self.validate))

    def train(self, batch_size: int, l2: float, learning_rate: float) -> Array:
        """Train for all epochs and return V."""
        link = _softmax if len(self.Y) > 1 else _sigmoid
        V = np.zeros((len(self.Y), self.X.shape[1]))
        W = V[:, :-1]
        for order in self._orders:
            X, Y = self.X[order], self.Y[:, order]
            for start in range(0, len(X), batch_size):
                batch = X[start : start + batch_size]
                G = link(V @ batch.T)
                G -= Y[:, start : start + batch_size]
                G *= learning_rate / len(batch)
                W *= 1.0 - learning_rate * l2
                V -= G @ batch
        return V

    @cached_property
    def _orders(self) -> list[NDArray[np.int64]]:
        rng = np.random.default_rng(self.shuffle)
        return [rng.permutation(len(self.X)) for _ in range(self.epochs)]


def _wanted(y: NDArray[np.intp], classes: int) -> Array:
    """Compute Y (k, n) from class numbers y (n,)."""
    outputs = np.arange(classes) if classes > 2 else np.array([1])
    Y: Array = np.equal(y, outputs[:, None]).astype(np.float64)
    return Y


def _standardised(X: Array, X_validate: Array) -> tuple[Array, Array]:
    """Standardise both with the mean and deviation of X; a constant feature becomes 0."""
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    constant = deviation <= 1e-12 * np.abs(mean)  # rounding leaves a deviation of about 1e-16
    scale = np.where(constant, np.inf, deviation)
    return (X - mean) / scale, (X_validate - mean) / scale


def _in_span(X: Array, X_validate: Array) -> tuple[Array, Array]:
    """Express both in an orthonormal basis of the span of X's rows, where d > n.

    W starts at 0, and every step adds rows of X to it, so W never leaves their span. SGD takes the
    same steps in n coordinates of the span, and each step is cheaper.
    """
    basis = np.linalg.qr(X.T)[0]
    return X @ basis, X_validate @ basis


def _with_ones(X: Array) -> Array:
    return np.hstack([X, np.ones((len(X), 1))])


def _softmax(Z: Array) -> Array:
    """Compute P from Z (k, b) in place."""
    Z -= Z.max(axis=0)
    np.exp(Z, out=Z)
    Z /= Z.sum(axis=0)
    return Z


def _sigmoid(Z: Array) -> Array:
    """Compute P from Z (1, b) in place."""
    expit(Z, out=Z)
    return Z
