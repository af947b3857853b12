"""What a federation agreed on, in 16 bytes that travel with every message."""

from __future__ import annotations

import hashlib
import json
from typing import Any

PART_BYTES = 4
#: The parts, in order, and what it means when one of them differs.
PARTS = {
    "space": "the parameters, their ranges or order, the direction or the listed points differ",
    "features": "the kernel, the number of features or their seed differs",
    "kind": "the federation hands out another kind of message",
    "scalars": "the length scales or the noise variance differ, though the epoch is the same",
}


class Fingerprint(bytes):
    """Four parts of 4 bytes, each a hash of one part of the agreement.

    >>> agreed = {"space": [["C", 0, 1]], "kind": "weights", "scalars": 1}
    >>> a = Fingerprint.from_parts(features=["se", 100, 7], **agreed)
    >>> b = Fingerprint.from_parts(features=["se", 100, 8], **agreed)
    >>> str(a)
    'b0913900-36713fb5-021d46f1-6b86b273'
    >>> a.difference(b)
    'features'
    """

    def __new__(cls, data: bytes) -> Fingerprint:
        if len(data) != PART_BYTES * len(PARTS):
            raise ValueError(
                f"a fingerprint has {PART_BYTES * len(PARTS)} bytes, got {len(data)}; "
                "build one with Fingerprint.from_parts"
            )
        return super().__new__(cls, data)

    @classmethod
    def from_parts(
        cls, *, space: object, features: object, kind: object, scalars: object
    ) -> Fingerprint:
        """Hash each part, given as anything JSON can hold.

        Keys of a mapping are sorted, so give pairs where the order matters. 10 and 10.0 are the
        same number: a person types either, a file keeps one of them.
        """
        return cls(b"".join(_hash(part) for part in (space, features, kind, scalars)))

    def __str__(self) -> str:
        return self.hex("-", PART_BYTES)

    def __repr__(self) -> str:
        return f"Fingerprint({self})"

    def difference(self, other: bytes) -> str | None:
        """Name of the first part in which the two differ, or None."""
        for i, part in enumerate(PARTS):
            here = slice(PART_BYTES * i, PART_BYTES * (i + 1))
            if self[here] != other[here]:
                return part
        return None


def _hash(part: object) -> bytes:
    text = json.dumps(_plain(part), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).digest()[:PART_BYTES]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
