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
==========  ===========================================================================  ======

A *compact* message has a rounded mean of the k leading coordinates of the weights, counts, from
which a receiver computes their covariance (`fedbo.model.summary`), and a *tip*, the point that its
sender recommends. Its M is k. A *contribution* has a vote and the shape y. It is
for the party that makes private releases, and for nobody else (`fedbo.privacy.contribution`).

On the wire, a message is one MessagePack array with its numbers in little-endian float32:
``[1, fingerprint, sender, sequence, t_n, ["weights", omega]]``; `fedbo.message.compact` has
the numbers of a compact one. `fedbo.message.signed` has the header and the signature.

Each rule is checked in one place. The constructor checks the header and the sizes of the arrays,
also of a message from the wire. `Message.check` checks that the message fits a federation and that
its numbers are finite and plausible. `fedbo.Agent.receive` calls it for every message that enters.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Literal, TypedDict, Unpack, cast

import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import ArrayLike, NDArray

from fedbo.message.compact import Compact, norm
from fedbo.message.release import Release
from fedbo.message.signed import (
    Fingerprint,
    MessageRefused,
    Signed,
    Wire,
    Withdrawal,
    opened,
    travels,
)

#: What agents hand out to each other.
Kind = Literal["compact", "weights", "belief"]
#: What a message can be: one of these, or a contribution to a private release.
MessageKind = Kind | Literal["contribution"]
#: An agent hears at most so many peers, and an exchange hands out the messages of so many.
MOST_PEERS = 1024


class Weights(Wire, frozen=True, tag="weights"):
    """The body of an FTS message: omega as little-endian float32."""

    omega: bytes

    def __post_init__(self) -> None:
        _count("omega", self.omega)

    @property
    def M(self) -> int:
        return len(self.omega) // 4

    def norms(self) -> dict[str, float]:
        return {"omega": norm(_unpack(self.omega))}


