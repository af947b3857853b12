"""The basis against a singular value decomposition, and the same on every machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import svd

from fedbo import Categorical, Federation, Float, Int, Space
from fedbo.federation.shared import Shared
from fedbo.message.signed import MOST_COORDINATES as MOST
from fedbo.model.features import POINTS, Basis, Features


def cube(D: int) -> dict[str, Float]:
    return {f"x{i}": Float(0, 1) for i in range(D)}


MIXED = {
    "rate": Float(1e-4, 1, log=True),
    "layers": Int(1, 5),
    "bias": Categorical([True, False]),
    "kind": Categorical(["a", "b", "c", "d"]),
}
LISTED = Space(cube(2), points=[{"x0": i / 17, "x1": i * i % 13 / 13} for i in range(18)])
SPACES: dict[str, Any] = {
    "line": cube(1),
    "plane": cube(2),
    "six": cube(6),
    "twenty": cube(20),
    "choices": {"kind": MIXED["kind"]},
    "mixed": MIXED,
    "listed": LISTED,
}
SIZES = (5, 100, 300)
FEDERATIONS = {
    (name, M): Federation(space, features=M, seed=M)
    for name, space in SPACES.items()
    for M in SIZES
}


def by_svd(federation: Federation) -> tuple[Any, Any]:
    """The leading directions (M, k) and their variances, from the features at the same points."""
    Phi = Shared.of(federation).phi(federation.space.cover(POINTS))
    _, s, Qt = svd(Phi - Phi.mean(axis=0), full_matrices=False, lapack_driver="gesvd")
    lam = s**2 / len(Phi)
    k = min(MOST, int(np.count_nonzero(lam > max(1e-6 * lam[0], 1e-12))))
    return Qt[:k].T, lam[:k]


@pytest.mark.parametrize("which", FEDERATIONS, ids=str)
def test_it_is_that_of_a_singular_value_decomposition(which: tuple[str, int]) -> None:
    basis = Shared.of(FEDERATIONS[which]).basis
    Q, lam = by_svd(FEDERATIONS[which])
    assert len(basis) == len(lam) <= min(MOST, which[1])
    np.testing.assert_allclose(basis.lam, lam, rtol=1e-6)
    np.testing.assert_allclose(np.abs((basis.vectors * Q).sum(axis=0)), 1.0, atol=1e-9)
    np.testing.assert_allclose(basis.vectors.T @ basis.vectors, np.eye(len(lam)), atol=1e-9)


# Few points, few features


def test_a_space_with_a_single_point_has_one_direction() -> None:
    space = Space(cube(2), points=[{"x0": 0.3, "x1": 0.6}])
    for M in (1, 2, 100):
        basis = Shared.of(Federation(space, features=M)).basis
        assert basis.vectors.tolist() == np.eye(M, 1).tolist() and len(basis) == 1
        assert basis.lam.tolist() == [0.0] or basis.lam[0] < 1e-12
        assert np.abs(basis.coordinates(space.points)).max() < 1e-12


# The same for all agents


@pytest.mark.parametrize("M", [1, 2, 5, 100, 300, 3000])
def test_the_digest_notices_every_direction_that_is_not_the_same(M: int) -> None:
    basis = Shared.of(Federation(cube(2), features=M)).basis
    digest, B = basis.digest, basis.vectors
    changed = [B * np.where(np.arange(len(basis)) == i, -1.0, 1.0) for i in range(len(basis))]
    changed += [np.roll(B, 1, axis=1), B[:, :-1]] if len(basis) > 1 else []
    for vectors in changed:
        other = Basis(Features(2, M), np.random.default_rng(0).random((5, 2)))
        other.vectors, other.lam = vectors, basis.lam[: vectors.shape[1]]
        assert other.digest != digest
    other.vectors, other.lam = B + 1e-9, basis.lam
    assert other.digest == digest


def test_it_is_the_same_forever() -> None:
    """Whoever changes it splits every federation of summaries."""
    pinned = {
        ("line", 100): "05a6a8fa",
        ("six", 300): "aec641a6",
        ("mixed", 100): "65e9ab63",
        ("listed", 5): "5af23b70",
    }
    assert {which: Shared.of(FEDERATIONS[which]).basis.digest.hex() for which in pinned} == pinned


#: Kernels of OpenBLAS, and the instructions of the CPU that they need; others are left out.
KERNELS = {"Prescott": (), "Haswell": ("avx2", "fma"), "Zen": ("avx2", "fma")}
KERNELS |= {"SkylakeX": ("avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd")}


def kernels() -> list[str]:
    """Those that this machine can run. Only OpenBLAS on x86 has a choice."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return []
    flags = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
    return [name for name, needed in KERNELS.items() if flags and {*needed} <= {*flags}]


def computed_by(kernel: str, path: Path) -> dict[str, Any]:
    """The bases of `FEDERATIONS` in a process with this kernel of OpenBLAS."""
    command = [sys.executable, __file__, str(path)]
    environment = os.environ | {"OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment, timeout=120)
    with np.load(path) as file:
        return dict(file)


def test_all_kernels_of_openblas_give_the_same_basis(tmp_path: Path) -> None:
    runnable = kernels()
    if len(runnable) < 2:
        pytest.skip("this machine has no two kernels of OpenBLAS to compare")
    saved = {name: computed_by(name, tmp_path / f"{name}.npz") for name in runnable}
    if len({str(columns["library"]) for columns in saved.values()}) == 1:
        pytest.skip("the BLAS of this NumPy has no choice of kernels")
    first = saved[runnable[0]]
    for name in runnable:
        for key, expected in first.items():
            value = saved[name][key]
            if key.startswith("vectors"):
                np.testing.assert_allclose(value, expected, atol=1e-6, err_msg=f"{name} {key}")
            elif key.startswith("digest"):
                assert str(value) == str(expected), (name, key)


def save_all(path: str) -> None:
    from threadpoolctl import threadpool_info

    columns: dict[str, Any] = {}
    for which, federation in FEDERATIONS.items():
        columns[f"vectors {which}"] = Shared.of(federation).basis.vectors
        columns[f"digest {which}"] = Shared.of(federation).basis.digest.hex()
    columns["library"] = next((blas.get("architecture", "") for blas in threadpool_info()), "")
    np.savez(path, **columns)


if __name__ == "__main__":
    save_all(sys.argv[1])


@pytest.mark.parametrize("name", SPACES)
def test_size_and_height_are_those_of_the_function_over_the_space(name: str) -> None:
    federation = Federation(SPACES[name], seed=3)
    basis, X = Shared.of(federation).basis, federation.space.cover(POINTS)
    Z = np.random.default_rng(0).standard_normal((5, len(basis)))
    values = Z @ basis.coordinates(X).T
    np.testing.assert_allclose(basis.size(Z), values.std(axis=1), rtol=1e-6)
    assert (basis.height(Z) <= values.max(axis=1) + 1e-9).all()
    assert (basis.height(Z) >= 0.6 * values.max(axis=1)).all()  # at a quarter of the points
