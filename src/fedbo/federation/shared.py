"""What agents derive from a federation, the same on every machine: φ, its basis, cells, a lattice.

A hub needs none of this: it checks what it keeps by the record alone. So `Federation` is a record
without a model, and what needs the models is here.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from fedbo.errors import MessageRefused
from fedbo.federation.federation import Federation, refusal
from fedbo.message.compact import Compact
from fedbo.message.inbox import LEAST_EIGENVALUE, Held, Moments, held
from fedbo.message.message import Contribution, Heard, Message
from fedbo.message.release import COORDINATES, Release
from fedbo.message.signed import MOST_CELLS, Withdrawal
from fedbo.model import summary
from fedbo.model.features import POINTS, Basis, Features
from fedbo.model.kernel import Array
from fedbo.space.space import Lattice, nearest

_ALONG = 8  # cells in one dimension
_IN_CELL = 4  # points of the space in a cell, at least
_SHOWN = 16  # bytes of a tip that an error repeats


class Shared:
    """What agents derive from a federation. Get it with `Shared.of`; each part is computed once.

    Args:
        federation: What the agents agree on.

    >>> from fedbo.space import Float
    >>> shared = Shared.of(Federation({"x": Float(0, 1)}, features=50, seed=7))
    >>> shared.phi.M, len(shared.basis), shared.cells.shape, shared.cell(np.array([0.3]))
    (50, 7, (8, 1), 3)
    """

    def __init__(self, federation: Federation) -> None:
        self.federation = federation

    @classmethod
    def of(cls, federation: Federation) -> Shared:
        """Return what is derived from a federation, one object for all its agents in a process."""
        return _shared(federation)

    # Features

    @cached_property
    def phi(self) -> Features:
        """The shared feature map φ."""
        agreed = self.federation
        return Features(
            agreed.space.dimensions,
            agreed.features,
            kernel=agreed.kernel,
            length_scales=agreed.length_scale,
            seed=agreed.seed,
        )

    @cached_property
    def points(self) -> Array:
        """Points all over the space, (n, D)."""
        return self.federation.space.cover(POINTS)

    @cached_property
    def basis(self) -> Basis:
        """The leading directions of the features over the space."""
        return Basis(self.phi, self.points)

    @cached_property
    def digest(self) -> bytes:
        """4 bytes in each message whose numbers refer to the basis."""
        return self.basis.digest

    @cached_property
    def coordinates(self) -> int:
        """How many weights, or coordinates of them, a message of ``kind`` describes."""
        return len(self.basis) if self.federation.is_compact else self.federation.features

    @cached_property
    def shape_coordinates(self) -> int:
        """How many leading coordinates a member contributes to a private release."""
        return min(COORDINATES, len(self.basis))

    # Cells

    @cached_property
    def cells(self) -> Array:
        """The centres (n, D) of the public cells of the space; a cell is what is nearest to one.

        There are at most 64, and at most 8 in one dimension. A cell has at least four points of the
        space, unless the space has fewer.
        """
        space = self.federation.space
        centres = space.cover(min(MOST_CELLS, _ALONG**space.dimensions))
        while len(centres) > 1:
            inside = np.bincount(nearest(self.points, centres), minlength=len(centres))
            if inside.min() >= _IN_CELL:
                break
            centres = np.delete(centres, inside.argmin(), axis=0)
        return centres

    def nearest_cells(self, X: Array) -> NDArray[np.intp]:
        """Return the cells (n,) that points lie in."""
        return nearest(X, self.cells)

    def cell(self, x: Array) -> int:
        """Return the cell that a point lies in."""
        return int(self.nearest_cells(x[None])[0])

    def counts(self, X: Array) -> NDArray[np.intp]:
        """Return how many points are in each cell, (n,)."""
        return np.bincount(self.nearest_cells(X), minlength=len(self.cells))

    @cached_property
    def cell_features(self) -> Array:
        """The features (n, M) of a trial of which only the cell is known; see `model.summary`."""
        cells = self.nearest_cells(self.points)
        return summary.cell_features(self.phi, self.points, cells, self.federation.noise_variance)

    def factor_of(self, counts: summary.Counts) -> Array:
        """Return V (r, k): VᵀV is what trials tell about a function, by their counts in cells."""
        B, sigma2 = self.basis.vectors, self.federation.noise_variance
        return summary.factor_of(self.cell_features, counts, sigma2, B)

    # Messages

    @cached_property
    def lattice(self) -> Lattice:
        """The points that a tip may name."""
        return Lattice(self.federation.space)

    def tip(self, message: Message) -> Array | None:
        """Return the point (D,) that a message recommends, or None if it names none."""
        return self.lattice.unpack(message.tip) if message.tip else None

    def held(self, message: Message) -> Held:
        """Return what an inbox holds of a message."""
        match message.body:
            case Compact() as body:
                header, tip = (message.sender, message.sequence, message.t_n), self.tip(message)
                return Held(*header, _moments(self, body), tip=tip)
        return held(message)

    def check(self, content: Heard | Withdrawal) -> None:
        """Raise `MessageRefused`, with the reason, if this does not fit the federation.

        `Federation.check` looks at the header. This also looks at the numbers: their sizes, their
        basis, the tip, and whether they are finite and plausible.
        """
        self.federation.check(content)
        fault = None
        if isinstance(content, Message):
            fault = self._message_fault(content)
        elif isinstance(content, Release):
            fault = self._release_fault(content)
        if fault:
            raise refusal(content, fault)

    def fits(self, content: Heard | Withdrawal) -> bool:
        """Tell whether `check` accepts this."""
        try:
            self.check(content)
        except MessageRefused:
            return False
        return True

    def _message_fault(self, message: Message) -> str | None:
        body, cells, M = message.body, 0, self.coordinates
        if isinstance(body, Contribution):
            M = self.shape_coordinates
        if isinstance(body, Compact | Contribution):
            cells = len(self.cells)
            if fault := self._basis_fault(body.basis):
                return fault
        if not body.fits(M, cells):
            return f"it has M = {body.M}, expected M = {M} and {cells} cells"
        if message.tip and (not self.federation.tips or self.tip(message) is None):
            return f"its tip is {message.tip[:_SHOWN].hex()}, which is no tip of this federation"
        return message.absurd_number(self.federation.noise_variance)

    def _release_fault(self, release: Release) -> str | None:
        if fault := self._basis_fault(release.basis):
            return fault
        sizes, k = (len(release.votes), release.coordinates), self.shape_coordinates
        if sizes != (expected := (len(self.cells), k)) or release.squared > k:
            return f"it has votes for {sizes[0]} cells and {sizes[1]} coordinates, not {expected}"
        return None

    def _basis_fault(self, digest: bytes) -> str | None:
        if digest == self.digest:
            return None
        return (
            f"its numbers refer to other directions of the features, {digest.hex()}, than this "
            f"machine computes, {self.digest.hex()}: update NumPy on both machines, and use the "
            "same version of fedbo everywhere"
        )


@lru_cache(maxsize=16)  # many agents of one process have the same federation
def _shared(federation: Federation) -> Shared:
    return Shared(federation)


@lru_cache(maxsize=256)  # in one process, many agents receive the same message
def _moments(shared: Shared, body: Compact) -> Moments:
    m, R = summary.belief(body.levels, body.step, shared.factor_of(body.counts))
    kept = np.einsum("ri,ri->r", R, R) > LEAST_EIGENVALUE
    return m.astype(np.float32), R[kept].astype(np.float32)
