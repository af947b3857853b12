"""The ledger: a log of every message that left this machine, one line of JSON for each.

The line is on disk before its message is sent. If the line cannot be written, the message is not
sent. So nothing leaves unrecorded. A message that was not delivered gets a second line.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import errno
import hashlib
import io
import os
import stat
import warnings
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from fedbo.exchange.base import Exchange, ExchangeError, ExchangeWarning, failed
from fedbo.federation import Federation
from fedbo.locks import Lock, alone
from fedbo.message import Fingerprint, Kind, Message
from fedbo.state import StateMissing, state_folder

NAME = "releases.jsonl"  # as version 0.1 called it
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the ledger: a message was sent, was not delivered, or was withdrawn.

    Args:
        when: The time in UTC, in the format of ISO 8601.
        action: "sent", "undelivered" (the exchange did not take the message) or "withdrawn".
        to: The address of the exchange.
        agent: The sender.
        federation: The fingerprint of the federation.
        epoch: The epoch of the federation.
        sequence: The sequence number of the message.
        t_n: How many trials the message is based on.
        kind: The kind of message: "weights", "belief" or "belief+incumbent".
        numbers: How many numbers the message has.
        nbytes: The size of the message in bytes.
        content: The whole message in base64; empty if it was withdrawn.
    """

    when: str
    action: Literal["sent", "undelivered", "withdrawn"]
    to: str
    agent: str
    federation: str
    epoch: int
    sequence: int
    t_n: int
    kind: Kind
    numbers: int
    nbytes: int
    content: str

    def message(self) -> Message:
        """Decode the message that was sent."""
        if not self.content:
            raise ValueError(
                f"message {self.sequence} of {self.agent!r} was {self.action} at {self.when}; "
                "its content is in the line that says when it was sent"
            )
        return Message.decode(base64.b64decode(self.content))


