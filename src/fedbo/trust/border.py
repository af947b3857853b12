"""The border: whatever comes from outside is trusted once, where it enters.

Checked are, in this order: the size, before anything is unpacked; the form; that it fits the
federation; the signature; and the key, by the one rule of `fedbo.trust.keyring`. Nothing else
makes a `Trusted`, and only what is trusted reaches an inbox.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fedbo.errors import MessageRefused
from fedbo.federation.federation import Federation
from fedbo.message import Heard, Withdrawal
from fedbo.trust.keyring import Keyring, NotTrusted
from fedbo.trust.keys import verify

Content = Heard | Withdrawal


class Trusted(NamedTuple):
    """A message, a release or a withdrawal that was checked where it entered."""

    content: Content


def open(federation: Federation, keyring: Keyring | None, data: bytes | Heard) -> Trusted:
    """Check what comes from outside: the only way in.

    Args:
        federation: What it must fit.
        keyring: Whose key is whose. None: it comes from another agent of this program, which needs
            no signature.
        data: The bytes of a message, a release or a withdrawal; or the object, in one program.

    Raises:
        MessageRefused: The text says which rule it breaks.

    >>> from fedbo import Agent, Federation, Float
    >>> federation = Federation({"x": Float(0, 1)})
    >>> agent = Agent(federation, name="site-a", seed=0)
    >>> trial = agent.tell({"x": 0.3}, 1.0)
    >>> open(federation, None, agent.message()).content.sender
    'site-a'
    >>> open(federation, Keyring(), agent.message().encode())
    Traceback (most recent call last):
    fedbo.errors.MessageRefused: message 1 of 'site-a' is not signed: ...
    """
    content = _read(federation, keyring, data)
    if keyring is not None:
        (refusal,) = keyring.judge(federation, [content])
        if refusal is not None:
            raise refusal
    return Trusted(content)


def open_all(
    federation: Federation, keyring: Keyring, data: Iterable[bytes | bytearray | Heard]
) -> list[Trusted]:
    """Open things that come at once: all of them, or none, and then no key is remembered."""
    contents = [_read(federation, keyring, each) for each in data]
    for remember in (False, True):
        for refusal in keyring.judge(federation, contents, remember=remember):
            if refusal is not None:
                raise refusal
    return [*map(Trusted, contents)]


def _read(
    federation: Federation, keyring: Keyring | None, data: bytes | bytearray | Heard
) -> Content:
    """Check everything but whose key it is: size, form, fit and signature."""
    from fedbo.federation.shared import Shared  # loads the models: only agents need it

    content = data if isinstance(data, Heard) else federation.read(bytes(data))
    Shared.of(federation).check(content)
    if keyring is not None:
        verify(content)
    return content


class Border:
    """Opens what comes to one place in one federation, again and again.

    What was opened before is not judged again, unless a later one of its sender was heard since, or
    the keyring or the list of members has changed; then only whose key is whose is.

    Args:
        federation: What everything must fit.
        keyring: As for `open`.
        remember: Whether the keyring remembers new names (default).
    """

    def __init__(
        self, federation: Federation, keyring: Keyring | None, *, remember: bool = True
    ) -> None:
        self.federation, self._keyring, self._remember = federation, keyring, remember
        self._known: dict[bytes, Content | MessageRefused] = {}  # everything but the key is judged
        self._trusted: dict[bytes, Trusted] = {}
        self._version: tuple[int, Mapping[str, bytes]] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether everything that was trusted still is."""
        return self._keyring is None or (
            self._version is not None
            and self._version[0] == self._keyring.changes()
            and self._version[1] is self.federation.members
        )

    def admit(self, entries: Iterable[bytes]) -> list[Trusted | MessageRefused]:
        """Open all that is at a place now; return each as trusted, or why it is not.

        What is no longer there is forgotten.
        """
        entries = list(entries)
        if not self.is_settled:
            self._trusted.clear()
        read = {data: self._known.get(data) or self._opened(data) for data in entries}
        trusted = {
            data: before
            for data in read
            if (before := self._trusted.get(data)) and not self._is_old(before.content)
        }
        new = {data: content for data, content in read.items() if data not in trusted}
        refused = {
            data: content for data, content in new.items() if isinstance(content, MessageRefused)
        }
        good = {data: c for data, c in new.items() if not isinstance(c, MessageRefused)}
        for data, why in zip(good, self._judged([*good.values()]), strict=True):
            if why is None:
                trusted[data] = Trusted(good[data])
            else:
                refused[data] = why
        self._known, self._trusted = read, trusted
        if self._keyring is not None:
            self._version = self._keyring.changes(), self.federation.members
        return [trusted.get(data) or refused[data] for data in entries]

    def _opened(self, data: bytes) -> Content | MessageRefused:
        try:
            return _read(self.federation, self._keyring, data)
        except MessageRefused as error:
            return error

    def _is_old(self, content: Content) -> bool:
        return self._keyring is not None and self._keyring.is_old(self.federation, content)

    def _judged(self, contents: list[Content]) -> list[NotTrusted | None]:
        if self._keyring is None or not (contents or self.federation.members):
            return [None] * len(contents)
        return self._keyring.judge(self.federation, contents, remember=self._remember)
