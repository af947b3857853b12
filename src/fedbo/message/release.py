"""A private release as it travels: noisy votes and noisy sums, and how the noise was made.

``fedbo.privacy.release`` makes releases and says what they mean. This module knows their form.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from fedbo.errors import MessageRefused
from fedbo.message import signed
from fedbo.message.signed import DRAW, MOST_CELLS, BasisDigest, Signed, check_name

#: What a release protects: two federations are neighbours if one contribution of a member is
#: replaced by an empty one.
NEIGHBOURS = "one member's contribution is replaced by an empty one"

#: Number of draws that a target takes for peers.
DRAWS = 64
#: Number of coordinates of the shape that a member contributes, if the federation has as many.
COORDINATES = 16

#: The longest name of who makes releases, in bytes of UTF-8: their draws have longer names.
SENDER_BYTES = signed.SENDER_BYTES - len(DRAW) - 2
_LIMITS = (
    (("epsilon", "delta", "votes_scale", "sums_deviation"), 2.0**-60, 2.0**40),
    (("weight",), 2.0**-10, 2.0**10),
    (("releases", "members"), 1, 2**31 - 1),
    (("trials", "squared"), 0, 2**31 - 1),
)
_MOST_SUMS = COORDINATES + COORDINATES * (COORDINATES + 1) // 2
_LARGEST = 2**62  # of a vote or a sum
RELEASE_BYTES = 9 * (MOST_CELLS + _MOST_SUMS)  #: of its votes and sums


class Release(Signed, frozen=True, kw_only=True, tag=3):
    """What a trusted party publishes of its members' contributions. It describes itself.

    Args:
        basis: The digest of the directions of the coordinates (`fedbo.model.features.Basis`).
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

    basis: BasisDigest
    epsilon: float
    delta: float
    releases: int
    members: int
    trials: int
    votes: Annotated[tuple[int, ...], Meta(max_length=MOST_CELLS)]  # checked before it is read
    votes_scale: float
    sums: Annotated[tuple[int, ...], Meta(max_length=_MOST_SUMS)]
    sums_deviation: float
    weight: float
    squared: int
    neighbours: str = NEIGHBOURS

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.sender, SENDER_BYTES)
        for names, least, most in _LIMITS:
            for name in names:
                if not least <= (value := getattr(self, name)) <= most:
                    raise MessageRefused(f"{name} is {value}, expected {least:g} to {most:g}")
        for name, numbers, most in (
            ("votes", self.votes, MOST_CELLS),
            ("sums", self.sums, _MOST_SUMS),
        ):
            if not 1 <= len(numbers) <= most or max(map(abs, numbers)) > _LARGEST:
                expected = f"expected 1 to {most}, from -2**62 to 2**62"
                raise MessageRefused(f"{name} has {len(numbers)} numbers, {expected}")
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
    def parameters(self) -> int:
        """Number of numbers handed out."""
        return len(self.votes) + len(self.sums)

    @property
    def t_n(self) -> int:
        """Number of observations behind the release: the trials of all members."""
        return self.trials

    @property
    def kind(self) -> Literal["release"]:
        return "release"


def draw_names(sender: str) -> list[str]:
    """Return the names of the draws that stand for peers in releases of a sender."""
    return [f"{sender}{DRAW}{i:02}" for i in range(DRAWS)]
