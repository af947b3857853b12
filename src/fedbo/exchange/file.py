"""The file that holds a message, a withdrawal or a release: its name and its content."""

from __future__ import annotations

import hashlib
from typing import Literal
from urllib.parse import quote

from fedbo import files
from fedbo.exchange.tree import OpenFolder
from fedbo.message import Heard, Withdrawal, read

SUFFIX = ".fedbo"
_TITLE = "fedbo message 1"
_ENDINGS = {"message": "", "withdrawal": "-withdrawn", "release": "-release"}


def file_name(
    sender: str, key: bytes, what: Literal["message", "withdrawal", "release"] = "message"
) -> str:
    """Make a file name that all file systems accept, even if two senders differ only in case.

    Args:
        sender: The name of the agent, or of the party that makes releases.
        key: Its public key; empty if there is no signature.
        what: What is in the file.

    >>> file_name("Köln.1", b""), file_name("hub", b"", "release")
    ('K%C3%B6ln%2E1-8db13081.fedbo', 'hub-08d33503-release.fedbo')
    """
    escaped = quote(sender, safe="").replace(".", "%2E").replace("~", "%7E")
    whole = sender.encode() + (b"\0" + key if key else b"")
    return f"{escaped}-{hashlib.sha256(whole).hexdigest()[:8]}{_ENDINGS[what]}{SUFFIX}"


def name_of(content: Heard | Withdrawal) -> str:
    """Make the name of the file for a message, a withdrawal or a release."""
    return file_name(content.sender, content.key, content.type)


def seal(content: Heard | Withdrawal) -> bytes:
    """Return what a file holds."""
    return files.seal(_TITLE, content.encode())


def load(folder: OpenFolder, name: str, most: int) -> Heard | Withdrawal:
    """Read a file of at most so many bytes; raise `FileRefused`, `MessageRefused` or `OSError`.

    Nothing of its content is in the error unless it is sealed as a message.
    """
    data = folder.read(name, most)
    return read(files.unseal(_TITLE, data, "it"))
