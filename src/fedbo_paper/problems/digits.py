"""Handwritten digits, dealt to many agents. Each agent tunes an SVM to its own digits.

scikit-learn's 1,797 images are dealt unevenly: the largest agent has eight times as many as the
smallest, and each agent has some digits more often than others. An agent trains on one half of its
images and validates on the other half. Five parameters are tuned: two of the SVM, and three that
prepare the images. They interact, because preparing images changes the distances between them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbo.space import Float, Space

#: What an agent tunes: the SVM's penalty C and the inverse width gamma of its kernel, in the ranges
#: of LIBSVM's practical guide, and how images are prepared. Grey values below the cutoff become 0,
#: and the others are stretched to the range 0 to 1. Then they are raised to the power of the
#: contrast, and a Gaussian filter follows.
SPACE = Space(
    {
        "C": Float(2**-5, 2**15, log=True),
        "gamma": Float(2**-15, 2**3, log=True),
        "contrast": Float(0.25, 4.0, log=True),
        "cutoff": Float(0.0, 0.9),
        "blur": Float(0.0, 2.0),
    }
)

IMAGES = 1797
MOST = 24  # agents; with 24 agents, the smallest has 24 images
_CLASSES = 10
_SPREAD = 8.0  # images of the largest agent / images of the smallest agent
_FEWEST_CLASSES = 3
_MIX = 0.7  # Dirichlet parameter of an agent's preferences: below 1, a few digits dominate


class Images:
    """One agent's images. Call it with params for the validation accuracy of an SVM.

    The same params always have the same score, which is computed once.

    Args:
        pixels: Grey values (n, 64) from 0 to 1.
        digits: The digit (n,) that each image shows.

    >>> first, *others = deal(10, seed=0)
    >>> params = {"C": 10.0, "gamma": 0.03, "contrast": 1.0, "cutoff": 0.1, "blur": 0.3}
    >>> 0.5 < first(params) <= 1.0
    True
    """

    def __init__(self, pixels: NDArray[np.float64], digits: NDArray[np.int64]) -> None:
        self.pixels = pixels
        self.digits = digits
        order = np.argsort(digits, kind="stable")
        self.halves = order[::2], order[1::2]  # to train and to validate; every digit is in both
        self._scores: dict[frozenset[tuple[str, Any]], float] = {}

    def __len__(self) -> int:
        return len(self.digits)

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of images of each digit: (10,)."""
        return np.bincount(self.digits, minlength=_CLASSES)

    def __call__(self, params: dict[str, Any]) -> float:
        key = frozenset(params.items())
        if key not in self._scores:
            self._scores[key] = self._accuracy(**params)
        return self._scores[key]

    def _accuracy(
        self, C: float, gamma: float, contrast: float, cutoff: float, blur: float
    ) -> float:
        from sklearn.svm import SVC

        X = prepare(self.pixels, contrast, cutoff, blur)
        train, validate = self.halves
        svm = SVC(kernel="rbf", C=C, gamma=gamma).fit(X[train], self.digits[train])
        return float(np.mean(svm.predict(X[validate]) == self.digits[validate]))


def prepare(
    pixels: NDArray[np.float64], contrast: float, cutoff: float, blur: float
) -> NDArray[np.float64]:
    """Prepare images for an SVM, in the order that is described at `SPACE`.

    Args:
        pixels: Grey values (n, 64) from 0 to 1.
        contrast: Power of the grey values, above 0; above 1 makes grey darker.
        cutoff: Grey value, below 1, up to which a pixel is empty.
        blur: Standard deviation of the Gaussian filter in pixels.

    >>> prepare(np.full((1, 64), 0.6), contrast=2.0, cutoff=0.2, blur=1.0)[0, :3].round(6)
    array([0.25, 0.25, 0.25])
    """
    from scipy.ndimage import gaussian_filter

    ink = (np.maximum(pixels - cutoff, 0.0) / (1.0 - cutoff)) ** contrast
    smooth: NDArray[np.float64] = gaussian_filter(ink.reshape(-1, 8, 8), (0.0, blur, blur))
    return smooth.reshape(-1, 64)


def deal(agents: int, seed: int) -> list[Images]:
    """Deal all images to a number of agents.

    Args:
        agents: Number of agents, 1 to 24.
        seed: Seed of the deal.

    >>> hands = deal(10, seed=0)
    >>> sum(map(len, hands)), min(map(len, hands)), max(map(len, hands))
    (1797, 51, 412)
    """
    if not 1 <= agents <= MOST:
        raise ValueError(f"agents is {agents}, expected 1 to {MOST}: there are {IMAGES} images")
    X, digits = _images()
    rng = np.random.default_rng(seed)
    sizes = rng.permutation(_sizes(agents))
    owner = _owners(sizes, digits, rng)
    return [Images(X[owner == n], digits[owner == n]) for n in range(agents)]


@lru_cache(maxsize=1)
def _images() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Load grey values (1797, 64) from 0 to 1, and digits (1797,)."""
    from sklearn.datasets import load_digits

    X, digits = load_digits(return_X_y=True)
    return X / 16.0, digits


def _sizes(agents: int) -> NDArray[np.int64]:
    """Compute the number of images of each agent: a geometric sequence that adds up to all."""
    shares = np.geomspace(1.0, _SPREAD, agents)
    edges = np.rint(np.cumsum(shares) / shares.sum() * IMAGES).astype(np.int64)
    sizes: NDArray[np.int64] = np.diff(edges, prepend=0)
    return sizes


def _owners(
    sizes: NDArray[np.int64], digits: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw the agent that owns each image: (1797,)."""
    while True:
        owner = np.full(len(digits), -1)
        for n, size in enumerate(sizes):
            owner[_hand(size, np.flatnonzero(owner < 0), digits, rng)] = n
        if all(len(np.unique(digits[owner == n])) >= _FEWEST_CLASSES for n in range(len(sizes))):
            return owner


def _hand(
    size: int,
    left: NDArray[np.int64],
    digits: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw ``size`` of the images that are left, with random preferences for digits."""
    taste = rng.dirichlet(np.full(_CLASSES, _MIX))
    # Efraimidis and Spirakis: the largest keys are a weighted draw without replacement
    keys = np.log(rng.random(len(left))) / np.maximum(taste[digits[left]], 1e-12)
    return left[np.argsort(-keys)[:size]]
