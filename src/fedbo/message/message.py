"""What an agent hands out: a header, and what it knows in one of several forms; never a trial.

==========  ===========================================================================  ======
symbol      meaning                                                                      shape
==========  ===========================================================================  ======
M           number of shared features                                                    scalar
omega       one draw of the feature weights: all that FTS needs                          (M,)
nu          mean of the feature weights: Σ⁻¹Φᵀy                                           (M,)
covariance  their covariance σ²Σ⁻¹ with Σ = ΦᵀΦ + σ²I; only its lower triangle is sent   (M, M)
incumbent   best standardised score so far; goes with a belief, for TAF                  scalar
σ²          ``noise_variance``, the noise of messages                                    scalar
t_n         number of observations behind the message                                    scalar
cell        which public cell of the space holds the best trial (a vote)                 scalar
counts      how many trials are in each public cell                                      (c,)
tip         number of a point on the public lattice (`fedbo.space.Lattice`)              scalar
y           shape of the mean: what is contributed to a private release                  (d,)
basis       digest of the directions of these coordinates (`fedbo.model.features.Basis`)  scalar
==========  ===========================================================================  ======

A *compact* message has a rounded mean of the k leading coordinates of the weights, counts, from
which a receiver computes their covariance (`fedbo.model.summary`), and a *tip*, the point that its
sender recommends. Its M is k. A *contribution* has a vote and the shape y. It is
for the party that makes private releases, and for nobody else (`fedbo.privacy.contribution`).

On the wire, a message is one MessagePack array with its numbers in little-endian float32:
``[1, fingerprint, sender, sequence, key, signature, t_n, ["weights", omega]]``;
`fedbo.message.compact` has the numbers of a compact one, `fedbo.message.signed` the header.

Each rule is checked in one place. The constructor checks the header and the form of the body, also
of a message from the wire. `fedbo.Federation.check` checks that the header is that of a federation,
and `fedbo.federation.shared.Shared.check` that the numbers fit it, and are finite and plausible.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Literal, cast

import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import ArrayLike, NDArray

from fedbo.errors import MessageRefused
from fedbo.message.compact import Compact, norm
from fedbo.message.release import Release
from fedbo.message.signed import BasisDigest, Signed, Wire, Withdrawal, decoded

#: What agents hand out to each other.
Kind = Literal["compact", "weights", "belief"]
#: What a message can be: one of these, or a contribution to a private release.
MessageKind = Kind | Literal["contribution"]
#: An agent hears at most so many peers, and an exchange hands out the messages of so many.
MOST_PEERS = 1024

Single = NDArray[np.float32]


class Vector(Wire, frozen=True):
    """A body that begins with M numbers as little-endian float32."""

    data: bytes

    def __post_init__(self) -> None:
        if not self.data or len(self.data) % 4:
            expected = "expected 4 for each of M >= 1 numbers"
            raise MessageRefused(f"its vector has {len(self.data)} bytes, {expected}")

    @property
    def vector(self) -> Single:
        return _unpack(self.data)

    @property
    def M(self) -> int:
        return len(self.data) // 4

    @property
    def parameters(self) -> int:
        return self.M

    def fits(self, M: int, cells: int) -> bool:
        """Tell whether its sizes are those of a federation's messages."""
        return self.M == M

    def norms(self) -> dict[str, float]:
        return {"the vector": norm(self.vector)}


class Weights(Vector, frozen=True, tag="weights"):
    """The body of an FTS message: omega."""

    @property
    def omega(self) -> Single:
        return self.vector


class Belief(Vector, frozen=True, tag="belief"):
    """The body of an RGPE or TAF message: nu, the covariance and the incumbent."""

    triangle: bytes  # the lower one of the covariance, row by row, as little-endian float32
    incumbent: float  # best standardised score so far

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.triangle) != 2 * self.M * (self.M + 1):
            size = f"{len(self.triangle)} bytes"
            raise MessageRefused(f"its covariance has {size}, which does not fit M = {self.M}")
        force_setattr(self, "incumbent", float(self.incumbent))

    @property
    def nu(self) -> Single:
        return self.vector

    @property
    def covariance(self) -> Single:
        square = np.empty((self.M, self.M), dtype=np.float32)
        rows, columns = np.tril_indices(self.M)
        square[rows, columns] = square[columns, rows] = _unpack(self.triangle)
        return square

    @property
    def parameters(self) -> int:
        return self.M + self.M * (self.M + 1) // 2 + 1

    def norms(self) -> dict[str, float]:
        covariance = norm(_unpack(self.triangle))
        return {**super().norms(), "covariance": covariance, "incumbent": abs(self.incumbent)}


class Contribution(Vector, frozen=True, tag="contribution"):
    """The body of a contribution to a private release: y and a vote."""

    cell: int
    basis: BasisDigest

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.cell) is not int:  # True would be a vote for all cells
            raise MessageRefused(f"cell is {self.cell!r}, expected a whole number")

    @property
    def y(self) -> Single:
        return self.vector

    @property
    def parameters(self) -> int:
        return self.M + 1

    def fits(self, M: int, cells: int) -> bool:
        return self.M == M and 0 <= self.cell < cells


#: What a message says, to be matched by its class.
Body = Weights | Belief | Compact | Contribution


