"""An invitation to a federation at a hub: one word that is passed on by e-mail, for example.

It is ``NAME.FINGERPRINT.SECRET``: the name of the federation at the hub, its fingerprint in
hexadecimal digits, and a secret that the hub knows only as a hash. Whoever joins checks that the
federation file from the hub has this fingerprint.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from fedbo.federation import Federation
from fedbo.message import Fingerprint
from fedbo.outside import shortened

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_INVITATION = re.compile(rf"({_NAME.pattern})\.([0-9a-f]{{32}})\.([A-Za-z0-9_-]{{32,64}})")


class Invitation(NamedTuple):
    """An invitation.

    Args:
        name: The name of the federation at the hub.
        fingerprint: The fingerprint of the federation.
        secret: What proves to the hub that one is invited.

    >>> word = "liver.000102030405060708090a0b0c0d0e0f.kT3v0Pq8Zc1sWx5rYb7nLd2fGh4jAm6u"
    >>> Invitation.parse(word).name, str(Invitation.parse(word)) == word
    ('liver', True)
    """

    name: str
    fingerprint: Fingerprint
    secret: str

    def __str__(self) -> str:
        return f"{self.name}.{self.fingerprint.hex()}.{self.secret}"

    def __repr__(self) -> str:
        return f"Invitation({self.name!r}, {self.fingerprint}, secret not shown)"

    @classmethod
    def parse(cls, text: str) -> Invitation:
        """Read an invitation; a ValueError, which does not quote the secret, if it is not one.

        Args:
            text: What `str` returned.
        """
        if (found := _INVITATION.fullmatch(text.strip())) is None:
            raise ValueError(
                "this is not an invitation: expected NAME.FINGERPRINT.SECRET as fedbo hub create "
                "or fedbo hub invite printed it; copy it again, completely"
            )
        name, fingerprint, secret = found.groups()
        return cls(name, Fingerprint(bytes.fromhex(fingerprint)), secret)

    def check(self, federation: Federation) -> None:
        """Raise a ValueError unless this is the federation that the invitation is for.

        A later epoch may have other scalars.

        Args:
            federation: The federation in the file from the hub.
        """
        fault = federation.fingerprint.mismatch(self.fingerprint, same_epoch=federation.epoch == 0)
        if fault is not None:
            raise ValueError(
                f"the hub's federation file is not the one that the invitation is for ({fault}): "
                "do not join, and ask whoever invited you"
            )


def check_name(name: str) -> str:
    """Return the name of a federation at a hub; a ValueError if it cannot be one.

    Args:
        name: 1 to 63 small letters, digits and hyphens, with no hyphen at either end.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError(
            f"the name of the federation is {shortened(name)!r}, expected 1 to 63 small letters, "
            "digits and hyphens, with no hyphen at either end"
        )
    return name
