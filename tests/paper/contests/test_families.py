"""Families of synthetic tasks have the properties that their names promise."""

from __future__ import annotations

import numpy as np
import pytest

from fedbo_paper.contests import families


@pytest.mark.parametrize("D", [1, 8])
@pytest.mark.parametrize("family", families.FAMILIES)
def test_the_same_seed_makes_the_same_table(family: str, D: int) -> None:
    X, Y = families.make(family, D, seed=3, tasks=4, points=60)
    again = families.make(family, D, seed=3, tasks=4, points=60)
    other = families.make(family, D, seed=4, tasks=4, points=60)
    assert X.shape == (60, D) and Y.shape == (4, 60)
    assert np.isfinite(Y).all() and X.min() >= 0 and X.max() <= 1
    assert len(np.unique(X, axis=0)) == 60
    np.testing.assert_array_equal(Y, again[1])
    assert not np.allclose(Y, other[1])


def correlations(family: str) -> np.ndarray:
    pairs = [
        np.corrcoef(families.make(family, 2, seed, tasks=8)[1])[np.triu_indices(8, 1)]
        for seed in range(4)
    ]
    return np.concatenate(pairs)


@pytest.mark.slow
def test_similar_tasks_agree_and_unrelated_ones_do_not() -> None:
    assert np.median(correlations("similar")) > 0.6
    assert abs(np.median(correlations("unrelated"))) < 0.3


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(ValueError, match="'same', expected one of similar"):
        families.make("same", 2)
