"""What leaves an agent: a header and weights, or a belief; never a trial.

==============  ===================================================================================
M               number of shared features
omega           (M,) one draw of the feature weights: the whole of an FTS message
nu              (M,) mean of the feature weights: Sigma^-1 Phi^T y
covariance      (M, M) sigma^2 Sigma^-1, Sigma = Phi^T Phi + sigma^2 I; its lower triangle travels
incumbent       best standardised score so far (TAF only)
sigma^2         ``noise_variance``, the noise of messages
t_n             number of observations behind the message
==============  ===================================================================================

On the wire a message is one MessagePack array, its numbers little-endian float32:
``[version, fingerprint, epoch, sender, sequence, t_n, ["weights", omega]]``.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Literal, TypedDict, Unpack, cast

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbo.message.fingerprint import PARTS, Fingerprint

__all__ = ["Belief", "Fingerprint", "Kind", "Message", "MessageRefused", "Weights"]

SENDER_BYTES = 64
#: 3, 5 and 5 bytes on the wire, so that weights of M = 100 stay under 512 bytes with any sender.
COUNTER_LIMITS = {"epoch": 2**16 - 1, "sequence": 2**32 - 1, "t_n": 2**31 - 1}
Kind = Literal["weights", "belief", "belief+incumbent"]


class MessageRefused(ValueError):
    """A message that cannot be used here; its text says which rule it breaks and why."""


class _Wire(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    pass


class Weights(_Wire, frozen=True, tag="weights"):
    """Body of an FTS message: omega as little-endian float32."""

    omega: bytes

    def __post_init__(self) -> None:
        _count("omega", self.omega)


class Belief(_Wire, frozen=True, kw_only=True, tag="belief"):
    """Body of an RGPE or TAF message: nu, lower triangle of the covariance by rows, incumbent."""

    nu: bytes
    covariance: bytes
    incumbent: float | None = None

    def __post_init__(self) -> None:
        M, given = _count("nu", self.nu), _count("covariance", self.covariance)
        if given != (triangle := M * (M + 1) // 2):
            raise MessageRefused(f"covariance has {given} numbers, expected {triangle}: M = {M}")


def _count(name: str, data: bytes) -> int:
    if not data or len(data) % 4:
        raise MessageRefused(f"{name} has {len(data)} bytes, expected M >= 1 numbers of 4 bytes")
    return len(data) // 4


def _vector(name: str, values: ArrayLike) -> NDArray[np.float64]:
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or not vector.size:
        raise MessageRefused(f"{name} has shape {vector.shape}, expected (M,) with M >= 1")
    return vector


def _pack(values: NDArray[np.float64]) -> bytes:
    with np.errstate(over="ignore"):  # too large for float32 becomes inf, which check() refuses
        return values.astype("<f4").tobytes()


def _unpack(data: bytes) -> NDArray[np.float32]:
    return np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False)


def _norm(value: bytes | float | None) -> float:
    if isinstance(value, bytes):
        with np.errstate(invalid="ignore"):  # a NaN of any kind is found by who asks
            return float(np.linalg.norm(_unpack(value).astype(np.float64)))
    return abs(value or 0.0)


class Header(TypedDict):
    """What `Message.of_weights` and `Message.of_belief` take by name beside the numbers."""

    fingerprint: Fingerprint
    epoch: int
    sender: str
    sequence: int
    t_n: int


class Message(_Wire, frozen=True, kw_only=True):
    """One agent's message; build it with `of_weights` or `of_belief`.

    >>> agreed = Fingerprint.from_parts(space="s", features="f", kind="weights", scalars=0.3)
    >>> message = Message.of_weights(
    ...     [0.5, -1.0, 2.0], fingerprint=agreed, epoch=0, sender="site-a", sequence=1, t_n=20
    ... )
    >>> message
    Message(weights, sender='site-a', sequence=1, epoch=0, t_n=20, M=3, 53 bytes)
    >>> Message.decode(message.encode()) == message
    True
    >>> message.check(fingerprint=agreed, epoch=0, kind="weights", M=4, noise_variance=0.1)
    Traceback (most recent call last):
    fedbo.message.message.MessageRefused: message 1 of 'site-a': it has M = 3, expected M = 4
    """

    version: Literal[1] = 1
    fingerprint: bytes
    epoch: int
    sender: str
    sequence: int
    t_n: int
    body: Weights | Belief

    def __post_init__(self) -> None:
        if len(self.fingerprint) != 16:
            raise MessageRefused(f"fingerprint has {len(self.fingerprint)} bytes, expected 16")
        if not 1 <= len(self.sender.encode()) <= SENDER_BYTES:
            raise MessageRefused(f"sender is {self.sender!r}, expected 1 to 64 bytes of UTF-8")
        if not self.sender.isprintable():  # it is shown on screens and in logs, by whoever hears it
            raise MessageRefused(
                f"sender is {self.sender!r}, expected characters that can be printed: no line "
                "breaks, no control characters, and no blanks but the plain one"
            )
        for name, limit in COUNTER_LIMITS.items():
            if not 0 <= getattr(self, name) <= limit:
                raise MessageRefused(f"{name} is {getattr(self, name)}, expected 0 to {limit}")

    @classmethod
    def of_weights(cls, omega: ArrayLike, **header: Unpack[Header]) -> Message:
        """A message of weights omega (M,), stored as float32."""
        return cls._of(Weights(_pack(_vector("omega", omega))), header)

    @classmethod
    def of_belief(
        cls,
        nu: ArrayLike,
        covariance: ArrayLike,
        incumbent: float | None = None,
        **header: Unpack[Header],
    ) -> Message:
        """A message of a belief: nu (M,) and the symmetric covariance (M, M) of the weights."""
        mean, square = _vector("nu", nu), np.asarray(covariance, dtype=np.float64)
        M = mean.size
        if square.shape != (M, M):
            raise MessageRefused(f"covariance has shape {square.shape}, expected {(M, M)}")
        if not np.allclose(square, square.T, rtol=1e-4, atol=1e-6, equal_nan=True):
            raise MessageRefused("covariance is not symmetric; give sigma^2 Sigma^-1, not a factor")
        triangle = _pack(square[np.tril_indices(M)])
        best = None if incumbent is None else float(incumbent)
        return cls._of(Belief(nu=_pack(mean), covariance=triangle, incumbent=best), header)

    @classmethod
    def _of(cls, body: Weights | Belief, header: Header) -> Message:
        return cls(
            fingerprint=bytes(header["fingerprint"]),
            epoch=operator.index(header["epoch"]),
            sender=header["sender"],
            sequence=operator.index(header["sequence"]),
            t_n=operator.index(header["t_n"]),
            body=body,
        )

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Message:
        """The message that `encode` wrote; anything else is refused with a sentence."""
        try:
            return _decoder.decode(data)
        except (ValueError, RecursionError) as error:
            raise MessageRefused(f"{len(data)} bytes are {_diagnosis(data)}: {error}") from None

    def encode(self) -> bytes:
        """The message as bytes, the same on every machine."""
        return _encoder.encode(self)

    def __repr__(self) -> str:
        return (
            f"Message({self.kind}, sender={self.sender!r}, sequence={self.sequence}, "
            f"epoch={self.epoch}, t_n={self.t_n}, M={self.M}, {self.nbytes} bytes)"
        )

    @property
    def kind(self) -> Kind:
        if isinstance(self.body, Weights):
            return "weights"
        return "belief" if self.body.incumbent is None else "belief+incumbent"

    @property
    def M(self) -> int:
        return len(self.body.omega if isinstance(self.body, Weights) else self.body.nu) // 4

    @property
    def parameters(self) -> int:
        """How many parameters are handed out, as the paper counts: M, M + M^2 or M + M^2 + 1."""
        return self.numbers + isinstance(self.body, Belief) * (self.M * (self.M - 1) // 2)

    @property
    def numbers(self) -> int:
        """How many numbers travel: `parameters`, with each pair of the symmetric matrix once."""
        if isinstance(self.body, Weights):
            return self.M
        return self.M + len(self.body.covariance) // 4 + (self.body.incumbent is not None)

    @property
    def nbytes(self) -> int:
        """Exact length of `encode()`."""
        return len(self.encode())

    @property
    def omega(self) -> NDArray[np.float32]:
        """(M,) the weights, read-only."""
        return _unpack(self._field("omega"))

    @property
    def nu(self) -> NDArray[np.float32]:
        """(M,) the mean of the weights, read-only."""
        return _unpack(self._field("nu"))

    @property
    def covariance(self) -> NDArray[np.float32]:
        """(M, M) the covariance of the weights."""
        square = np.empty((self.M, self.M), dtype=np.float32)
        rows, columns = np.tril_indices(self.M)
        square[rows, columns] = square[columns, rows] = _unpack(self._field("covariance"))
        return square

    @property
    def incumbent(self) -> float | None:
        """Best standardised score so far, if the sender gave it."""
        return cast("float | None", self._field("incumbent"))

    def _field(self, name: str) -> Any:
        return getattr(self.body, name)  # else: 'Belief' object has no attribute 'omega'

    def check(
        self, *, fingerprint: Fingerprint, epoch: int, kind: Kind, M: int, noise_variance: float
    ) -> None:
        """Raise `MessageRefused` unless the message fits a federation with these agreements.

        A message of another epoch is not refused for its scalars: whoever receives it ignores it.
        """
        same = epoch == self.epoch
        fault = self._foreign_part(fingerprint, same) or self._wrong_shape(kind, M)
        fault = fault or self._absurd_number(noise_variance if same else None)
        if fault:
            raise MessageRefused(f"message {self.sequence} of {self.sender!r}: {fault}")

    def _foreign_part(self, expected: Fingerprint, same_epoch: bool) -> str | None:
        part = expected.difference(self.fingerprint)
        if part is None or (part == "scalars" and not same_epoch):
            return None
        return f"foreign {part}, {Fingerprint(self.fingerprint)} not {expected}: {PARTS[part]}"

    def _wrong_shape(self, kind: Kind, M: int) -> str | None:
        if self.kind != kind:
            return f"it is of kind {self.kind!r}, expected {kind!r}"
        return None if self.M == M else f"it has M = {self.M}, expected M = {M}"

    def _absurd_number(self, noise_variance: float | None) -> str | None:
        """Not finite, or beyond 100 times what standardised scores can give.

        |nu| <= |y| / (2 sigma) and |y| <= sqrt(t_n); a draw adds about sqrt(M); a covariance below
        the identity has norm sqrt(M) at most. A standard score is below sqrt(t_n): 10 times that is
        allowed for the incumbent. Without sigma^2, only finiteness can be judged.
        """
        limit = math.inf
        if noise_variance is not None:
            limit = 100 * (math.sqrt(self.M) + math.sqrt(self.t_n / noise_variance) / 2)
        for name in self.body.__struct_fields__:
            norm = _norm(self._field(name))
            if not math.isfinite(norm):
                return f"{name} holds NaN or infinity"
            most = min(limit, 10 * math.sqrt(self.t_n + 1)) if name == "incumbent" else limit
            if norm > most:
                return f"{name} has norm {norm:.3g}, expected at most {most:.3g}"
        return None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


class _Start(msgspec.Struct, array_like=True):
    version: int


def _diagnosis(data: bytes | bytearray | memoryview) -> str:
    try:
        version = msgspec.msgpack.decode(data, type=_Start).version
    except (ValueError, RecursionError):
        return "not a message, or not a whole one"
    if version == 1:
        return "a message with a wrong field"
    return f"a message of version {version}, and this fedbo reads version 1; use the same fedbo"
