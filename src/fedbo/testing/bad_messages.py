"""Messages as a careless or hostile sender may send them: whole bytes with one thing wrong.

Whatever can be read is signed, so that only this one thing can be the reason to refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, get_args

import msgspec
import numpy as np

from fedbo.errors import MessageRefused
from fedbo.federation import Federation
from fedbo.federation.shared import Shared
from fedbo.message import Kind, read
from fedbo.testing.keys import keys_of
from fedbo.testing.parties import M, messages

Change = Callable[[np.ndarray], np.ndarray]


def garbage(federation: Federation) -> Iterator[bytes]:
    """No message at all, cut short, too long, or with its fields in disorder."""
    whole = _of(federation)
    yield from (b"", b"garbage", bytes(200), b"\xff" * 200)
    yield from (whole[:1], whole[: len(whole) // 2], whole[:-1], whole + b"\x00")
    raw = msgspec.msgpack.decode(whole)
    wrong: list[Any] = [raw[::-1], raw[:-1], [*raw, 1], {}, [raw], [2, *raw[1:]]]
    for fields in wrong:
        yield msgspec.msgpack.encode(fields)


def foreign(federation: Federation) -> Iterator[bytes]:
    """Yield messages of federations that agreed on something else."""
    agreed: dict[str, Any] = {
        "features": federation.features,
        "kind": federation.kind,
        "seed": federation.seed,
    }
    yield _of(Federation(federation.space, **{**agreed, "seed": federation.seed + 1}))
    yield _of(Federation(federation.space, **agreed, kernel="matern52"))
    yield _of(Federation(federation.space, **agreed, length_scale=0.4))
    yield _of(Federation(federation.space, **agreed, noise_variance=0.2))
    other_names = {f"{name}2": given for name, given in federation.space.parameters.items()}
    yield _of(Federation(other_names, **agreed))


def wrong_features(federation: Federation) -> Iterator[bytes]:
    """Yield messages with more or fewer features, honest about it or not.

    Compact messages may have the same number of coordinates all the same; then a lie does not show.
    """
    for M_there in (1, M - 1, M + 1):
        there = Federation(federation.space, features=M_there, kind=federation.kind)
        yield _of(there)
        if Shared.of(there).coordinates != Shared.of(federation).coordinates:
            yield _forged(_of(there), federation)


def wrong_kind(federation: Federation) -> Iterator[bytes]:
    """Yield messages of every other kind, honest about it or not."""
    for kind in get_args(Kind):
        if kind != federation.kind:
            there = Federation(federation.space, features=federation.features, kind=kind)
            yield _of(there)
            yield _forged(_of(there), federation)


def nan(federation: Federation) -> Iterator[bytes]:
    """Yield messages with one number that is NaN."""
    return _spoilt(federation, lambda numbers: _with_last(numbers, np.nan))


def infinite(federation: Federation) -> Iterator[bytes]:
    """Yield messages with one number that is infinite."""
    yield from _spoilt(federation, lambda numbers: _with_last(numbers, np.inf))
    yield from _spoilt(federation, lambda numbers: _with_last(numbers, -np.inf))


def absurd(federation: Federation) -> Iterator[bytes]:
    """Yield messages with numbers that no standardised scores can give."""
    yield from _spoilt(federation, lambda numbers: np.full_like(numbers, 1e6))
    yield from _spoilt(federation, lambda numbers: np.full_like(numbers, -1e30))


def hostile(federation: Federation) -> Iterator[bytes]:
    """Yield messages of sound form, within all limits or nearly, whose numbers no trials give.

    Some have covariances that are none. Each message has a sender of its own.
    """
    changes: list[Change] = [np.zeros_like, np.negative, lambda numbers: numbers[::-1]]
    changes += [partial(np.multiply, by) for by in (1e-30, 20.0, -20.0)]
    spoilt = [data for change in changes for data in _spoilt(federation, change)]
    for i, data in enumerate(spoilt):
        raw = msgspec.msgpack.decode(data)
        raw[2] = f"hostile-{i}"
        yield _signed(msgspec.msgpack.encode(raw))


BAD = {
    "garbage": garbage,
    "foreign fingerprint": foreign,
    "wrong M": wrong_features,
    "wrong kind": wrong_kind,
    "NaN": nan,
    "infinity": infinite,
    "absurd norm": absurd,
}


def _of(federation: Federation) -> bytes:
    return _signed(messages(federation, 1)[0].encode())


def _signed(data: bytes) -> bytes:
    """The same with the signature of its sender; what cannot be read stays as it is."""
    try:
        content = read(data)
    except MessageRefused:
        return data
    return keys_of(content.sender).sign(content).encode()


def _forged(data: bytes, federation: Federation) -> bytes:
    """The same numbers under the fingerprint of another federation."""
    raw = msgspec.msgpack.decode(data)
    raw[1] = bytes(federation.fingerprint)
    return _signed(msgspec.msgpack.encode(raw))


def _spoilt(federation: Federation, change: Change) -> Iterator[bytes]:
    """A message for each of its columns of numbers, changed in that column alone; not the tip."""
    data = _of(federation)
    *_, body = msgspec.msgpack.decode(data)
    types = {3: "<f4", 4: "u1"} if body[0] == "compact" else {}
    for i, field in enumerate(body[:5]):
        if isinstance(field, bytes):
            dtype = np.dtype(types.get(i, "<f4"))
            changed = change(np.frombuffer(field, dtype=dtype).astype("<f4"))
            if dtype.kind != "f":
                if not np.isfinite(changed).all():
                    continue  # a byte is neither NaN nor infinite
                changed = changed.clip(0, np.iinfo(dtype).max)
            yield _with_field(data, i, changed.astype(dtype).tobytes())
        elif isinstance(field, float):
            yield _with_field(data, i, float(change(np.array([field]))[0]))


def _with_field(data: bytes, i: int, field: bytes | float) -> bytes:
    raw = msgspec.msgpack.decode(data)
    raw[-1][i] = field
    return _signed(msgspec.msgpack.encode(raw))


def _with_last(numbers: np.ndarray, value: float) -> np.ndarray:
    numbers[-1] = value
    return numbers
