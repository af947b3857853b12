"""The ledger: a log of every message that left this machine, one line of JSON for each.

The line is on disk before its message is sent. If the line cannot be written, the message is not
sent. So nothing leaves unrecorded. A message that was not delivered gets a second line.

Private releases are recorded too, with all that the accountant needs: by the party that makes them,
before anyone can see them, and by everyone who receives them.

The ledger also knows which messages are this user's own, and of which study: no other message is
withdrawn.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from fedbo import files
from fedbo.caller import warn
from fedbo.errors import ExchangeError, NotOurs, NotSent
from fedbo.exchange.base import Exchange
from fedbo.exchange.errors import ExchangeWarning, failing
from fedbo.federation.federation import Federation
from fedbo.files import Lock, alone
from fedbo.message import Fingerprint, Heard, Message, MessageKind, Release, Withdrawal
from fedbo.outside import printable, shortened
from fedbo.privacy.statement import broken_promise
from fedbo.state import make_folder, state_folder
from fedbo.trust.keys import KeyPair

NAME = "ledger.jsonl"
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0)
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
_LONGEST = 2**27  # bytes of a line: enough for a belief with M = 5,000, in base64


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the ledger: what happened to a message."""

    when: str  # in UTC, in the format of ISO 8601
    #: "undelivered": it was not sent, or a folder did not take it; "received": a private release.
    action: Literal["sent", "undelivered", "withdrawn", "handed out", "received"]
    to: str  # the address of the exchange; empty if an agent handed it out to its program
    agent: str  # the sender
    federation: str  # its fingerprint
    sequence: int
    t_n: int  # trials behind the message
    kind: MessageKind | Literal["release"]
    nbytes: int  # the size of the message
    content: str  # the whole message in base64; empty if it was withdrawn
    study: str = ""  # the id of the study that sent it, if one did

    def message(self) -> Heard:
        """Decode the message or release; a ValueError if it is not in this line, or damaged."""
        if not self.content:
            raise ValueError(
                f"message {self.sequence} of {self.agent!r} was {self.action} at {self.when}; "
                "its content is in the line that says when it was sent"
            )
        data = base64.b64decode(self.content)
        return Release.decode(data) if self.kind == "release" else Message.decode(data)


class _Index:
    """What the lines of a ledger say. Messages are known by their contents' digests."""

    def __init__(self) -> None:
        self.left: dict[bytes, set[str]] = {}  # to which addresses it was sent; empty: handed out
        self.studies: dict[bytes, set[str]] = {}  # which studies sent it
        #: What was sent last, and not withdrawn, by address, federation and agent.
        self.last: dict[tuple[str, str, str], Entry] = {}
        self.releases: dict[str, dict[str, None]] = {}  # contents, by federation
        self.damaged: set[int] = set()  # where lines begin that may have been releases

    def add(self, line: bytes, position: int) -> None:
        """Take note of a line; of the same line again, too."""
        entry = _parsed(line)
        self.damaged.discard(position)
        if not isinstance(entry, Entry):
            self.damaged |= set() if entry is None else {position}
        elif entry.action == "undelivered":
            self.left.get(_digest(entry.content), set()).discard(entry.to)
        elif entry.action == "withdrawn":
            for places in self.left.values():
                places.discard(entry.to)
            self.last.pop((entry.to, entry.federation, entry.agent), None)
        else:
            digest = _digest(entry.content)
            self.left.setdefault(digest, set()).add(entry.to)
            self.studies.setdefault(digest, set()).add(entry.study)
            if entry.kind == "release":
                self.releases.setdefault(entry.federation, {})[entry.content] = None
            elif entry.action == "sent":
                self.last[entry.to, entry.federation, entry.agent] = entry

    def has(self, entry: Entry) -> bool:
        """Return whether there is nothing new in an entry."""
        places = self.left.get(_digest(entry.content), set())
        if entry.action != "sent":
            return entry.action in ("handed out", "received") and bool(places)
        return entry.to in places

    def made(self, fingerprint: bytes) -> list[Release]:
        """Return the releases of a federation, by number."""
        contents = self.releases.get(str(Fingerprint(fingerprint)), {})
        try:
            releases = [Release.decode(base64.b64decode(content)) for content in contents]
        except ValueError as error:
            raise ExchangeError(
                f"a release in the ledger is damaged: {error}; restore it from a copy"
            ) from None
        return sorted(releases, key=lambda release: release.sequence)


