"""The log of what left: one line of JSON for each message that was handed out, and when, and where.

A line is on the disk before its message is sent. If it cannot be written, nothing is sent; so no
message leaves without a line. One that did not arrive has a second line that says so.
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
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from fedbo.exchange.base import Exchange, ExchangeError, ExchangeWarning, failed
from fedbo.exchange.locks import Lock, alone
from fedbo.federation import Federation
from fedbo.message import Fingerprint, Kind, Message

VARIABLE = "FEDBO_STATE"
NAME = "releases.jsonl"

_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the log: a message that was sent, but was not delivered, or was withdrawn.

    ``when`` is UTC as ISO 8601, ``to`` the address of the exchange, ``agent`` the sender,
    ``federation`` the fingerprint. ``numbers`` and ``nbytes`` say how much the message holds;
    ``content`` is all of it in base64, and empty where a message was withdrawn.
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
        """The message that was sent."""
        if not self.content:
            raise ValueError(
                f"message {self.sequence} of {self.agent!r} was {self.action} at {self.when}; "
                "its content is in the line that says when it was sent"
            )
        return Message.decode(base64.b64decode(self.content))


class Ledger:
    """What was handed out, in a file that only grows; many processes may write it.

    Without a path it is ``releases.jsonl`` in the folder that ``FEDBO_STATE`` names, else in the
    user's folder for such things (``~/.local/state/fedbo`` on Linux).

    >>> import tempfile
    >>> from fedbo import Agent, Federation, Float
    >>> from fedbo.exchange import MemoryExchange
    >>> agent = Agent(Federation({"x": Float(0, 1)}), name="site-a", seed=0)
    >>> trial = agent.tell({"x": 0.3}, 1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(f"{folder}/releases.jsonl")
    ...     is_out = ledger.publish(MemoryExchange(), agent.message())
    ...     [sent] = ledger.read()
    >>> sent.agent, sent.to, sent.numbers, sent.message() == agent.message()
    ('site-a', 'memory', 100, True)
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        given = _usual_path() if path is None else os.path.expanduser(path)
        self.path = Path(os.path.abspath(given))
        self._lock = Lock()
        self._file: tuple[int, int] | None = None  # which one was read so far
        self._read_to = 0
        self._out: dict[tuple[str, str], set[bytes]] = {}  # what is where of whom, as digests

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def publish(self, exchange: Exchange, message: Message) -> bool:
        """Write the message down, then publish it; a retry is not written down twice.

        True if the exchange now hands it out, as `Exchange.publish` says.
        """
        line = _sent(message, exchange.address)
        try:
            is_new = self._append(line)
        except OSError as error:
            what = f"message {message.sequence} of {message.sender!r} was not sent, because it"
            raise self._failed(what, error) from error
        is_out = False
        try:
            is_out = exchange.publish(message)
        finally:
            if is_new and not is_out:
                with contextlib.suppress(OSError):  # the line before says too much, not too little
                    late = msgspec.structs.replace(line, when=_now(), action="undelivered")
                    self._append(late)
        return is_out

    def withdraw(self, exchange: Exchange, federation: Federation, sender: str) -> bool:
        """Withdraw the sender's messages for this federation, then write that down.

        True if there was one. It is withdrawn even where that cannot be written down.
        """
        if not exchange.withdraw(federation, sender):
            return False
        try:
            self._append(self._withdrawn(exchange.address, federation, sender))
        except OSError as error:
            what = f"the message of {sender!r} was withdrawn from {exchange.address}, but this"
            raise self._failed(what, error) from error
        return True

    def read(self, agent: str | None = None) -> list[Entry]:
        """All lines, or those of one agent, oldest first; a damaged line is skipped."""
        lines = [*enumerate(self._lines(), 1)]
        for number, line in lines:
            if isinstance(line, str):
                text = f"line {number} of {self.path} was skipped: {line}"
                warnings.warn(text, ExchangeWarning, stacklevel=2)
        ledger = [line for _, line in lines if isinstance(line, Entry)]
        return [release for release in ledger if agent is None or release.agent == agent]

    def _lines(self) -> Iterator[Entry | str | None]:
        """Each line: a release, what is wrong with it, or None if it is empty."""
        try:
            with alone(self.path):
                data = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise failed(f"the log {self.path} cannot be read", error) from error
        yield from map(_parsed, data.split(b"\n"))

    def _append(self, release: Entry) -> bool:
        """Write the line, unless its message is out already; whether it was written."""
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with (
                open(os.open(self.path, _APPEND, 0o600), "ab+", buffering=0) as file,
                alone(self.path) as locked,
            ):
                cut_short = self._catch_up(file)
                out = self._out.get((release.to, release.agent), set())
                if release.action == "sent" and _digest(release) in out:
                    return False
                # What a crash cut short must not swallow this line too.
                line = b"\n" * cut_short + msgspec.json.encode(release) + b"\n"
                _write(file, line, undo=locked)
                return True

    def _catch_up(self, file: io.FileIO) -> bool:
        """Read what was added since the last time; whether the last line has no end."""
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file")
        if self._file != (status.st_dev, status.st_ino) or status.st_size < self._read_to:
            self._file, self._read_to = (status.st_dev, status.st_ino), 0
            self._out.clear()
        file.seek(self._read_to)
        *lines, last = file.readall().split(b"\n")
        self._read_to += sum(len(line) + 1 for line in lines)
        for release in map(_parsed, lines):
            if isinstance(release, Entry):
                out = self._out.setdefault((release.to, release.agent), set())
                if release.action == "sent":
                    out.add(_digest(release))
                elif release.action == "undelivered":
                    out.discard(_digest(release))
                else:
                    out.clear()
        return bool(last)

    def _withdrawn(self, to: str, federation: Federation, sender: str) -> Entry:
        """The line that says so; it names the message that was sent last, if that is known."""
        line = Entry(
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
        for last in self._lines():
            if isinstance(last, Entry) and last.action == "sent" and _place(last) == _place(line):
                line = msgspec.structs.replace(last, when=line.when, action="withdrawn", content="")
        return line

    def _failed(self, what: str, error: OSError) -> ExchangeError:
        return failed(f"{what} could not be written down in {self.path}", error)


def _usual_path() -> Path:
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named) / NAME
    if sys.platform == "darwin":
        return _home() / "Library" / "Application Support" / "fedbo" / NAME
    variable, usual = (
        ("LOCALAPPDATA", Path("AppData", "Local"))
        if sys.platform == "win32"
        else ("XDG_STATE_HOME", Path(".local", "state"))
    )
    folder = Path(os.environ.get(variable, ""))
    # A relative XDG_STATE_HOME is to be ignored, says its specification.
    return (folder if folder.is_absolute() else _home() / usual) / "fedbo" / NAME


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise ExchangeError(
            f"there is no place for the log of what leaves: {error} It is needed, because nothing "
            f"leaves without a line in it; set {VARIABLE} to a folder, or give "
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


def _now() -> str:
    now = datetime.datetime.now(datetime.UTC)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _place(release: Entry) -> tuple[str, str, str, int]:
    return release.to, release.agent, release.federation, release.epoch


def _digest(release: Entry) -> bytes:
    return hashlib.sha256(release.content.encode()).digest()


def _parsed(line: bytes) -> Entry | str | None:
    if not line.strip():
        return None
    try:
        return msgspec.json.decode(line, type=Entry)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return f"it is not a release, or not a whole one: {error}"


def _write(file: io.FileIO, line: bytes, *, undo: bool) -> None:
    """Write the line and see it on the disk; if that fails, take back the part that was written."""
    before = os.fstat(file.fileno()).st_size
    rest = memoryview(line)
    try:
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError:
        if undo:  # else somebody may have written behind it
            with contextlib.suppress(OSError):
                file.truncate(before)
        raise
