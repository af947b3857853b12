"""The map of the page: a place for each message, such that those that are alike are near."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedbo.message import Message

Single = NDArray[np.float32]

#: How many agents a map shows.
MOST_ON_MAP = 200


def weights(content: bytes) -> Single:
    """Return ω, or ν, of an encoded message that was checked when it arrived.

    Args:
        content: What `Message.encode` returned.
    """
    fields = msgspec.msgpack.decode(content)
    if fields[0] == 2:  # an envelope with a signature
        fields = msgspec.msgpack.decode(fields[2])
    if fields[6][0] == "compact":
        return Message.decode(content).nu
    return np.frombuffer(fields[6][1], dtype="<f4").astype(np.float32, copy=False)


def layout(U: Single) -> NDArray[np.float64]:
    """Return a place in the plane (N, 2) for each message, such that those that are alike are near.

    This is classical multidimensional scaling of the distances ‖uᵢ − uⱼ‖. The coordinates are at
    most 1.

    Args:
        U: (N, d) directions of at most a few hundred messages.
    """
    centred = np.asarray(U, dtype=np.float64)
    centred = centred - centred.mean(axis=0, keepdims=True) if len(centred) else centred
    places = np.zeros((len(centred), 2))
    if len(centred) > 1:
        left, singular, _ = np.linalg.svd(centred, full_matrices=False)
        k = min(2, len(singular))
        places[:, :k] = left[:, :k] * singular[:k]
        signs = np.sign(places[np.abs(places).argmax(axis=0), [0, 1]])  # the same at every call
        places *= np.where(signs == 0, 1.0, signs)
        places /= max(float(np.abs(places).max()), 1e-12)
    return places
