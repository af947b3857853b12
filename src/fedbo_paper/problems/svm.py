"""The landmine objective: how well an SVM finds mines in the validation half of a field.

=======  ========================================================================  =======
symbol   meaning                                                                   shape
=======  ========================================================================  =======
n, m     training places, validation places                                        scalars
y        labels of the training places: 1 for a mine, 0 otherwise                  (n,)
D, E     squared distances from training to training and to validation places      (n, n), (n, m)
C, γ     what is tuned: the penalty, and the inverse width of exp(−γD)             scalars
f        decision values at the validation places                                  (m,)
=======  ========================================================================  =======

The score is the area under the ROC curve (AUC), which depends only on the ranking of the places.
`ByDecision` ranks them by f, so the same parameters always have the same score. `ByProbability`
ranks them by Platt's probabilities, as the paper's code did: a sigmoid of f, whose slope comes from
five random folds of the training half. If the slope has the wrong sign, the AUC becomes 1 − AUC.
That happens at one in six random points, over all fields. Besides, libsvm rounds its probabilities
to about 0.003, which shifts the AUC a little at one in three points.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from fedbo.space.axis import Array
from fedbo_paper.data.samples import Samples

_FOLDS = 5  # as in libsvm


class Field:
    """A landmine field, split into a training and a validation half as in the paper's code.

    ``mines`` and ``rest`` are the validation places with and without a mine.
    """

    def __init__(self, samples: Samples) -> None:
        from sklearn.model_selection import train_test_split

        train, validate, self.y, labels = train_test_split(
            samples.X, samples.y, test_size=0.5, stratify=samples.y, random_state=0
        )
        self.mines, self.rest = np.flatnonzero(labels == 1), np.flatnonzero(labels != 1)
        # cdist squares differences, as libsvm's own kernel does: its solver, with a tolerance of
        # 1e-3, then took as many steps as with its own kernel at all of 1,400 random points. With
        # x² + y² − 2xy, which differs in the last bits, it took other steps at a quarter of them.
        self.D = cdist(train, train, "sqeuclidean")
        self.E = cdist(train, validate, "sqeuclidean")

    def auc(self, scores: Array) -> float:
        """Compute how often a mine scores above a place without one; a tie counts as half."""
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

    def __call__(self, params: dict[str, Any]) -> float:
        import sklearn
        from sklearn.svm import SVC

        C, gamma = float(params["C"]), float(params["gamma"])
        with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
            svm = SVC(kernel="precomputed", C=C).fit(_rbf(self.field.D, gamma), self.field.y)
        K = _rbf(self.field.E[svm.support_], gamma)
        # The intercept does not change the ranking, but it makes ties far from all support vectors.
        return self.field.auc(svm.dual_coef_[0] @ K + svm.intercept_[0])


class ByProbability:
    """The AUC of Platt's probabilities: the paper's noisy score.

    The folds are drawn from ``seed`` and the parameters, so a score does not depend on earlier
    evaluations.

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

    def __call__(self, params: dict[str, Any]) -> float:
        C, gamma = float(params["C"]), float(params["gamma"])
        words = np.array([C, gamma]).view(np.uint32).tolist()
        seed = int(np.random.SeedSequence((self.seed, *words)).generate_state(1)[0])
        probabilities = platt if _libsvm_has_platt() else calibrated
        return self.field.auc(probabilities(self.field, C, gamma, seed))


def platt(field: Field, C: float, gamma: float, seed: int) -> Array:
    """Compute libsvm's probabilities (m,) of a mine at the validation places.

    scikit-learn has deprecated them, and will remove them in version 1.11.
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
    """Compute the same with scikit-learn's Platt scaling, for versions without libsvm's: (m,).

    Folds and sigmoid are of the same kind as libsvm's, and so are the noise and the wrong signs.
    Only the rounding differs.
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
    """Draw random folds whose training parts have both classes: rows to train on, to predict.

    They are not stratified, as libsvm's are not. A fold that by chance has few mines leaves more
    mines to train on, so its decision values are higher. This causes the wrong signs.
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
    """Compute exp(−γD), C-contiguous."""
    K = np.multiply(distances, -gamma, order="C")
    return np.exp(K, out=K)
