"""The file that holds a message, a withdrawal or a release: its name, content and greatest size."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote

from fedbo import files
from fedbo.exchange.tree import OpenFolder
from fedbo.federation import Federation
from fedbo.message import Heard, Message, Withdrawal, read

SUFFIX = ".fedbo"
LARGEST = 64 * 2**20  # bytes: larger files are not read; enough for a belief with M = 5,700
UNFINISHED = re.compile(rf"\..+\{SUFFIX}\.[0-9a-f]{{8}}")  # as `files.write` names it
_TITLE = "fedbo message 1"
_MESSAGE = re.compile(rf".+-[0-9a-f]{{8}}\{SUFFIX}")
_BESIDE = 512  # bytes beside the numbers, or more: title, digest, header, key, signature
RELEASE = 4096  # bytes of a release, which has at most 64 + 152 numbers of up to 9 bytes


def file_name(sender: str, key: bytes) -> str:
    """Make a file name that all file systems accept, even if two senders differ only in case.

    Args:
        sender: The name of the agent.
        key: Its public key; empty if the message is not signed.

    >>> file_name("Köln.1", b"")
    'K%C3%B6ln%2E1-8db13081.fedbo'
    """
    escaped = quote(sender, safe="").replace(".", "%2E").replace("~", "%7E")
    whole = sender.encode() + (b"\0" + key if key else b"")
    return f"{escaped}-{hashlib.sha256(whole).hexdigest()[:8]}{SUFFIX}"


def withdrawal_name(sender: str, key: bytes) -> str:
    """Make the name of the file for a sender's withdrawal.

    >>> withdrawal_name("site-a", bytes(32))
    'site-a-8f77346d-withdrawn.fedbo'
    """
    return f"{file_name(sender, key).removesuffix(SUFFIX)}-withdrawn{SUFFIX}"


def release_name(sender: str, key: bytes) -> str:
    """Make the name of the file for a party's release.

    Args:
        sender: The name of the party.
        key: Its public key; empty if the release is not signed.

    >>> release_name("hub", b"")
    'hub-08d33503-release.fedbo'
    """
    return f"{file_name(sender, key).removesuffix(SUFFIX)}-release{SUFFIX}"


def name_of(content: Heard) -> str:
    """Make the name of the file for a message or a release.

    Args:
        content: The message or the release.
    """
    name = file_name if isinstance(content, Message) else release_name
    return name(content.sender, content.key)


def is_message_name(name: str) -> bool:
    """Return whether `file_name` may have made this name."""
    return _MESSAGE.fullmatch(name) is not None


def seal(content: Heard | Withdrawal) -> bytes:
    """Return what a file holds."""
    return files.seal(_TITLE, content.encode())


def load(folder: OpenFolder, name: str, most: int) -> Heard | Withdrawal:
    """Read a file; raise `FileRefused`, `MessageRefused` or `OSError`.

    Nothing of its content is in the error unless it is sealed as a message.

    Args:
        folder: The folder that the file is in.
        name: Its name.
        most: The most bytes that it may have.
    """
    data = folder.read(name, most, start=_TITLE.encode())
    return read(files.unseal(_TITLE, data, "it"))


def most_in(federation: Federation) -> int:
    """Return how many bytes a file of a federation can have at most.

    Args:
        federation: The federation.
    """
    most = most_bytes(federation.sent_bytes)
    return most if federation.privacy is None else max(most, RELEASE)


def most_bytes(numbers: int) -> int:
    """Return how many bytes a file with a message can have at most.

    Args:
        numbers: How many bytes the numbers of the message take, `Federation.sent_bytes`.
    """
    return min(LARGEST, numbers + _BESIDE)
