"""The key with which a hub signs private releases."""

from __future__ import annotations

from fedbo.hub.database import HubError
from fedbo.hub.settings import Settings
from fedbo.identity import KeyPair
from fedbo.identity.keys import KeyRefused


def release_keys(settings: Settings) -> KeyPair | None:
    """Return the key pair that signs private releases; None if they are not signed.

    Args:
        settings: Of the hub.

    Raises:
        HubError: If the file cannot be used; the text says why.
    """
    if not settings.release_key:
        return None
    try:
        return KeyPair.load(settings.release_key)
    except KeyRefused as error:
        raise HubError(f"release_key: {error}") from None
    except OSError as error:
        raise HubError(
            f"release_key: {settings.release_key} cannot be read ({error.strerror}): give the "
            "file of a private key, an identity.pem"
        ) from None
