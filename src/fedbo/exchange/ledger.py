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
from fedbo.exchange.base import Exchange
from fedbo.exchange.choice import LARGEST
from fedbo.exchange.errors import ExchangeError, ExchangeWarning, failed
from fedbo.exchange.hub.exchange import HubExchange
from fedbo.exchange.hub.wire import Progress
from fedbo.federation.federation import Federation
from fedbo.files import Lock, alone
from fedbo.identity.keys import KeyPair
from fedbo.message import Fingerprint, Heard, Message, MessageKind, Release
from fedbo.outside import printable, shortened
from fedbo.privacy.statement import broken_promise
from fedbo.state import StateMissing, make_folder, state_folder

NAME = "ledger.jsonl"
_OPTIONS = getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe makes nobody wait
_READ = os.O_RDONLY | _OPTIONS
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | _OPTIONS
_LONGEST = 2 * LARGEST  # bytes of a line; a message in base64 has 4/3 of its bytes


class NotOurs(ExchangeError):
    """The message that should be withdrawn is another's; the text says whose."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the ledger: what happened to a message.

    Args:
        when: The time in UTC, in the format of ISO 8601.
        action: "sent" to an exchange, "undelivered" (the exchange did not take it), "withdrawn",
            "received" (a private release), or
            "handed out" by an agent to the program that it runs in.
        to: The address of the exchange; empty if the message was handed out.
        agent: The sender.
        federation: The fingerprint of the federation.
        sequence: The sequence number of the message.
        t_n: How many trials the message is based on.
        kind: The kind of message, or "release".
        numbers: How many numbers were handed out.
        nbytes: The size of the message in bytes.
        content: The whole message in base64; empty if it was withdrawn.
        study: The id of the study that sent it; empty if no study did.
        progress: What a hub was told beside the message.
    """

    when: str
    action: Literal["sent", "undelivered", "withdrawn", "handed out", "received"]
    to: str
    agent: str
    federation: str
    sequence: int
    t_n: int
    kind: MessageKind | Literal["release"]
    numbers: int
    nbytes: int
    content: str
    study: str = ""
    progress: Progress | None = None

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
    """What the lines of a ledger say. Messages are known by their digests."""

    def __init__(self) -> None:
        # What was sent and not withdrawn since, by address, agent and federation.
        self.out: dict[tuple[str, str, str], dict[bytes, Entry]] = {}
        self.studies: dict[bytes, set[str]] = {}  # which studies sent it, ever
        self.releases: dict[str, dict[bytes, str]] = {}  # contents, by federation
        self.randomised: dict[tuple[str, str], float] = {}  # local ε, by agent and federation
        self.damaged: set[int] = set()  # where lines begin that may have been releases

    def add(self, entry: Entry) -> None:
        """Take note of an entry; of the same entry again, too."""
        digest = _digest(entry.content)
        out = self.out.setdefault((entry.to, entry.agent, entry.federation), {})
        if entry.action == "undelivered":
            out.pop(digest, None)
        elif entry.action == "withdrawn":
            for other, sent in [*out.items()]:
                if "" in (sent.study, entry.study) or sent.study == entry.study:
                    del out[other]
        else:
            out[digest] = replace(entry, content="")
            self.studies.setdefault(digest, set()).add(entry.study)
        if entry.kind == "release":
            self.releases.setdefault(entry.federation, {})[digest] = entry.content
        if entry.kind == "contribution" and entry.content:
            with contextlib.suppress(ValueError):  # one that is damaged was not randomised
                message = entry.message()
                if isinstance(message, Message) and message.local_epsilon is not None:
                    agent = entry.agent, entry.federation
                    self.randomised.setdefault(agent, message.local_epsilon)

    def has(self, entry: Entry) -> bool:
        """Return whether there is nothing new in an entry."""
        digest = _digest(entry.content)
        if entry.action in ("handed out", "received"):
            return any(digest in out for out in self.out.values())
        sent = self.out.get((entry.to, entry.agent, entry.federation), {}).get(digest)
        return (
            entry.action == "sent" and sent is not None and entry.progress in (None, sent.progress)
        )


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
    ...     [(entry.agent, entry.to, entry.numbers) for entry in ledger.read()]
    [('site-a', 'memory', 16)]
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        given = _default_path() if path is None else os.path.expanduser(path)
        self.path = Path(os.path.abspath(given))
        self._lock = Lock()
        # What was read so far: of which file, up to which position, and what it said.
        self._file: tuple[int, int] | None = None
        self._position = 0
        self._index = _Index()

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def publish(
        self,
        exchange: Exchange,
        message: Heard,
        study: str = "",
        progress: Progress | None = None,
    ) -> bool:
        """Record the message, then publish it. A retry is not recorded twice.

        It raises an `ExchangeError` if the message could not be recorded (then it is not sent) or
        published; also if it is a contribution to releases that have broken their plan, or one
        without local privacy after others that had it.

        Args:
            exchange: Where to publish.
            message: The message or the release to publish.
            study: The id of the study that sends it, so that no other study withdraws it.
            progress: How far the agent has come, if members may see that. Only a hub shows it.

        Returns:
            Whether the exchange now hands out exactly this message.
        """
        if progress is not None and not isinstance(exchange, HubExchange):
            raise ExchangeError(f"{exchange.address} cannot show progress; only a hub can")
        self._check_promise(message)
        entry = _entry("sent", message, exchange.address, study, progress)
        is_new = self._record(entry)
        is_out = False
        try:
            if isinstance(exchange, HubExchange):
                is_out = exchange.publish(message, progress)
            else:
                is_out = exchange.publish(message)
        finally:
            if is_new and not is_out:
                # If this fails too, the ledger lists a message that did not leave, which is safe.
                with contextlib.suppress(OSError):
                    self._append(replace(entry, when=_now(), action="undelivered"))
        return is_out

    def record(self, message: Heard) -> None:
        """Record a message that an agent hands out to the program, which may send it anywhere.

        One that was sent or handed out before is not recorded again. After an `ExchangeError`, as
        `publish` raises it, the message must not be handed out.
        """
        self._check_promise(message)
        self._record(_entry("handed out", message))

    def receive(self, release: Release) -> None:
        """Record a release that was received and checked, once."""
        self._record(_entry("received", release))
        if text := broken_promise(self._releases(release.fingerprint)):
            warn(f"{text}. Contributions to it are no longer sent from here", ExchangeWarning)

    def add_release(
        self, federation: Federation, make: Callable[[list[Release]], Release]
    ) -> Release:
        """Make the next private release, and record it before anyone can see it.

        While ``make`` runs, no other process can make or record a release here. If the process is
        killed before the record is complete, nothing was released. If it is killed after that,
        `releases` has the release, which can still be published.
        It raises an `ExchangeError` if the release could not be recorded, or if the ledger has a
        damaged line, which may have been a release; then nothing is released.

        Args:
            federation: The federation, with its privacy plan.
            make: Makes the next release of those that were made so far, see
                `fedbo.privacy.next_release`. If it raises an error, nothing is recorded.
        """
        federation.require_plan()
        refusal = f"no release is made, because {self.path}"
        try:
            with self._opened(_APPEND) as (file, is_locked):
                if not is_locked:
                    raise ExchangeError(
                        f"{refusal} cannot be locked, and two processes could spend the same "
                        "budget: keep it on a local disk, and not on Windows"
                    )
                cut_short = self._catch_up(file)
                if self._index.damaged:
                    raise ExchangeError(
                        f"{refusal} has damaged lines ({len(self._index.damaged)}), which may have "
                        "been releases: restore it from a copy"
                    )
                made = self._known_releases(federation.fingerprint)
                release = make([*made])
                federation.check(release)
                if made and release.sequence <= made[-1].sequence:
                    raise ValueError(
                        f"the release has the number {release.sequence}, expected one after "
                        f"{made[-1].sequence}, the last that is recorded in {self.path}"
                    )
                _write(file, _entry("handed out", release), cut_short, undo=True)
                files.sync(str(self.path.parent))
        except ExchangeError:
            raise
        except OSError as error:
            raise failed(f"{refusal} cannot be written", error) from error
        return release

    def studies(self, message: Message) -> set[str]:
        """Return the ids of the studies that have sent this message from here, ever."""
        try:
            return self._read_index().studies.get(_digest(_encoded(message)), set()) - {""}
        except OSError as error:
            raise failed(f"the ledger {self.path} cannot be read", error) from error

    def releases(self, federation: Federation) -> list[Release]:
        """Return the releases of a federation that were made here or received, by number."""
        return self._releases(federation.fingerprint)

    def withdraw(
        self,
        exchange: Exchange,
        federation: Federation,
        sender: str,
        keys: KeyPair | None = None,
        study: str | None = None,
    ) -> bool:
        """Withdraw this user's message for this federation, then record that.

        A message is this user's if it is signed with ``keys``, or if it is not signed and recorded
        here. One that is recorded for another study is left alone.

        Args:
            exchange: Where the message was published.
            federation: The federation that it is for.
            sender: The agent that sent it.
            keys: The key pair that signed it; None (default) if it is not signed.
            study: Withdraw only a message of the study with this id; None (default): of any.

        Returns:
            Whether there was a message to withdraw; `NotOurs` is raised if it is another's.
        """
        studies: dict[bytes, set[str]] = {}
        try:
            studies = self._read_index().studies
        except OSError as error:
            if keys is None:  # else the key tells whose message it is
                what = f"nothing was withdrawn, because the ledger {self.path} cannot be read"
                raise failed(what, error) from error
        ours: list[Message] = []
        others: list[str] = []  # whose they are

        def is_ours(message: Message) -> bool:
            sent_by = studies.get(_digest(_encoded(message)))
            if sent_by is None and keys is None:
                others.append("this machine has no record of it")
            elif sent_by is not None and study is not None and not sent_by & {study, ""}:
                others.append("another study of this user sent it")
            else:
                ours.append(message)
                return True
            return False

        if not exchange.withdraw(federation, sender, keys, is_ours):
            if others:
                raise NotOurs(
                    f"nothing was withdrawn: the message of {sender!r} at {exchange.address} is "
                    f"not this study's, as {others[0]}. Whoever sent it can withdraw it; if two "
                    "agents have one name, rename one of them"
                )
            return False
        for message in ours[-1:]:
            entry = _entry("withdrawn", message, exchange.address, study or "")
            try:
                self._append(replace(entry, content=""))
            except OSError as error:
                what = f"the message of {sender!r} was withdrawn from {exchange.address}, but this"
                raise failed(f"{what} could not be recorded in {self.path}", error) from error
        return True

    def read(self, agent: str | None = None) -> list[Entry]:
        """Read the entries of an agent, or of all, oldest first; damaged lines are skipped."""
        entries, faults = [], []
        try:
            with _file(self.path, _READ) as file:
                with alone(file.fileno()):
                    size = _size(file)  # what is written from now on is not read
                for number, line in enumerate(_lines(file, size), 1):
                    entry = _parsed(line)
                    if isinstance(entry, str):
                        faults.append(f"line {number} of {self.path}: {entry}")
                    elif entry is not None and agent in (None, entry.agent):
                        entries.append(entry)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise failed(f"the ledger {self.path} cannot be read", error) from error
        if faults:
            text = f"damaged lines were skipped ({len(faults):,}); {faults[0]}"
            warn(text, ExchangeWarning)
        return entries

    def _check_promise(self, message: Heard) -> None:
        """Refuse a contribution to a broken plan, and one that would undo a randomised vote."""
        if not isinstance(message, Message) or message.kind != "contribution":
            return
        refusal = f"the contribution of {message.sender!r} was not handed out"
        if text := broken_promise(self._releases(message.fingerprint)):
            raise ExchangeError(
                f"{refusal}: {text}. Ask whoever makes the releases what happened, and agree on a "
                "new federation"
            )
        agent = message.sender, str(Fingerprint(message.fingerprint))
        first = self._index.randomised.get(agent, message.local_epsilon)
        if first != message.local_epsilon:
            now = message.local_epsilon
            what = "it is not randomised" if now is None else f"it is randomised with ε = {now:g}"
            raise ExchangeError(
                f"{refusal}: {what}, and an earlier one was with ε = {first:g}: both together "
                "would tell more. Give the same ε of local privacy (--local-epsilon, or "
                "Settings(local_epsilon=...)), or take part under another name"
            )

    def _record(self, entry: Entry) -> bool:
        """Write an entry unless there is nothing new in it; return whether it was written."""
        try:
            return self._append(entry)
        except OSError as error:
            what = f"message {entry.sequence} of {entry.agent!r} was not {entry.action} because it"
            raise failed(f"{what} could not be recorded in {self.path}", error) from error

    def _append(self, entry: Entry) -> bool:
        with self._opened(_APPEND) as (file, is_locked):
            cut_short = self._catch_up(file)
            if self._index.has(entry):
                return False
            is_first = not _size(file)
            _write(file, entry, cut_short, undo=is_locked)
            if is_first:
                files.sync(str(self.path.parent))
            return True

    def _releases(self, fingerprint: bytes) -> list[Release]:
        try:
            self._read_index()
        except OSError as error:
            raise failed(f"the ledger {self.path} cannot be read", error) from error
        with self._lock:
            return self._known_releases(fingerprint)

    def _known_releases(self, fingerprint: bytes) -> list[Release]:
        contents = self._index.releases.get(str(Fingerprint(fingerprint)), {}).values()
        try:
            releases = [Release.decode(base64.b64decode(content)) for content in contents]
        except ValueError as error:
            raise ExchangeError(
                f"a release in {self.path} is damaged: {error}; restore the file from a copy"
            ) from None
        return sorted(releases, key=lambda release: release.sequence)

    @contextlib.contextmanager
    def _opened(self, flags: int) -> Iterator[tuple[io.FileIO, bool]]:
        """Open and lock the file; say whether it is locked against other processes, too."""
        with self._lock:
            try:
                file = _file(self.path, flags)
            except FileNotFoundError:
                if flags != _APPEND:
                    raise
                make_folder(self.path.parent)
                file = _file(self.path, flags)
            with file, alone(file.fileno()) as is_locked:
                yield file, is_locked

    def _read_index(self) -> _Index:
        """Read what was added since the last time."""
        try:
            with self._opened(_READ) as (file, _):
                self._catch_up(file)
        except FileNotFoundError:
            return _Index()
        return self._index

    def _catch_up(self, file: io.FileIO) -> bool:
        """Read what was added since the last time; return whether the last line is cut short."""
        status, size = os.fstat(file.fileno()), _size(file)
        identity = (status.st_dev, status.st_ino)
        if self._file != identity or size < self._position:
            self._file, self._position, self._index = identity, 0, _Index()
        file.seek(self._position)
        rest = b""
        for line in _lines(file, size - self._position):
            self._position += len(line)
            rest = b"" if line.endswith(b"\n") else line
            entry = _parsed(line)  # the last one may only lack its line break
            if isinstance(entry, Entry):
                self._index.add(entry)
            elif entry is not None and not _is_cut_short(line):
                self._index.damaged.add(self._position - len(line))
        self._position -= len(rest)
        return bool(rest)


