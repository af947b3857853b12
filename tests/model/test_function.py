"""Arrays in both precisions."""

from __future__ import annotations

import numpy as np
import pytest

from fedbo.model.kernel import Twins


@pytest.mark.parametrize("given", [np.float32, np.float64])
@pytest.mark.parametrize("asked", [np.float32, np.float64])
def test_arrays_have_the_precision_of_the_points(given: type, asked: type) -> None:
    arrays = [np.arange(3, dtype=given) / 7, np.ones((2, 2), dtype=given)]
    twins = Twins(*arrays)
    found = twins.like(np.empty((1, 1), dtype=asked))
    assert [array.dtype for array in found] == [np.dtype(asked)] * 2
    for array, original in zip(found, arrays, strict=True):
        np.testing.assert_allclose(array, original, rtol=1e-7)
    assert twins.like(np.empty((5, 2), dtype=asked)) is found


def test_no_copy_is_made_where_none_is_needed() -> None:
    array = np.ones(3, dtype=np.float32)
    assert Twins(array).single[0] is array
