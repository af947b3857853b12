"""A private release as it travels: noisy votes and noisy sums, and how the noise was made.

``fedbo.privacy.release`` makes releases and says what they mean. This module knows their form.
"""

from __future__ import annotations

from typing import Literal

from fedbo.message import signed
from fedbo.message.signed import Fingerprint, MessageRefused, Signed, travels

#: What a release protects: two federations are neighbours if one contribution of a member is
#: replaced by an empty one.
NEIGHBOURS = "one member's contribution is replaced by an empty one"

#: Number of draws that a target takes for peers.
DRAWS = 64
#: Number of coordinates of the shape that a member contributes, if the federation has as many.
COORDINATES = 16

_DRAW = "/release-"  # between the sender's name and the number of a draw
#: The longest name of who makes releases, in bytes of UTF-8: their draws have longer names.
SENDER_BYTES = signed.SENDER_BYTES - len(_DRAW) - 2
_SMALLEST, _GREATEST = 2.0**-60, 2.0**40  # of all that is not a whole number
_MOST_MEMBERS = 2**31 - 1
_MOST_NUMBERS = 4096  # votes, and sums
_LARGEST = 2**62  # of a vote or a sum


@travels(tag=3)
class Release(Signed, frozen=True, kw_only=True):
    """What a trusted party publishes of its members' contributions. It describes itself.

    Args:
        epsilon: ε that all planned releases together cost each member, at most.
        delta: δ of the same guarantee.
        releases: How many releases are planned; the noise of each follows from that.
        members: N, the number of members.
        trials: Number of trials of all members together.
        votes: For each cell the number of votes, in 64ths, with noise.
        votes_scale: Scale of the discrete Laplace noise, in votes.
        sums: Sums of the members' shapes and second moments, in steps of 2⁻²⁰, with noise.
        sums_deviation: Standard deviation of the discrete Gaussian noise, in the same unit.
        weight: Weight of the second moments.
        squared: The number of coordinates with second moments.
        neighbours: What is protected, in words.
    """

    type = "release"

    epsilon: float
    delta: float
    releases: int
    members: int
    trials: int
    votes: tuple[int, ...]
    votes_scale: float
    sums: tuple[int, ...]
    sums_deviation: float
    weight: float
    squared: int
    neighbours: str = NEIGHBOURS

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.sender.encode()) > SENDER_BYTES:
            raise MessageRefused(
                f"sender is {self.sender!r}, expected at most {SENDER_BYTES} bytes of UTF-8"
            )
        for name in ("epsilon", "delta", "votes_scale", "sums_deviation", "weight"):
            value = getattr(self, name)
            if not _SMALLEST <= value <= _GREATEST:
                raise MessageRefused(
                    f"{name} is {value}, expected {_SMALLEST:.0e} to {_GREATEST:.0e}"
                )
        for name in ("releases", "members", "trials", "squared"):
            value, least = getattr(self, name), int(name in ("releases", "members"))
            if not least <= value <= _MOST_MEMBERS:
                raise MessageRefused(f"{name} is {value}, expected {least} to {_MOST_MEMBERS}")
        for name in ("votes", "sums"):
            values = getattr(self, name)
            if not 1 <= len(values) <= _MOST_NUMBERS:
                raise MessageRefused(
                    f"{name} has {len(values)} numbers, expected 1 to {_MOST_NUMBERS}"
                )
            if max(map(abs, values)) > _LARGEST:
                raise MessageRefused(f"{name} has a number beyond ±2**62")
        if self.neighbours != NEIGHBOURS:
            raise MessageRefused(f"neighbours is {self.neighbours!r}, expected {NEIGHBOURS!r}")

    @property
    def coordinates(self) -> int:
        """The number of coordinates of a member's shape."""
        return len(self.sums) - self.squared * (self.squared + 1) // 2

    @property
    def names(self) -> list[str]:
        """The names of the draws that stand for peers."""
        return draw_names(self.sender)

    @property
    def numbers(self) -> int:
        """Number of numbers handed out."""
        return len(self.votes) + len(self.sums)

    @property
    def parameters(self) -> int:
        """The same: a release has no covariance of which only a triangle is sent."""
        return self.numbers

    @property
    def t_n(self) -> int:
        """Number of observations behind the release: the trials of all members."""
        return self.trials

    @property
    def kind(self) -> Literal["release"]:
        return "release"

    def check(self, *, fingerprint: Fingerprint, cells: int, coordinates: int) -> None:
        """Raise `MessageRefused` if the release does not fit a federation.

        Args:
            fingerprint: Fingerprint of the federation.
            cells: The number of its cells.
            coordinates: The number of coordinates of a shape.
        """
        fault = fingerprint.mismatch(self.fingerprint)
        if not fault:
            if len(self.votes) != cells:
                fault = f"it has votes for {len(self.votes)} cells, expected {cells}"
            elif self.coordinates != coordinates or self.squared > coordinates:
                fault = (
                    f"it has {self.coordinates} coordinates, {self.squared} of them squared, "
                    f"expected {coordinates}"
                )
        if fault:
            raise MessageRefused(f"release {self.sequence} of {self.sender!r}: {fault}")


def draw_names(sender: str) -> list[str]:
    """Return the names of the draws that stand for peers in releases of a sender."""
    return [f"{sender}{_DRAW}{i:02}" for i in range(DRAWS)]