class Ledger:
    """A log of what was sent, in a file that only grows. Many processes may write to it at once.

    Args:
        path: The file. By default it is ``releases.jsonl`` in the folder that the environment
            variable ``FEDBO_STATE`` names, or else in the user's state folder
            (``~/.local/state/fedbo`` on Linux). It is created with the first entry.

    >>> import tempfile
    >>> from fedbo import Agent, Federation, Float
    >>> from fedbo.exchange import MemoryExchange
    >>> agent = Agent(Federation({"x": Float(0, 1)}), name="site-a", seed=0)
    >>> trial = agent.tell({"x": 0.3}, 1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(f"{folder}/ledger.jsonl")
    ...     is_out = ledger.publish(MemoryExchange(), agent.message())
    ...     [(entry.agent, entry.to, entry.numbers) for entry in ledger.read()]
    [('site-a', 'memory', 100)]
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        given = _default_path() if path is None else os.path.expanduser(path)
        self.path = Path(os.path.abspath(given))
        self._lock = Lock()
        # What was read so far: which file, and up to which position.
        self._file: tuple[int, int] | None = None
        self._position = 0
        self._out: dict[tuple[str, str], set[bytes]] = {}  # digests of messages, by to and agent
        self._last: dict[tuple[str, str, str, int], Entry] = {}  # the last one sent, by place

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def publish(self, exchange: Exchange, message: Message) -> bool:
        """Record the message, then publish it. A retry is not recorded twice.

        Args:
            exchange: Where to publish.
            message: The message to publish.

        Returns:
            Whether the exchange now hands out exactly this message.

        Raises:
            ExchangeError: If the message could not be recorded (then it is not sent) or published.
        """
        entry = _sent(message, exchange.address)
        try:
            is_new = self._append(entry)
        except OSError as error:
            what = f"message {message.sequence} of {message.sender!r} was not sent because it"
            raise failed(f"{what} could not be recorded in {self.path}", error) from error
        is_out = False
        try:
            is_out = exchange.publish(message)
        finally:
            if is_new and not is_out:
                # If this fails too, the ledger lists a message that did not leave, which is safe.
                with contextlib.suppress(OSError):
                    self._append(replace(entry, when=_now(), action="undelivered"))
        return is_out

    def withdraw(self, exchange: Exchange, federation: Federation, sender: str) -> bool:
        """Withdraw the sender's messages for this federation, then record that.

        Args:
            exchange: Where the messages were published.
            federation: The federation that they are for.
            sender: The agent that sent them.

        Returns:
            Whether there was a message to withdraw.

        Raises:
            ExchangeError: If the messages could not be withdrawn, or this could not be recorded.
        """
        if not exchange.withdraw(federation, sender):
            return False
        try:
            self._append(_withdrawn(exchange.address, federation, sender))
        except OSError as error:
            what = f"the message of {sender!r} was withdrawn from {exchange.address}, but this"
            raise failed(f"{what} could not be recorded in {self.path}", error) from error
        return True

    def read(self, agent: str | None = None) -> list[Entry]:
        """Read the entries, oldest first; a damaged line is skipped with a warning.

        Args:
            agent: Return only the entries of this agent; of all agents if None (default).
        """
        try:
            with alone(self.path):
                data = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise failed(f"the ledger {self.path} cannot be read", error) from error
        entries = []
        for number, entry in enumerate(map(_parsed, data.split(b"\n")), 1):
            if isinstance(entry, str):
                text = f"line {number} of {self.path} was skipped: {entry}"
                warnings.warn(text, ExchangeWarning, stacklevel=2)
            elif entry is not None and agent in (None, entry.agent):
                entries.append(entry)
        return entries

    def _append(self, entry: Entry) -> bool:
        """Write the entry unless its message is out already; return whether it was written."""
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with (
                open(os.open(self.path, _APPEND, 0o600), "ab+", buffering=0) as file,
                alone(self.path) as locked,
            ):
                cut_short = self._catch_up(file)
                out = self._out.get((entry.to, entry.agent), set())
                if entry.action == "sent" and _digest(entry) in out:
                    return False
                if entry.action == "withdrawn":  # say which message that was, if it is known
                    last = self._last.get(_place(entry), entry)
                    entry = replace(last, when=entry.when, action="withdrawn")
                # A crash may have cut the last line short. This entry starts a new line.
                line = b"\n" * cut_short + msgspec.json.encode(entry) + b"\n"
                _write(file, line, undo=locked)
                return True

    def _catch_up(self, file: io.FileIO) -> bool:
        """Read what was added since the last time; return whether the last line is cut short."""
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        identity = (status.st_dev, status.st_ino)
        if self._file != identity or status.st_size < self._position:
            self._file, self._position = identity, 0
            self._out.clear()
            self._last.clear()
        file.seek(self._position)
        *lines, rest = file.readall().split(b"\n")
        self._position += sum(len(line) + 1 for line in lines)
        for entry in map(_parsed, [*lines, rest]):  # the rest may only lack its line break
            if not isinstance(entry, Entry):
                continue
            out = self._out.setdefault((entry.to, entry.agent), set())
            if entry.action == "sent":
                out.add(_digest(entry))
                self._last[_place(entry)] = replace(entry, content="")
            elif entry.action == "undelivered":
                out.discard(_digest(entry))
            else:
                out.clear()
        return bool(rest)


def _default_path() -> Path:
    try:
        return state_folder() / NAME
    except StateMissing as error:
        raise ExchangeError(
            f"there is no folder for the ledger, and nothing is sent without one: {error}, or give "
            "ledger=Ledger(FILE)"
        ) from None


def _sent(message: Message, to: str) -> Entry:
    content = message.encode()
    return Entry(
        when=_now(),
        action="sent",
        to=to,
        agent=message.sender,
        federation=str(Fingerprint(message.fingerprint)),
        epoch=message.epoch,
        sequence=message.sequence,
        t_n=message.t_n,
        kind=message.kind,
        numbers=message.numbers,
        nbytes=len(content),
        content=base64.b64encode(content).decode(),
    )


def _withdrawn(to: str, federation: Federation, sender: str) -> Entry:
    return Entry(
        when=_now(),
        action="withdrawn",
        to=to,
        agent=sender,
        federation=str(federation.fingerprint),
        epoch=federation.epoch,
        sequence=0,
        t_n=0,
        kind=federation.kind,
        numbers=0,
        nbytes=0,
        content="",
    )


def _now() -> str:
    now = datetime.datetime.now(datetime.UTC)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _place(entry: Entry) -> tuple[str, str, str, int]:
    return entry.to, entry.agent, entry.federation, entry.epoch


def _digest(entry: Entry) -> bytes:
    return hashlib.sha256(entry.content.encode()).digest()


def _parsed(line: bytes) -> Entry | str | None:
    if not line.strip():
        return None
    try:
        return msgspec.json.decode(line, type=Entry)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return f"it is not a whole entry: {error}"


def _write(file: io.FileIO, line: bytes, *, undo: bool) -> None:
    """Write the line through to the disk; if that fails, remove the part that was written."""
    size = os.fstat(file.fileno()).st_size
    rest = memoryview(line)
    try:
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError:
        if undo:  # without a lock, another process may have written after it
            with contextlib.suppress(OSError):
                file.truncate(size)
        raise