class Ledger:
    """A log of what was sent, in a file that only grows. Many processes may write to it at once.

    Args:
        path: The file. By default it is ``ledger.jsonl`` in the folder that the environment
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
    ...     [(entry.agent, entry.to, entry.kind) for entry in ledger.read()]
    [('site-a', 'memory', 'compact')]
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        if path is None:
            with failing("there is no folder for the ledger, and nothing is sent without one"):
                path = state_folder() / NAME
        self.path = Path(os.path.abspath(os.path.expanduser(path)))
        self._lock = Lock()
        # What was read so far: of which file, up to which position, and what it said.
        self._identity: tuple[int, int] | None = None
        self._position, self._rest = 0, b""  # the rest is a last line without its line break
        self._index = _Index()

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def publish(self, exchange: Exchange, message: Heard, study: str = "") -> bool:
        """Record the message, then publish it; return whether the exchange now hands it out.

        A retry is not recorded twice. It raises an `ExchangeError` if the message could not be
        recorded (then it is not sent) or published; also if it is a contribution to releases that
        have broken their plan.

        Args:
            exchange: Where to publish.
            message: The message or the release to publish.
            study: The id of the study that sends it, so that no other study withdraws it.
        """
        entry = _entry("sent", message, exchange.address, study)
        what = f"message {entry.sequence} of {entry.agent!r} was not sent because it"
        is_new = self._record(entry, what)
        try:
            return exchange.publish(message)
        except NotSent:
            if is_new:
                # If this fails too, the ledger lists a message that did not leave, which is safe.
                with contextlib.suppress(OSError):
                    self._record(replace(entry, when=_now(), action="undelivered"), what)
            raise

    def record(self, message: Heard) -> None:
        """Record a message that an agent hands out to the program, which may send it anywhere.

        One that was sent or handed out before is not recorded again. After an `ExchangeError`, as
        `publish` raises it, the message must not be handed out.
        """
        what = f"message {message.sequence} of {message.sender!r} was not handed out because it"
        self._record(_entry("handed out", message), what)

    def receive(self, release: Release) -> None:
        """Record a release that was received and checked, once."""
        what = f"release {release.sequence} of {release.sender!r}, which was received,"
        self._record(_entry("received", release), what)
        if fault := broken_promise(self._made(release.fingerprint)):
            warn(f"{fault}. Contributions to it are no longer sent from here", ExchangeWarning)

    def add_release(
        self, federation: Federation, make: Callable[[list[Release]], Release]
    ) -> Release:
        """Make the next private release, and record it before anyone can see it.

        While ``make`` runs, which gets those that were made so far (`fedbo.privacy.next_release`),
        no other process can make or record one here. If the process is killed before the record is
        complete, nothing was released; after that, `releases` has the release, which can still be
        published. It raises an `ExchangeError`, and nothing is released, if it could not be
        recorded, or if the ledger has a damaged line, which may have been a release.
        """
        federation.require_plan()
        refusal = f"no release is made, because {self.path}"
        with failing(f"{refusal} cannot be written"), self._opened(_APPEND) as (file, is_locked):
            if not is_locked:
                raise ExchangeError(
                    f"{refusal} cannot be locked, and two processes could spend the same budget: "
                    "keep it on a local disk, and not on Windows"
                )
            if self._index.damaged:
                raise ExchangeError(
                    f"{refusal} has damaged lines ({len(self._index.damaged)}), which may have "
                    "been releases: restore it from a copy. If a line was cut short while it was "
                    "written (the process was killed, or the disk was full), and nobody has that "
                    "release (ask members for fedbo ledger), delete the line"
                )
            made = self._index.made(federation.fingerprint)
            release = make([*made])
            federation.check(release)
            if made and release.sequence <= made[-1].sequence:
                raise ValueError(
                    f"the release has the number {release.sequence}, expected one after "
                    f"{made[-1].sequence}, the last that is recorded in {self.path}"
                )
            self._write(file, _entry("handed out", release))
        return release

    def studies(self, message: Message) -> set[str]:
        """Return the ids of the studies that have sent this message from here, ever."""
        with self._reading("the ledger"):
            return self._index.studies.get(_digest(_encoded(message)), set()) - {""}

    def releases(self, federation: Federation) -> list[Release]:
        """Return the releases of a federation that were made here or received, by number."""
        return self._made(federation.fingerprint)

    def withdraw(
        self,
        exchange: Exchange,
        federation: Federation,
        sender: str,
        keys: KeyPair,
        study: str | None = None,
    ) -> bool:
        """Withdraw what was signed with these keys under a name, then record that.

        A withdrawal takes the place of the message, which cannot be put back then.

        Args:
            exchange: Where the message is.
            federation: Its federation.
            sender: Its sender.
            keys: Its key pair.
            study: Withdraw it only if this study sent it, or if it is not known which one did.

        Returns:
            Whether there was a message to withdraw; `NotOurs` is raised if it is another study's.
        """
        with self._reading("nothing was withdrawn, because the ledger"):
            entry = self._index.last.get((exchange.address, str(federation.fingerprint), sender))
            studies = self._index.studies
        contents = [trusted.content for trusted in exchange.fetch(federation)]
        with contextlib.suppress(ValueError):  # its line is damaged
            contents += [] if entry is None else [entry.message()]
        ours = sender, keys.public
        known = [m for m in contents if isinstance(m, Message) and (m.sender, m.key) == ours]
        if not known:
            return False
        message = max(known, key=lambda each: each.sequence)
        sent_by = studies.get(_digest(_encoded(message)))
        if study is not None and sent_by is not None and not sent_by & {study, ""}:
            raise NotOurs(
                f"nothing was withdrawn: by the ledger, another study or machine sent the message "
                f"of {sender!r} at {exchange.address}, and only it can withdraw it, or fedbo "
                "exchange withdraw if it was deleted"
            )
        withdrawal = Withdrawal(
            fingerprint=message.fingerprint, sender=sender, sequence=message.sequence
        )
        if not exchange.publish(keys.sign(withdrawal)):
            raise NotOurs(
                f"nothing was withdrawn: {exchange.address} has a later message of {sender!r} than "
                "is known here; withdraw it on the machine that sent it"
            )
        entry = _entry("withdrawn", message, exchange.address, study or "")
        what = f"the message of {sender!r} was withdrawn from {exchange.address}, but this"
        self._record(replace(entry, content=""), what)
        return True

    def read(self, agent: str | None = None) -> list[Entry]:
        """Read the entries of an agent, or of all, oldest first; damaged lines are skipped."""
        entries, faults = [], []
        with (
            failing(f"the ledger {self.path} cannot be read"),
            contextlib.suppress(FileNotFoundError),
            self._file(_READ) as file,
        ):
            for number, line in enumerate(_lines(file), 1):
                entry = _parsed(line)
                if isinstance(entry, str):
                    faults.append(f"line {number} of {self.path}: {entry}")
                elif entry is not None and agent in (None, entry.agent):
                    entries.append(entry)
        if faults:
            text = f"damaged lines were skipped ({len(faults):,}); {faults[0]}"
            warn(text, ExchangeWarning)
        return entries

    def _made(self, fingerprint: bytes) -> list[Release]:
        with self._reading("the ledger"):
            return self._index.made(fingerprint)

    def _record(self, entry: Entry, what: str) -> bool:
        """Write an entry unless there is nothing new in it; return whether it was written."""
        failed = f"{what} could not be recorded in {self.path}"
        with failing(failed), self._opened(_APPEND) as (file, _):
            self._check_promise(entry)
            if is_new := not self._index.has(entry):
                self._write(file, entry)
        return is_new

    def _check_promise(self, entry: Entry) -> None:
        """Refuse a contribution to a broken plan."""
        if entry.kind != "contribution" or entry.action not in ("sent", "handed out"):
            return
        if fault := broken_promise(self._index.made(entry.message().fingerprint)):
            raise ExchangeError(
                f"the contribution of {entry.agent!r} was not handed out: {fault}. Ask whoever "
                "makes the releases what happened, and agree on a new federation"
            )

    @contextlib.contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        """Bring the index up to date, and hold the lock."""
        with failing(f"{what} {self.path} cannot be read"):
            with contextlib.suppress(FileNotFoundError), self._opened(_READ):
                yield
                return
            self._index = _Index()
            yield

    @contextlib.contextmanager
    def _opened(self, flags: int) -> Iterator[tuple[io.BufferedReader, bool]]:
        """Open and lock the file, and read what is new; say whether it is locked."""
        with self._lock:
            if flags == _APPEND and self._identity is None:
                make_folder(self.path.parent)
            with self._file(flags) as file, alone(file.fileno()) as is_locked:
                self._catch_up(file)
                yield file, is_locked

    def _file(self, flags: int) -> io.BufferedReader:
        file = open(os.open(self.path, flags, 0o600), "rb")  # noqa: SIM115
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise OSError(errno.EINVAL, "it is not a regular file")
        return file

    def _catch_up(self, file: io.BufferedReader) -> None:
        """Read what was added since the last time."""
        status = os.fstat(file.fileno())
        identity = (status.st_dev, status.st_ino)
        if self._identity != identity or status.st_size < self._position:
            self._identity, self._position, self._index = identity, 0, _Index()
        file.seek(self._position)
        self._rest = b""
        for line in _lines(file):
            self._index.add(line, self._position)
            self._position += len(line)
            self._rest = b"" if line.endswith(b"\n") else line
        self._position -= len(self._rest)  # which may only lack its line break

    def _write(self, file: io.BufferedReader, entry: Entry) -> None:
        """Write an entry through to the disk; after what was cut short, in a new line."""
        line = b"\n" * bool(self._rest) + msgspec.json.encode(entry) + b"\n"
        while line:
            line = line[os.write(file.fileno(), line) :]
        os.fsync(file.fileno())
        if not self._position:
            files.sync(str(self.path.parent))


def _entry(
    action: Literal["sent", "withdrawn", "handed out", "received"],
    message: Heard,
    to: str = "",
    study: str = "",
) -> Entry:
    return Entry(
        when=_now(),
        action=action,
        to=to,
        agent=message.sender,
        federation=str(Fingerprint(message.fingerprint)),
        sequence=message.sequence,
        t_n=message.t_n,
        kind=message.kind,
        nbytes=message.nbytes,
        content=_encoded(message),
        study=study,
    )


def _now() -> str:
    now = datetime.datetime.now(datetime.UTC)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _encoded(message: Heard) -> str:
    return base64.b64encode(message.encode()).decode()


def _digest(content: str) -> bytes:
    return hashlib.sha256(content.encode()).digest()


def _lines(file: io.BufferedReader) -> Iterator[bytes]:
    """Yield the lines from here on; one that is far too long comes in pieces."""
    while line := file.readline(_LONGEST):
        yield line
        if not line.endswith(b"\n") and len(line) < _LONGEST:  # somebody is still writing it
            return


def _parsed(line: bytes) -> Entry | str | None:
    """Return the entry in a line, or what is wrong with it; None if there is nothing."""
    is_start = line.startswith(b'{"when":') and not line.rstrip().endswith(b"}")
    is_release = b'"kind":"release"' in line  # its end may have been lost after it was made
    if not line.strip() or (is_start and b"\0" not in line and not is_release):
        return None  # it was never complete, and nothing left
    try:
        return msgspec.json.decode(line, type=Entry)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return f"it is not a whole entry: {printable(shortened(str(error), 200))}"