class Belief(Wire, frozen=True, kw_only=True, tag="belief"):
    """The body of an RGPE or TAF message: mean and covariance as little-endian float32."""

    nu: bytes
    covariance: bytes  # the lower triangle, row by row
    incumbent: float  # best standardised score so far

    def __post_init__(self) -> None:
        M, size = _count("nu", self.nu), _count("covariance", self.covariance)
        if size != (expected := M * (M + 1) // 2):
            raise MessageRefused(
                f"covariance has {size} numbers, expected {expected} because M = {M}"
            )
        force_setattr(self, "incumbent", float(self.incumbent))

    @property
    def M(self) -> int:
        return len(self.nu) // 4

    def norms(self) -> dict[str, float]:
        vectors = {"nu": self.nu, "covariance": self.covariance}
        norms = {name: norm(_unpack(data)) for name, data in vectors.items()}
        return {**norms, "incumbent": abs(self.incumbent)}


class Contribution(Wire, frozen=True, tag="contribution"):
    """The body of a contribution to a private release: y as little-endian float32, and a vote."""

    y: bytes
    cell: int
    epsilon: float | None = None  # of local privacy: the vote is randomised, and y is 0

    def __post_init__(self) -> None:
        _count("y", self.y)
        if type(self.cell) is not int:  # True would be a vote for all cells
            raise MessageRefused(f"cell is {self.cell!r}, expected a whole number")
        if self.epsilon is not None:
            force_setattr(self, "epsilon", float(self.epsilon))
            if not 0.0 < self.epsilon < math.inf:
                raise MessageRefused(f"epsilon is {self.epsilon}, expected a number above 0")

    @property
    def M(self) -> int:
        return len(self.y) // 4

    def norms(self) -> dict[str, float]:
        return {"y": norm(_unpack(self.y))}


Body = Weights | Belief | Compact | Contribution


def numbers_in(kind: MessageKind, M: int, cells: int = 0) -> int:
    """Return how many numbers a message of a kind has.

    Args:
        kind: The kind of message.
        M: The length of omega, nu or y.
        cells: How many cells a compact message has counts of; other kinds have none (default 0).

    >>> numbers_in("weights", 100), numbers_in("belief", 100)
    (100, 5151)
    >>> numbers_in("compact", 40, cells=64)  # and a scale
    105
    """
    if kind == "compact":
        return M + 1 + cells
    if kind == "belief":
        return M + M * (M + 1) // 2 + 1
    return M + (kind == "contribution")


class Header(TypedDict):
    """The arguments of `Message.of_weights` and its siblings beside the numbers."""

    fingerprint: Fingerprint  #: of the sender's federation
    sender: str  #: name of the agent: 1 to 64 bytes of printable UTF-8
    sequence: int  #: a later message of the same sender has a larger number
    t_n: int  #: number of observations behind the message


@travels(tag=1)
class Message(Signed, frozen=True, kw_only=True):
    """The message of one agent. Build it with `of_compact`, `of_weights`, `of_belief` and so on.

    The numbers of its body are its attributes: ``omega``, ``nu``, ``covariance``, ``incumbent``,
    ``counts``, ``tip``, ``y`` and ``cell``, as far as its kind has them; arrays are read-only.

    >>> agreed = Fingerprint.from_parts(space="s", features="f", kind="weights", scales=0.3)
    >>> header = {"fingerprint": agreed, "sender": "site-a", "sequence": 1, "t_n": 20}
    >>> message = Message.of_weights([0.5, -1.0, 2.0], **header)
    >>> message
    Message(weights, sender='site-a', sequence=1, t_n=20, M=3, 52 bytes)
    >>> Message.decode(message.encode()) == message
    True
    """

    type = "message"

    t_n: int
    body: Body

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.body, Compact):
            self.body.check_trials(self.t_n)

    @classmethod
    def of_weights(cls, omega: ArrayLike, **header: Unpack[Header]) -> Message:
        """Build a message of weights.

        Args:
            omega: (M,) one draw of the feature weights; stored as float32.
            **header: The fields of `Header`.
        """
        return cls(body=Weights(_pack("omega", omega)), **header)

    @classmethod
    def of_belief(
        cls, nu: ArrayLike, covariance: ArrayLike, incumbent: float, **header: Unpack[Header]
    ) -> Message:
        """Build a message of a belief.

        Args:
            nu: (M,) mean of the feature weights.
            covariance: (M, M) their symmetric covariance, σ²Σ⁻¹.
            incumbent: Best standardised score so far.
            **header: The fields of `Header`.
        """
        square = np.asarray(covariance, dtype=np.float64)
        triangle = _pack("covariance", square[np.tril_indices(len(square))])
        body = Belief(nu=_pack("nu", nu), covariance=triangle, incumbent=float(incumbent))
        return cls(body=body, **header)

    @classmethod
    def of_compact(
        cls,
        levels: ArrayLike,
        scale: float,
        counts: ArrayLike,
        tip: bytes = b"",
        **header: Unpack[Header],
    ) -> Message:
        """Build a compact message, of what `fedbo.model.summary` returns.

        Args:
            levels: (k,) the mean of the leading coordinates in steps of the scale, −7 to 7.
            scale: The step; stored as float32.
            counts: (c,) how many trials are in each cell; 3 and more are sent as one.
            tip: The point that the sender recommends, as `fedbo.space.Lattice.pack` writes it;
                empty (default) if it names none.
            **header: The fields of `Header`.

        >>> header = {"fingerprint": bytes(16), "sender": "site-a", "sequence": 1, "t_n": 10}
        >>> message = Message.of_compact([0, 3, -7], 0.5, [9, 0, 1, 0], **header)
        >>> message.nu.tolist(), message.counts.tolist()
        ([0.0, 1.5, -3.5], [4, 0, 1, 0])
        """
        return cls(body=Compact.pack(np.asarray(levels), scale, np.asarray(counts), tip), **header)

    @classmethod
    def of_contribution(
        cls, y: ArrayLike, cell: int, epsilon: float | None = None, **header: Unpack[Header]
    ) -> Message:
        """Build a contribution to a private release.

        Args:
            y: (d,) the shape of the mean of the sender's belief; whoever sums it up gives it
                length 1. Zeros contribute no shape.
            cell: The cell that the sender votes for.
            epsilon: ε of local privacy if the vote is randomised; None (default) if it is not.
            **header: The fields of `Header`.
        """
        return cls(body=Contribution(_pack("y", y), operator.index(cell), epsilon), **header)

    def __repr__(self) -> str:
        return (
            f"Message({self.kind}, sender={self.sender!r}, sequence={self.sequence}, "
            f"t_n={self.t_n}, M={self.M}, {self.nbytes} bytes"
            f"{f', signed by {self.signer}' if self.key else ''})"
        )

    @property
    def kind(self) -> MessageKind:
        return cast(MessageKind, self.body.__struct_config__.tag)

    @property
    def M(self) -> int:
        """The length of omega, nu or y."""
        return self.body.M

    @property
    def numbers(self) -> int:
        """Number of numbers sent; of a covariance only a triangle is sent."""
        cells = self.body.cells if isinstance(self.body, Compact) else 0
        return numbers_in(self.kind, self.M, cells)

    @property
    def parameters(self) -> int:
        """Number of parameters handed out, as the paper counts: M for FTS, M + M² + 1 for TAF."""
        return self.numbers + (self.M * (self.M - 1) // 2 if self.kind == "belief" else 0)

    @property
    def omega(self) -> NDArray[np.float32]:
        return _unpack(self._field("omega"))

    @property
    def nu(self) -> NDArray[np.float32]:
        return self.body.mean if isinstance(self.body, Compact) else _unpack(self._field("nu"))

    @property
    def covariance(self) -> NDArray[np.float32]:
        square = np.empty((self.M, self.M), dtype=np.float32)
        rows, columns = np.tril_indices(self.M)
        square[rows, columns] = square[columns, rows] = _unpack(self._field("covariance"))
        return square

    @property
    def incumbent(self) -> float:
        return cast(float, self._field("incumbent"))

    @property
    def counts(self) -> NDArray[np.uint8]:
        """(c,) how many trials are in each cell; 4 means 3 and more."""
        return cast("NDArray[np.uint8]", self._field("counts"))

    @property
    def tip(self) -> bytes:
        """The number of the point that the sender recommends, as bytes; empty if it names none."""
        return self.body.tip if isinstance(self.body, Compact) else b""

    @property
    def y(self) -> NDArray[np.float32]:
        return _unpack(self._field("y"))

    @property
    def cell(self) -> int:
        return cast(int, self._field("cell"))

    @property
    def local_epsilon(self) -> float | None:
        """ε of local privacy if this is a randomised vote; else None."""
        return self.body.epsilon if isinstance(self.body, Contribution) else None

    def _field(self, name: str) -> Any:
        return getattr(self.body, name)  # or AttributeError: 'Belief' ... no attribute 'omega'

    def check(
        self,
        *,
        fingerprint: Fingerprint,
        kind: MessageKind,
        M: int,
        noise_variance: float,
        cells: int = 0,
    ) -> None:
        """Check that the message fits a federation, and that its numbers are plausible.

        Args:
            fingerprint: Fingerprint of the federation.
            kind: What its agents hand out.
            M: The length of omega, nu or y in its messages.
            noise_variance: σ² of its messages.
            cells: How many cells there are to vote for, or to count trials in (default 0).

        Raises:
            MessageRefused: The message does not fit; the text says why.
        """
        fault = fingerprint.mismatch(self.fingerprint)
        if not fault and self.kind != kind:
            fault = f"it is of kind {self.kind!r}, expected {kind!r}"
        elif not fault and self.M != M:
            fault = f"it has M = {self.M}, expected M = {M}"
        elif not fault and kind == "contribution" and not 0 <= self.cell < cells:
            fault = f"it votes for cell {self.cell}, expected 0 to {cells - 1}"
        elif not fault and isinstance(self.body, Compact) and self.body.cells != cells:
            fault = f"it has counts of {self.body.cells} cells, expected {cells}"
        fault = fault or self._absurd_number(noise_variance)
        if fault:
            raise MessageRefused(f"message {self.sequence} of {self.sender!r}: {fault}")

    def _absurd_number(self, noise_variance: float) -> str | None:
        """Find numbers that are not finite, or 100 times larger than standardised scores allow.

        ‖ν‖ ≤ ‖y‖ / (2σ) and ‖y‖ ≤ √t_n. A draw adds about √M. A covariance below the identity has a
        norm of at most √M. A standardised score is below √t_n, and the incumbent may be 10 times
        that.
        """
        limit = 100 * (math.sqrt(self.M) + math.sqrt(self.t_n / noise_variance) / 2)
        for name, size in self.body.norms().items():
            if not math.isfinite(size):
                return f"{name} holds NaN or infinity"
            most = min(limit, 10 * math.sqrt(self.t_n + 1)) if name == "incumbent" else limit
            if size > most:
                return f"{name} has norm {size:.3g}, expected at most {most:.3g}"
        return None


def _count(name: str, data: bytes) -> int:
    if not data or len(data) % 4:
        raise MessageRefused(f"{name} has {len(data)} bytes, expected 4 for each of M >= 1 numbers")
    return len(data) // 4


def _pack(name: str, values: ArrayLike) -> bytes:
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or not vector.size:
        raise MessageRefused(f"{name} has shape {vector.shape}, expected (M,) with M >= 1")
    with np.errstate(over="ignore"):  # what is too large becomes inf, which check() refuses
        return vector.astype("<f4").tobytes()


def _unpack(data: bytes) -> NDArray[np.float32]:
    return np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False)


#: What an agent can hear.
Heard = Message | Release


def read(data: bytes | bytearray | memoryview) -> Heard | Withdrawal:
    """Return the message, release or withdrawal in these bytes; its signature is not checked.

    Args:
        data: What `encode` of one of them wrote; anything else raises `MessageRefused`.
    """
    try:
        version, _ = opened(data)
    except (ValueError, RecursionError):
        version = 0
    for kind in (Message, Release, Withdrawal):
        if kind.form.__struct_config__.tag == version:
            return kind.decode(data)
    raise MessageRefused(
        f"{len(data):,} bytes are no message, release or withdrawal, or not a whole one, or of "
        "another version of fedbo: use the same version everywhere"
    )