def _default_path() -> Path:
    try:
        return state_folder() / NAME
    except StateMissing as error:
        raise ExchangeError(
            f"there is no folder for the ledger, and nothing is sent without one: {error}, or give "
            "ledger=Ledger(FILE)"
        ) from None


def _entry(
    action: Literal["sent", "withdrawn", "handed out", "received"],
    message: Heard,
    to: str = "",
    study: str = "",
    progress: Progress | None = None,
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
        numbers=message.numbers + (0 if progress is None else progress.numbers),
        nbytes=message.nbytes,
        content=_encoded(message),
        study=study,
        progress=progress,
    )


def _now() -> str:
    now = datetime.datetime.now(datetime.UTC)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _encoded(message: Heard) -> str:
    return base64.b64encode(message.encode()).decode()


def _digest(content: str) -> bytes:
    return hashlib.sha256(content.encode()).digest()


def _parsed(line: bytes) -> Entry | str | None:
    if not line.strip():
        return None
    try:
        return msgspec.json.decode(line, type=Entry)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return f"it is not a whole entry: {printable(shortened(str(error), 200))}"


def _is_cut_short(line: bytes) -> bool:
    """Tell whether a line is the start of an entry: it was never complete, and nothing left."""
    return line.startswith(b'{"when":') and not line.rstrip().endswith(b"}") and b"\0" not in line


def _file(path: Path, flags: int) -> io.FileIO:
    return io.FileIO(os.open(path, flags, 0o600), "ab+" if flags & os.O_CREAT else "rb")


def _size(file: io.FileIO) -> int:
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return status.st_size


def _lines(file: io.FileIO, size: int) -> Iterator[bytes]:
    """Yield the lines in the next ``size`` bytes; one that is far too long comes in pieces."""
    reader = io.BufferedReader(file)
    try:
        while size > 0 and (line := reader.readline(min(size, _LONGEST))):
            size -= len(line)
            yield line
    finally:
        reader.detach()


def _write(file: io.FileIO, entry: Entry, cut_short: bool, *, undo: bool) -> None:
    """Write the entry through to the disk; if that fails, remove the part that was written.

    A crash may have cut the last line short. Then this entry starts a new line.
    """
    size = os.fstat(file.fileno()).st_size
    rest = memoryview(b"\n" * cut_short + msgspec.json.encode(entry) + b"\n")
    try:
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError:
        if undo:  # without a lock, another process may have written after it
            with contextlib.suppress(OSError):
                file.truncate(size)
        raise
