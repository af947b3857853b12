"""The key pair of a member that a federation file lists."""

from __future__ import annotations

from fedbo.federation import Federation
from fedbo.identity.keys import KeyPair, KeyRefused
from fedbo.message.signed import member


def listed_keys(federation: Federation, name: str) -> KeyPair | None:
    """Return the key pair of a listed member, from this user's keys; None if none are listed.

    Args:
        federation: The federation, which may list the keys of its members.
        name: The name of the member, or of one of its agents.

    Raises:
        KeyRefused: If the federation lists members, and not this one, or if the private key is not
            on this machine.
    """
    if not federation.members:
        return None
    listed = federation.members.get(member(name))
    if listed is None:
        raise KeyRefused(
            f"{name!r} is not among the members that the federation lists: "
            f"{', '.join(sorted(federation.members))}; use one of these names, or ask whoever "
            "keeps the federation file to add it"
        )
    keys = KeyPair.find(listed)
    if keys is None:
        raise KeyRefused(
            f"the federation lists a key of {name!r}, and its private key is not on this machine: "
            "import it (fedbo identity import FILE)"
        )
    return keys