class Message(Signed, frozen=True, kw_only=True, tag=1):
    """The message of one agent.

    Build it with `of_compact`, `of_weights`, `of_belief` or `of_contribution`, which take its
    ``fingerprint``, ``sender``, ``sequence`` and ``t_n`` by name.

    Its ``body`` has the numbers: `Weights` has ``omega``; `Belief` ``nu``, ``covariance`` and
    ``incumbent``; `Compact` ``nu``, ``counts`` and ``tip``; `Contribution` ``y`` and ``cell``; and
    each has ``M``, the length of omega, nu or y. Arrays are read-only.

    >>> header = {"fingerprint": bytes(16), "sender": "site-a", "sequence": 1, "t_n": 20}
    >>> message = Message.of_weights([0.5, -1.0, 2.0], **header)
    >>> message
    Message(weights, sender='site-a', sequence=1, t_n=20, M=3, 56 bytes)
    >>> message.body.omega.tolist(), Message.decode(message.encode()) == message
    ([0.5, -1.0, 2.0], True)
    """

    type = "message"

    t_n: int  # number of observations behind it
    body: Body

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.body, Compact):
            self.body.check_trials(self.t_n)

    @classmethod
    def of_weights(cls, omega: ArrayLike, **header: Any) -> Message:
        """Build a message of one draw of the feature weights, (M,), stored as float32."""
        return cls(body=Weights(_pack("omega", omega)), **header)

    @classmethod
    def of_belief(
        cls, nu: ArrayLike, covariance: ArrayLike, incumbent: float, **header: Any
    ) -> Message:
        """Build a message of a belief.

        Args:
            nu: (M,) mean of the feature weights.
            covariance: (M, M) their symmetric covariance, σ²Σ⁻¹.
            incumbent: Best standardised score so far.
        """
        square = np.asarray(covariance, dtype=np.float64)
        triangle = _pack("covariance", square[np.tril_indices(len(square))])
        return cls(body=Belief(_pack("nu", nu), triangle, float(incumbent)), **header)

    @classmethod
    def of_compact(
        cls,
        levels: ArrayLike,
        scale: float,
        counts: ArrayLike,
        tip: bytes = b"",
        *,
        basis: bytes,
        **header: Any,
    ) -> Message:
        """Build a compact message, of what `fedbo.model.summary` returns.

        Args:
            levels: (k,) the mean of the leading coordinates in steps of the scale, −7 to 7.
            scale: The step; stored as float32.
            counts: (c,) how many trials are in each cell; 3 and more are sent as one.
            tip: The point that the sender recommends, as `fedbo.space.Lattice.pack` writes it;
                empty (default) if it names none.
            basis: The digest of the federation's `Basis`, 4 bytes.

        >>> header = {"fingerprint": bytes(16), "sender": "site-a", "sequence": 1, "t_n": 10}
        >>> levels, counts, digest = [0, 3, -7], [9, 0, 1, 0], bytes(4)
        >>> message = Message.of_compact(levels, 0.5, counts, basis=digest, **header)
        >>> message.body.nu.tolist(), message.body.counts.tolist()
        ([0.0, 1.5, -3.5], [4, 0, 1, 0])
        """
        body = Compact.pack(np.asarray(levels), scale, np.asarray(counts), tip, basis)
        return cls(body=body, **header)

    @classmethod
    def of_contribution(cls, y: ArrayLike, cell: int, *, basis: bytes, **header: Any) -> Message:
        """Build a contribution to a private release.

        Args:
            y: (d,) the shape of the mean of the sender's belief; whoever sums it up gives it
                length 1. Zeros contribute no shape.
            cell: The cell that the sender votes for.
            basis: The digest of the federation's `Basis`, 4 bytes.
        """
        return cls(body=Contribution(_pack("y", y), operator.index(cell), basis), **header)

    def __repr__(self) -> str:
        return (
            f"Message({self.kind}, sender={self.sender!r}, sequence={self.sequence}, "
            f"t_n={self.t_n}, M={self.body.M}, {self.nbytes} bytes"
            f"{f', signed by {self.signer}' if self.key else ''})"
        )

    @property
    def kind(self) -> MessageKind:
        return cast(MessageKind, self.body.__struct_config__.tag)

    @property
    def parameters(self) -> int:
        """How many numbers the body has."""
        return self.body.parameters

    @property
    def tip(self) -> bytes:
        """The number of the point that the sender recommends, as bytes; empty if it names none."""
        return self.body.tip if isinstance(self.body, Compact) else b""

    def absurd_number(self, noise_variance: float) -> str | None:
        """Find numbers that are not finite, or 100 times larger than standardised scores allow.

        ‖ν‖ ≤ ‖y‖ / (2σ) and ‖y‖ ≤ √t_n. A draw adds about √M. A covariance below the identity has a
        norm of at most √M. A standardised score is below √t_n, and the incumbent may be 10 times
        that.

        Args:
            noise_variance: σ² of the federation's messages.
        """
        limit = 100 * (math.sqrt(self.body.M) + math.sqrt(self.t_n / noise_variance) / 2)
        for name, size in self.body.norms().items():
            most = min(limit, 10 * math.sqrt(self.t_n + 1)) if name == "incumbent" else limit
            if not size <= most:
                return f"{name} has norm {size:.3g}, expected at most {most:.3g}"
        return None


def _pack(name: str, values: ArrayLike) -> bytes:
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or not vector.size:
        raise MessageRefused(f"{name} has shape {vector.shape}, expected (M,) with M >= 1")
    with np.errstate(over="ignore"):  # what is too large becomes inf, which a federation refuses
        return vector.astype("<f4").tobytes()


def _unpack(data: bytes) -> Single:
    return np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False)


#: What an agent can hear.
Heard = Message | Release


def read(data: bytes | bytearray | memoryview) -> Heard | Withdrawal:
    """Return the message, release or withdrawal in these bytes, as its class's `decode` does."""
    content: Heard | Withdrawal = decoded(data, Message | Release | Withdrawal)
    return content
