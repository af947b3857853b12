"""The ledger: a log of every message that left this machine, one line of JSON for each.

The line is on disk before its message is sent. If the line cannot be written, the message is not
sent. So nothing leaves unrecorded. A message that was not delivered gets a second line. Scalars and
progress, which a hub can carry too, are recorded in the same way.

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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from fedbo import files
from fedbo.caller import warn
from fedbo.exchange.base import Exchange, ExchangeError, ExchangeWarning, failed
from fedbo.exchange.choice import same_federation
from fedbo.exchange.file import LARGEST
from fedbo.exchange.progress import Progress
from fedbo.federation import Federation
from fedbo.federation.scalars import Scalars
from fedbo.identity import KeyPair
from fedbo.locks import Lock, alone
from fedbo.message import Fingerprint, Heard, Message, MessageKind, Release
from fedbo.outside import printable, shortened
from fedbo.privacy.statement import broken_promise
from fedbo.state import StateMissing, make_folder, state_folder

NAME = "releases.jsonl"  # as version 0.1 called it
NAMED = 5  # damaged lines that are named; the rest are counted
_OPTIONS = getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe makes nobody wait
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | _OPTIONS
_LONGEST = 2 * LARGEST  # bytes of a line; a message in base64 has 4/3 of its bytes


class NotOurs(ExchangeError):
    """The messages that should be withdrawn are others'; the text says whose."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the ledger: what happened to a message, to scalars or to progress.

    Args:
        when: The time in UTC, in the format of ISO 8601.
        action: "sent" to an exchange, "undelivered" (the exchange did not take it), "withdrawn",
            "received" (a private release), or
            "handed out" by an agent to the program that it runs in.
        to: The address of the exchange; empty if the message was handed out.
        agent: The sender.
        federation: The fingerprint of the federation.
        epoch: The epoch of the federation; 0 for scalars and progress, which have none.
        sequence: The sequence number of the message; 0 for scalars and progress.
        t_n: How many trials the message is based on.
        kind: The kind of message (`fedbo.message.MessageKind`), "scalars", "progress" or "release".
        numbers: How many numbers the message has.
        nbytes: The size of the message in bytes.
        content: The whole message in base64; empty if it was withdrawn.
        study: The id of the study that sent it; empty if no study did.
    """

    when: str
    action: Literal["sent", "undelivered", "withdrawn", "handed out", "received"]
    to: str
    agent: str
    federation: str
    epoch: int
    sequence: int
    t_n: int
    kind: MessageKind | Literal["scalars", "progress", "release"]
    numbers: int
    nbytes: int
    content: str
    study: str = ""

    def message(self) -> Message:
        """Decode the message that was sent."""
        decoded = self.decoded()
        if not isinstance(decoded, Message):
            raise ValueError(f"{self.agent!r} sent {self.kind} at {self.when}, not a message")
        return decoded

    def decoded(self) -> Heard | Scalars | Progress:
        """Decode what was sent or received: a message, a release, scalars or progress."""
        if not self.content:
            raise ValueError(
                f"message {self.sequence} of {self.agent!r} was {self.action} at {self.when}; "
                "its content is in the line that says when it was sent"
            )
        data = base64.b64decode(self.content)
        if self.kind == "scalars":
            return Scalars.decode(data)
        if self.kind == "release":
            return Release.decode(data)
        return Progress.decode(data) if self.kind == "progress" else Message.decode(data)


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
    [('site-a', 'memory', 16)]
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        given = _default_path() if path is None else os.path.expanduser(path)
        self.path = Path(os.path.abspath(given))
        self._lock = Lock()
        # What was read so far: which file, and up to which position.
        self._file: tuple[int, int] | None = None
        self._position = 0
        self._forget()

    def _forget(self) -> None:
        # Messages are known by their digests.
        self._out: dict[tuple[str, str, str], dict[bytes, str]] = {}  # studies, by where it went
        self._left: dict[bytes, set[tuple[str, str, str]]] = {}  # where it went, ever
        self._studies: dict[bytes, set[str]] = {}  # which studies sent it, ever
        self._last: dict[tuple[str, str, str, int], Entry] = {}  # the last one sent, by place
        self._releases: dict[str, dict[bytes, str]] = {}  # contents, by what lasts of a federation
        self._randomised: set[tuple[str, str]] = set()  # who voted with local privacy, and where
        self._damaged: set[int] = set()  # where lines begin that may have been releases

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def publish(self, exchange: Exchange, message: Heard, study: str = "") -> bool:
        """Record the message, then publish it. A retry is not recorded twice.

        Args:
            exchange: Where to publish.
            message: The message or the release to publish.
            study: The id of the study that sends it, so that no other study withdraws it.

        Returns:
            Whether the exchange now hands out exactly this message.

        Raises:
            ExchangeError: If the message could not be recorded (then it is not sent) or published;
                also if it is a contribution to releases that have broken their plan, or one without
                local privacy after others that had it.
        """
        if message.kind == "contribution":
            self._check_promise(message)
        entry = _entry("sent", message, exchange.address, study)
        return self._send(entry, lambda: exchange.publish(message))

    def share(self, exchange: Exchange, scalars: Scalars, study: str = "") -> None:
        """Record an agent's scalars, then share them.

        Args:
            exchange: Where to share them.
            scalars: The scalars.
            study: The id of the study that shares them.

        Raises:
            ExchangeError: If they could not be recorded (then they are not sent) or shared.
        """
        numbers = len(scalars.length_scales) + 1
        entry = _other_entry("scalars", scalars, scalars.t_n, numbers, exchange.address, study)
        self._send(entry, lambda: exchange.share(scalars))

    def report(self, exchange: Exchange, progress: Progress, study: str = "") -> None:
        """Record an agent's progress, then report it.

        Args:
            exchange: Where to report it.
            progress: The progress.
            study: The id of the study that reports it.

        Raises:
            ExchangeError: If it could not be recorded (then it is not sent) or reported.
        """
        t_n, numbers = progress.trials, progress.numbers
        entry = _other_entry("progress", progress, t_n, numbers, exchange.address, study)
        self._send(entry, lambda: exchange.report(progress))

    def record(self, message: Heard) -> None:
        """Record a message that an agent hands out to the program, which may send it anywhere.

        One that was sent or handed out before is not recorded again.

        Args:
            message: The message or the release.

        Raises:
            ExchangeError: If it could not be recorded, or if it is a contribution to releases that
                have broken their plan; then it must not be handed out.
        """
        if message.kind == "contribution":
            self._check_promise(message)
        self._record(_entry("handed out", message), "handed out")

    def add_release(
        self, federation: Federation, make: Callable[[list[Release]], Release]
    ) -> Release:
        """Make the next private release, and record it before anyone can see it.

        While ``make`` runs, no other process can make or record a release here. If the process is
        killed before the record is complete, nothing was released. If it is killed after that,
        `releases` has the release, which can still be published.

        Args:
            federation: The federation, with its privacy plan.
            make: Makes the next release of those that were made so far, see
                `fedbo.privacy.next_release`. If it raises an error, nothing is recorded.

        Raises:
            ExchangeError: If it could not be recorded, or if the ledger has a damaged line, which
                may have been a release; then nothing is released.
        """
        federation.require_plan()
        refusal = f"no release is made, because {self.path}"
        with self._lock:
            try:
                make_folder(self.path.parent)
                with _opened(self.path, _APPEND) as file, alone(file.fileno()) as is_locked:
                    if not is_locked:
                        raise ExchangeError(
                            f"{refusal} cannot be locked, and two processes could spend the same "
                            "budget: keep it on a local disk, and not on Windows"
                        )
                    cut_short = self._catch_up(file)
                    if self._damaged:
                        raise ExchangeError(
                            f"{refusal} has damaged lines ({len(self._damaged)}), which may have "
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
                    line = msgspec.json.encode(_entry("handed out", release)) + b"\n"
                    _write(file, b"\n" * cut_short + line, undo=True)
                    files.sync(str(self.path.parent))
            except ExchangeError:
                raise
            except OSError as error:
                raise failed(f"{refusal} cannot be written", error) from error
        return release

    def receive(self, published: Release) -> None:
        """Record a release that was received, once.

        Args:
            published: The release, which was checked.

        Raises:
            ExchangeError: If it could not be recorded.
        """
        self._record(_entry("received", published), "received")
        if text := self._broken(published):
            warn(f"{text}. Contributions to it are no longer sent from here", ExchangeWarning)

    def releases(self, federation: Federation) -> list[Release]:
        """Return the releases of a federation that were made here or received, by number.

        Args:
            federation: The federation, in any epoch.

        Raises:
            ExchangeError: If the ledger cannot be read.
        """
        return self._releases_of(federation.fingerprint)

    def withdraw(
        self,
        exchange: Exchange,
        federation: Federation,
        sender: str,
        keys: KeyPair | None = None,
        study: str | None = None,
    ) -> bool:
        """Withdraw this user's messages for this federation, then record that.

        A message is this user's if it is signed with ``keys``, or if it is not signed and recorded
        here. One that is recorded for another study is left alone.

        Args:
            exchange: Where the messages were published.
            federation: The federation that they are for.
            sender: The agent that sent them.
            keys: The key pair that signed them; None (default) if they are not signed.
            study: Withdraw only messages of the study with this id; of any study if None (default).

        Returns:
            Whether there was a message to withdraw.

        Raises:
            NotOurs: If only others have messages under this name.
            ExchangeError: If the messages could not be withdrawn, or this could not be recorded.
        """
        try:
            studies = self._known_studies()
        except OSError as error:
            if keys is None:
                what = f"nothing was withdrawn, because the ledger {self.path} cannot be read"
                raise failed(what, error) from error
            studies = {}  # the key tells whose message it is
        ours: list[Message] = []

        def is_ours(message: Message) -> bool:
            sent_by = studies.get(_digest(message))
            if sent_by is None:
                is_one = keys is not None
            else:
                is_one = study is None or bool(sent_by & {study, ""})
            ours.extend([message] if is_one else [])
            return is_one

        if not exchange.withdraw(federation, sender, keys, is_ours):
            _check_no_others(exchange, federation, sender, studies)
            return False
        if ours:
            message = max(ours, key=lambda one: (one.epoch, one.sequence))
            entry = replace(_entry("withdrawn", message, exchange.address, study or ""), content="")
        else:
            entry = _withdrawn(exchange.address, federation, sender, study or "")
        try:
            self._append(entry)
        except OSError as error:
            what = f"the message of {sender!r} was withdrawn from {exchange.address}, but this"
            raise failed(f"{what} could not be recorded in {self.path}", error) from error
        return True

    def studies_of(self, message: Heard) -> set[str]:
        """Return the ids of the studies that sent this message; empty if none is recorded.

        Args:
            message: The message, with its signature.

        Raises:
            ExchangeError: If the ledger cannot be read.
        """
        try:
            return self._known_studies().get(_digest(message), set()) - {""}
        except OSError as error:
            raise failed(f"the ledger {self.path} cannot be read", error) from error

    def was_withdrawn(self, exchange: Exchange, message: Message) -> bool:
        """Tell whether this message was sent to the exchange, and withdrawn since.

        Args:
            exchange: Where it was published.
            message: The message, with its signature.

        Raises:
            ExchangeError: If the ledger cannot be read.
        """
        self.studies_of(message)  # reads what is new
        digest, reach = _digest(message), _reach(_entry("sent", message, exchange.address))
        with self._lock:
            was_out = reach in self._left.get(digest, set())
            return was_out and digest not in self._out.get(reach, {})

    def outstanding(
        self, address: str, agent: str | None = None, study: str | None = None
    ) -> list[Entry]:
        """Return the last message for each federation that was sent and not withdrawn.

        Args:
            address: The address of the exchange.
            agent: Only those of this agent; of all agents if None (default).
            study: Only those of the study with this id; of all studies if None (default).

        Raises:
            ExchangeError: If the ledger cannot be read.
        """
        out: dict[tuple[str, str, str], dict[str, Entry]] = {}
        for entry in self.read(agent):
            if entry.to != address or not _is_message(entry) or entry.kind == "release":
                continue
            sent = out.setdefault(_reach(entry), {})
            if entry.action == "sent":
                sent[entry.content] = entry
            elif entry.action == "undelivered":
                sent.pop(entry.content, None)
            else:
                for one in [one for one in sent.values() if _same_study(one.study, entry.study)]:
                    del sent[one.content]
        last = {}
        for reach, sent in out.items():
            for entry in sent.values():
                if study in (None, entry.study):
                    last[reach] = entry
        return [*last.values()]

    def read(self, agent: str | None = None) -> list[Entry]:
        """Read the entries, oldest first; a damaged line is skipped with a warning.

        Args:
            agent: Return only the entries of this agent; of all agents if None (default).

        Raises:
            ExchangeError: If the file cannot be read, or is not a regular file.
        """
        entries, faults = [], []
        try:
            with _opened(self.path, os.O_RDONLY | _OPTIONS) as file:
                with alone(file.fileno()):
                    size = _size(file)  # what is written from now on is not read
                for number, line in enumerate(_lines(file, size), 1):
                    entry = _parsed(line)
                    if isinstance(entry, str):
                        faults.append(f"line {number} of {self.path} was skipped: {entry}")
                    elif entry is not None and agent in (None, entry.agent):
                        entries.append(entry)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise failed(f"the ledger {self.path} cannot be read", error) from error
        if len(faults) > NAMED:
            faults[NAMED:] = [f"{len(faults) - NAMED:,} more lines of {self.path} were skipped"]
        for fault in faults:
            warn(fault, ExchangeWarning)
        return entries

    def _send(self, entry: Entry, send: Callable[[], bool | None]) -> bool:
        """Record an entry, then send what it is for; return whether the exchange took it."""
        is_new = self._record(entry, "sent")
        is_out = False
        try:
            is_out = send() is not False
        finally:
            if is_new and not is_out:
                # If this fails too, the ledger lists a message that did not leave, which is safe.
                with contextlib.suppress(OSError):
                    self._append(replace(entry, when=_now(), action="undelivered"))
        return is_out

    def _record(self, entry: Entry, done: str) -> bool:
        try:
            return self._append(entry)
        except OSError as error:
            what = f"message {entry.sequence} of {entry.agent!r} was not {done} because it"
            if not _is_message(entry):
                what = f"nothing of the {entry.kind} of {entry.agent!r} was {done} because this"
            raise failed(f"{what} could not be recorded in {self.path}", error) from error

    def _known_studies(self) -> Mapping[bytes, set[str]]:
        """Return which studies sent each message that is recorded, by its digest."""
        with self._lock:
            try:
                with _opened(self.path, os.O_RDONLY | _OPTIONS) as file, alone(file.fileno()):
                    self._catch_up(file)
            except FileNotFoundError:
                return {}
            return self._studies

    def _check_promise(self, message: Heard) -> None:
        """Refuse a contribution to a broken plan, and one that would undo a randomised vote."""
        text = self._broken(message)
        sender = message.sender, Fingerprint(message.fingerprint).lasting
        if isinstance(message, Message) and message.local_epsilon is None:
            with self._lock:
                was_randomised = sender in self._randomised
            if was_randomised:
                raise ExchangeError(
                    f"the contribution of {message.sender!r} was not handed out: it is not "
                    "randomised, and earlier ones were, which protected it from whoever makes the "
                    "releases. Give the ε of local privacy again (--local-epsilon, or "
                    "Settings(local_epsilon=...)), or take part under another name"
                )
        if text:
            raise ExchangeError(
                f"the contribution of {message.sender!r} was not handed out: {text}. Ask "
                "whoever makes the releases what happened, and agree on a new federation"
            )

    def _broken(self, message: Heard) -> str | None:
        known = self._releases_of(Fingerprint(message.fingerprint))
        return broken_promise(known) if known else None

    def _releases_of(self, fingerprint: Fingerprint) -> list[Release]:
        try:
            self._known_studies()  # reads what is new
        except OSError as error:
            raise failed(f"the ledger {self.path} cannot be read", error) from error
        with self._lock:
            return self._known_releases(fingerprint)

    def _known_releases(self, fingerprint: Fingerprint) -> list[Release]:
        contents = self._releases.get(fingerprint.lasting, {}).values()
        try:
            found = [Release.decode(base64.b64decode(content)) for content in contents]
        except ValueError as error:
            raise ExchangeError(
                f"a release in {self.path} is damaged: {error}; restore the file from a copy"
            ) from None
        return sorted(found, key=lambda one: one.sequence)

    def _append(self, entry: Entry) -> bool:
        """Write the entry unless its message is out already; return whether it was written."""
        with self._lock:
            make_folder(self.path.parent)
            with _opened(self.path, _APPEND) as file, alone(file.fileno()) as locked:
                cut_short = self._catch_up(file)
                digest = _digest_of(entry.content)
                if entry.action == "sent" and digest in self._out.get(_reach(entry), {}):
                    return False
                if entry.action in ("handed out", "received") and self._left.get(digest):
                    return False
                if entry.action == "withdrawn":  # say which message that was, if it is known
                    last = self._last.get(_place(entry), entry)
                    known = entry if entry.nbytes else replace(last, study=entry.study)
                    entry = replace(known, when=entry.when, action="withdrawn")
                # A crash may have cut the last line short. This entry starts a new line.
                line = b"\n" * cut_short + msgspec.json.encode(entry) + b"\n"
                is_first = not _size(file)
                _write(file, line, undo=locked)
                if is_first:
                    files.sync(str(self.path.parent))
                return True

    def _catch_up(self, file: io.FileIO) -> bool:
        """Read what was added since the last time; return whether the last line is cut short."""
        status, size = os.fstat(file.fileno()), _size(file)
        identity = (status.st_dev, status.st_ino)
        if self._file != identity or size < self._position:
            self._file, self._position = identity, 0
            self._forget()
        file.seek(self._position)
        rest = b""
        for line in _lines(file, size - self._position):
            self._position += len(line)
            rest = b"" if line.endswith(b"\n") else line
            entry = _parsed(line)  # the last one may only lack its line break
            if isinstance(entry, Entry):
                self._count(entry)
            elif entry is not None and not _is_cut_short(line):
                self._damaged.add(self._position - len(line))
        self._position -= len(rest)
        return bool(rest)

    def _count(self, entry: Entry) -> None:
        """Take note of an entry; of the same entry again, too."""
        if not _is_message(entry):
            return
        if entry.kind == "release":
            known = self._releases.setdefault(_lasting(entry), {})
            known[_digest_of(entry.content)] = entry.content
        if entry.kind == "contribution" and entry.content:
            with contextlib.suppress(ValueError):  # one that is damaged was not randomised
                if entry.message().local_epsilon is not None:
                    self._randomised.add((entry.agent, _lasting(entry)))
        reach, digest = _reach(entry), _digest_of(entry.content)
        out, left = self._out.setdefault(reach, {}), self._left.setdefault(digest, set())
        if entry.action in ("sent", "handed out", "received"):
            out[digest] = entry.study
            left.add(reach)
            self._studies.setdefault(digest, set()).add(entry.study)
            self._last[_place(entry)] = replace(entry, content="")
        elif entry.action == "undelivered":
            out.pop(digest, None)
            left.discard(reach)
        else:
            for one in [one for one, study in out.items() if _same_study(study, entry.study)]:
                del out[one]


def _default_path() -> Path:
    try:
        return state_folder() / NAME
    except StateMissing as error:
        raise ExchangeError(
            f"there is no folder for the ledger, and nothing is sent without one: {error}, or give "
            "ledger=Ledger(FILE)"
        ) from None


def _check_no_others(
    exchange: Exchange, federation: Federation, sender: str, studies: Mapping[bytes, set[str]]
) -> None:
    """Raise an error that says whose they are if others have messages under this name."""
    try:
        held = exchange.holdings()
    except ExchangeError:  # it cannot list them
        return
    for message, _, place, fault in held:
        if message is None or fault is not None or message.sender != sender:
            continue
        if not same_federation(federation, message):
            continue
        is_known = bool(studies.get(_digest(message), set()) - {""})
        whose = f"signed with {message.signer}" if message.key else "not signed"
        advice = "whoever sent it can withdraw it; if two agents have one name, rename one of them"
        if is_known:
            whose += ", and of another study of this user"
        elif not message.key:
            whose += ", and this machine has no record of it"
            advice += "; if it is yours all the same, remove it there by hand"
        where = printable(shortened(place, 300))
        raise NotOurs(
            f"nothing was withdrawn: the message of {sender!r} in {where} is not this study's. It "
            f"is {whose}: {advice}"
        )


def _entry(
    action: Literal["sent", "withdrawn", "handed out", "received"],
    message: Heard,
    to: str = "",
    study: str = "",
) -> Entry:
    content = message.encode()
    return Entry(
        when=_now(),
        action=action,
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
        study=study,
    )


def _other_entry(
    kind: Literal["scalars", "progress"],
    sent: Scalars | Progress,
    t_n: int,
    numbers: int,
    to: str,
    study: str,
) -> Entry:
    """Return the entry for something that is not a message."""
    content = sent.encode()
    return Entry(
        when=_now(),
        action="sent",
        to=to,
        agent=sent.sender,
        federation=str(Fingerprint(sent.fingerprint)),
        epoch=0,
        sequence=0,
        t_n=t_n,
        kind=kind,
        numbers=numbers,
        nbytes=len(content),
        content=base64.b64encode(content).decode(),
        study=study,
    )


def _withdrawn(to: str, federation: Federation, sender: str, study: str) -> Entry:
    """Return the entry for a message that nobody could read any more."""
    return Entry(
        when=_now(),
        action="withdrawn",
        to=to,
        agent=sender,
        federation=str(federation.fingerprint),
        epoch=federation.epoch,
        sequence=0,
        t_n=0,
        kind=federation.sends,
        numbers=0,
        nbytes=0,
        content="",
        study=study,
    )


def _now() -> str:
    now = datetime.datetime.now(datetime.UTC)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _place(entry: Entry) -> tuple[str, str, str, int]:
    return entry.to, entry.agent, entry.federation, entry.epoch


def _reach(entry: Entry) -> tuple[str, str, str]:
    """Return what a withdrawal covers: the federation, in any epoch, at one address."""
    return entry.to, entry.agent, _lasting(entry)


def _lasting(entry: Entry) -> str:
    """Return what is the same in all epochs of the federation."""
    return entry.federation.rpartition("-")[0]


def _is_message(entry: Entry) -> bool:
    return entry.kind not in ("scalars", "progress")


def _same_study(sent_by: str, withdrawn_by: str) -> bool:
    return not sent_by or not withdrawn_by or sent_by == withdrawn_by


def _digest(message: Heard) -> bytes:
    return _digest_of(base64.b64encode(message.encode()).decode())


def _digest_of(content: str) -> bytes:
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


def _opened(path: Path, flags: int) -> io.FileIO:
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
