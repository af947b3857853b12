"""The landmine objective: how well an SVM finds mines in the half of a field that it has not seen.

=======  ========================================================================  =======
symbol   meaning                                                                   shape
=======  ========================================================================  =======
n, m     places to train on, places to validate on                                 scalars
y        labels of the former: 1 where there is a mine, 0 elsewhere                (n,)
D, E     squared distances from the former to the former, and to the latter        (n, n), (n, m)
C, γ     what is tuned: the penalty, and the inverse width of exp(−γD)             scalars
f        decision values at the places to validate on                              (m,)
=======  ========================================================================  =======

The score is the area under the ROC curve (AUC), which needs no more than an order of the places.
`ByDecision` orders them by f: the same parameters always have the same score. `ByProbability`
orders them by Platt's probabilities, as the paper's code did: a sigmoid of f, whose slope comes
from five random folds of the training half. Where the slope comes out with the wrong sign, the
AUC comes out as 1 minus the other: at a sixth of random points, over all fields. Besides, libsvm
rounds its probabilities to about 0.003, which shifts the AUC a little at a third of them.
"""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from fedbo.space.axis import Array, Value
from fedbo_paper.data.samples import Samples

_FOLDS = 5  # as many as libsvm has


class Field:
    """A landmine field in two halves, split as in the paper's code.

    ``y`` are the labels to train on; ``mines`` and ``rest`` tell the places to validate on apart.
    """

    def __init__(self, samples: Samples) -> None:
        from sklearn.model_selection import train_test_split

        train, validate, self.y, labels = train_test_split(
            samples.X, samples.y, test_size=0.5, stratify=samples.y, random_state=0
        )
        self.mines, self.rest = np.flatnonzero(labels == 1), np.flatnonzero(labels != 1)
        # Differences first, then squares: libsvm's solver, which stops at a tolerance of 1e-3, then
        # took as many steps as on its own kernel at all of 1,400 random points. With squares less
        # products, which differ in the last bits, it took other steps at a quarter of them.
        self.D = cdist(train, train, "sqeuclidean")
        self.E = cdist(train, validate, "sqeuclidean")

    def auc(self, scores: Array) -> float:
        """How often a mine is scored above a place without one; a tie is half of it."""
        rest = np.sort(scores[self.rest])
        below = rest.searchsorted(scores[self.mines], "left")
        not_above = rest.searchsorted(scores[self.mines], "right")
        return float(below.sum() + not_above.sum()) / (2 * len(self.mines) * len(rest))


class ByDecision:
    """The AUC of decision values: ``score({"C": 1.0, "gamma": 0.5})``.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> field = Field(Samples(X=X, y=(np.linalg.norm(X, axis=1) < 1).astype(np.int64)))
    >>> ByDecision(field)({"C": 1.0, "gamma": 0.5}) > 0.9
    True
    """

    truth = None
    optimum = None

    def __init__(self, field: Field) -> None:
        self.field = field

    def __call__(self, params: dict[str, Value]) -> float:
        import sklearn
        from sklearn.svm import SVC

        C, gamma = float(params["C"]), float(params["gamma"])
        with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
            svm = SVC(kernel="precomputed", C=C).fit(_rbf(self.field.D, gamma), self.field.y)
        K = _rbf(self.field.E[svm.support_], gamma)
        # The intercept shifts all alike, but far from every support vector it makes ties.
        return self.field.auc(svm.dual_coef_[0] @ K + svm.intercept_[0])


class ByProbability:
    """The AUC of Platt's probabilities: the paper's score, which is noisy.

    New folds are drawn for all parameters, from ``seed`` and the parameters themselves, so that a
    score does not depend on what was scored before.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> field = Field(Samples(X=X, y=(np.linalg.norm(X, axis=1) < 1).astype(np.int64)))
    >>> params = {"C": 1.0, "gamma": 0.5}
    >>> ByProbability(field, seed=3)(params) == ByProbability(field, seed=3)(params)
    True
    """

    truth = None
    optimum = None

    def __init__(self, field: Field, seed: int) -> None:
        self.field = field
        self.seed = seed

    def __call__(self, params: dict[str, Value]) -> float:
        C, gamma = float(params["C"]), float(params["gamma"])
        words = np.array([C, gamma]).view(np.uint32).tolist()
        seed = int(np.random.SeedSequence((self.seed, *words)).generate_state(1)[0])
        probabilities = platt if _libsvm_has_platt() else calibrated
        return self.field.auc(probabilities(self.field, C, gamma, seed))


def platt(field: Field, C: float, gamma: float, seed: int) -> Array:
    """Probabilities of a mine at the places to validate on, as libsvm makes them: (m,).

    scikit-learn has deprecated them, and will have dropped them in 1.11.
    """
    import sklearn
    from sklearn.svm import SVC

    svm = SVC(kernel="precomputed", C=C, probability=True, random_state=seed)
    with (
        sklearn.config_context(assume_finite=True, skip_parameter_validation=True),
        warnings.catch_warnings(action="ignore", category=FutureWarning),
    ):
        svm.fit(_rbf(field.D, gamma), field.y)
        p: Array = svm.predict_proba(_rbf(field.E.T, gamma))[:, 1]
    return p


def calibrated(field: Field, C: float, gamma: float, seed: int) -> Array:
    """The same by scikit-learn's own Platt scaling, for versions without libsvm's: (m,).

    Folds and sigmoid are libsvm's in kind, and so are the noise and the wrong signs; only the
    rounding is not.
    """
    import sklearn
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.svm import SVC

    svm = CalibratedClassifierCV(
        SVC(kernel="precomputed", C=C), ensemble=False, cv=_folds(field.y, seed)
    )
    with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
        svm.fit(_rbf(field.D, gamma), field.y)
        p: Array = svm.predict_proba(_rbf(field.E.T, gamma))[:, 1]
    return p


def _folds(y: NDArray[np.int64], seed: int) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Random folds, to train on and to predict; each has both classes to train on.

    They are not stratified, as libsvm's are not: a fold that by chance has fewer mines leaves more
    to train on, and its decision values are higher. This is where the wrong signs come from.
    """
    rng = np.random.default_rng(seed)
    while True:
        parts = np.array_split(rng.permutation(len(y)), _FOLDS)
        folds = [(np.setdiff1d(np.arange(len(y)), part), np.sort(part)) for part in parts]
        if all(len(np.unique(y[train])) == 2 for train, _ in folds):
            return folds


@cache
def _libsvm_has_platt() -> bool:
    from sklearn.svm import SVC

    return "probability" in SVC().get_params()


def _rbf(distances: Array, gamma: float) -> Array:
    """exp(−γD), C-contiguous."""
    K = np.multiply(distances, -gamma, order="C")
    return np.exp(K, out=K)
