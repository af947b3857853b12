"""The fingerprint of a federation: 16 bytes in every message that identify what was agreed on."""

from __future__ import annotations

import hashlib
import json

PART_BYTES = 4
#: The parts in their order, and what it means if one of them differs.
PARTS = {
    "space": "the parameters, their ranges or choices, or the direction differ",
    "features": "the kernel, the number of features or their seed differs",
    "kind": "the federation hands out another kind of message, or has another privacy plan",
    "scales": "the length scales or the noise variance differ",
}


class Fingerprint(bytes):
    """Four hashes of 4 bytes, one for each part of what a federation agreed on.

    Args:
        data: The 16 bytes of a fingerprint, for example from a message.

    Example:
        >>> agreed = {"space": [["C", 0, 1]], "kind": "weights", "scales": 1}
        >>> a = Fingerprint.from_parts(features=["se", 100, 7], **agreed)
        >>> b = Fingerprint.from_parts(features=["se", 100, 8], **agreed)
        >>> a
        Fingerprint(b0913900-36713fb5-021d46f1-6b86b273)
        >>> a.difference(b)
        'features'
    """

    def __new__(cls, data: bytes) -> Fingerprint:
        if len(data) != PART_BYTES * len(PARTS):
            hint = "build one with Fingerprint.from_parts"
            raise ValueError(f"a fingerprint has 16 bytes, got {len(data)}; {hint}")
        return super().__new__(cls, data)

    @classmethod
    def from_parts(
        cls, *, space: object, features: object, kind: object, scales: object
    ) -> Fingerprint:
        """Hash each part; a part is anything that JSON can hold.

        The keys of a mapping are sorted; give pairs if their order matters. 10 and 10.0 have the
        same hash, because people write either in a file.

        Args:
            space: The parameters, the direction and the listed points.
            features: The kernel, the number of features and their seed.
            kind: What agents hand out, and the privacy plan if there is one.
            scales: The length scales and the noise variance.
        """
        return cls(b"".join(_hash(part) for part in (space, features, kind, scales)))

    def __str__(self) -> str:
        return self.hex("-", PART_BYTES)

    def __repr__(self) -> str:
        return f"Fingerprint({self})"

    def difference(self, other: bytes) -> str | None:
        """Return the name of the first part that differs from another fingerprint, or None."""
        for part, i in zip(PARTS, range(0, len(self), PART_BYTES), strict=True):
            if self[i : i + PART_BYTES] != other[i : i + PART_BYTES]:
                return part
        return None

    def mismatch(self, other: bytes) -> str | None:
        """Describe the first difference from another fingerprint, or return None."""
        part = self.difference(other)
        if part is None:
            return None
        return f"foreign {part}, {Fingerprint(other)} not {self}: {PARTS[part]}"


def _hash(part: object) -> bytes:
    same = json.loads(json.dumps(part, allow_nan=False), parse_float=_int_if_whole)
    text = json.dumps(same, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()[:PART_BYTES]


def _int_if_whole(digits: str) -> float:
    return int(value) if (value := float(digits)).is_integer() else value
