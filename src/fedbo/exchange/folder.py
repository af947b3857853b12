"""A folder as an exchange: a shared drive, a synchronised folder, or files carried by hand.

``FOLDER/<fingerprint>/epoch-<n>/<sender>-<8 hex digits>.fedbo`` holds the message of one sender and
key, after a title line and a digest that reveals damage; ``…-withdrawn.fedbo`` holds the signed
withdrawal of it, and ``…-release.fedbo`` a private release. These names are only for people: a
reader looks into every ``.fedbo`` file in the folder and up to three levels below, so files may be
copied anywhere by hand. Names that start with a dot are ignored: these files are still being
written, or belong to programs that synchronise.

Whoever may write to the folder may put anything into it, at any moment. So links in it are neither
followed nor read, and a file that is larger than a message of the federation is not read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedbo.caller import warn
from fedbo.exchange.base import Exchange, ExchangeError, ExchangeWarning, Holding, failed
from fedbo.exchange.choice import (
    Outlawed,
    audible,
    chosen,
    contributed,
    foreign_notice,
    is_withdrawable,
    origin,
    replaces,
    same_federation,
    signature_fault,
    unlisted_fault,
    withdrawal_of,
)
from fedbo.exchange.file import (
    LARGEST,
    RELEASE,
    UNFINISHED,
    file_name,
    load,
    most_bytes,
    most_in,
    name_of,
    seal,
    withdrawal_name,
)
from fedbo.exchange.found import File, Found, Holder
from fedbo.exchange.search import LINK, Search, home_of, unreadable
from fedbo.exchange.tree import OpenFolder
from fedbo.federation import Federation
from fedbo.files import FileRefused
from fedbo.identity import KeyPair, Keyring
from fedbo.locks import Lock
from fedbo.message import Fingerprint, Heard, Message, MessageRefused, Withdrawal
from fedbo.outside import printable, shortened

NAMED = 5  # skipped files that one fetch names; the rest are counted
_LONGEST = 200  # characters of a name that others chose, in a warning
_MOST_LISTED = 4 * LARGEST  # bytes that one call of `holdings` reads
# A file may be replaced within one tick of the clock by one of the same size and inode. So a file
# younger than this is always read again. The longest ticks in use, those of FAT, take 2 s.
_SETTLED = 3 * 10**9  # ns


class FolderExchange(Exchange):
    """An exchange through a folder that all participants can reach.

    Use the folder for nothing else. Its sub-folders get its permissions: whoever may write to it
    can participate. If the folder existed and has disappeared, that is an error, because its drive
    may be unmounted. If two processes publish for one sender at the same moment, the later sequence
    stays; on Windows, and on drives without locks, the earlier one may stay until the next message.

    The folder itself may be a link. On POSIX, no link below it is ever followed, even if somebody
    puts one there while it is used; Windows cannot promise that.

    Args:
        folder: The path of the folder; ``~`` is expanded. The first message creates the folder if
            it does not exist, but not its parent.
        keyring: Which keys belong to whom; by default the user's keyring.

    Raises:
        ExchangeError: If the folder cannot be reached or created.

    >>> import tempfile
    >>> from fedbo import Agent, Federation, Float
    >>> agent = Agent(federation := Federation({"x": Float(0, 1)}), name="site-a", seed=0)
    >>> trial = agent.tell({"x": 0.3}, 1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     FolderExchange(folder).publish(agent.message())
    ...     FolderExchange(folder).fetch(federation)
    True
    [Message(compact, sender='site-a', sequence=1, epoch=0, t_n=1, M=7, 58 bytes)]
    """

    def __init__(self, folder: str | os.PathLike[str], keyring: Keyring | None = None) -> None:
        if not os.fspath(folder):
            raise ExchangeError("the address is '', expected a folder")
        self.folder = Path(os.path.abspath(os.path.expanduser(folder)))
        self.address = str(self.folder)
        self.keyring: Keyring = Keyring.user() if keyring is None else keyring
        self._was_there = False
        self._lock = Lock()
        self._found: dict[tuple[bytes, int], Found] = {}  # by federation and epoch
        self._is_there()

    def __getstate__(self) -> dict[str, Any]:
        # A copy reads the files itself. It can be made while the drive is unmounted.
        return self.__dict__ | {"_found": {}}

    def publish(self, message: Heard) -> bool:
        what = f"{message.type} {message.sequence} of {message.sender!r}"
        what += f" was not put into {self.address}"
        data = seal(message)
        if len(data) > LARGEST:
            raise ExchangeError(
                f"{what}: it has {len(data):,} bytes, and peers read at most {LARGEST:,}; "
                "agree on fewer features, or on messages of weights"
            )
        name = name_of(message)
        with self._lock:
            if not self._is_there():
                try:
                    self.folder.mkdir(exist_ok=True)
                except OSError as error:
                    raise failed(f"the folder {self.address} cannot be created", error) from error
            try:
                with OpenFolder(self.folder) as root, _home(root, message) as home:
                    with home.alone():
                        if _is_withdrawn(home, message):
                            return False
                        before = _before(home, name, message)
                        if is_new := replaces(message, before):
                            home.write(name, data)
                    home.sweep(name, UNFINISHED)
            except OSError as error:
                raise failed(what, error) from error
        return is_new or (before is not None and before.encode() == message.encode())

    def fetch(self, federation: Federation) -> list[Heard]:
        return audible(federation, self._chosen(federation))

    def contributions(self, federation: Federation) -> list[Message]:
        """Return the latest contribution of every sender, for the party that makes releases.

        Whoever can read the folder can read them too: nothing is protected from those.

        Args:
            federation: The federation, which has a privacy plan, in the epoch to fetch.
        """
        return contributed(federation, self._chosen(federation))

    def _chosen(self, federation: Federation) -> list[Heard]:
        with self._lock:
            if not self._is_there():
                return []
            place = (bytes(federation.fingerprint), federation.epoch)
            before = self._found.get(place, Found())
            if before.members != federation.members:  # then others may be heard
                before = replace(before, files={}, members=federation.members, held={})
            found = self._look(federation, before)
            messages = self._choose(federation, found)
            self._found[place] = found
        for text in [*self._skipped(before, found), *found.notices]:
            if text not in before.notices:
                warn(text, ExchangeWarning)
        return messages

    def withdraw(
        self,
        federation: Federation,
        sender: str,
        keys: KeyPair | None = None,
        mine: Callable[[Message], bool] | None = None,
    ) -> bool:
        with self._lock:
            if not self._is_there():
                return False
            with self._opened() as root:
                is_gone, search = False, Search(root, federation, epochs=True)
                for folder, name, message in _withdrawable(search, federation, sender, keys, mine):
                    self._remove(root, folder, name, message, keys)
                    is_gone = True
        for text in search.bounds:
            warn(f"perhaps not all messages of {sender!r} were withdrawn: {text}", ExchangeWarning)
        return is_gone

    def holdings(self) -> list[Holding]:
        with self._lock:
            if not self._is_there():
                return []
            with self._opened() as root:
                search = Search(root)
                held, withdrawals = _listed(search)
        outlawed = Outlawed(withdrawals)
        for i, one in enumerate(held):
            if one.message is not None and one.fault is None and one.message in outlawed:
                held[i] = one._replace(fault="its sender has withdrawn it")
        held += [Holding(None, None, path, fault) for path, fault in search.faults.items()]
        held += [Holding(None, None, self.address, text) for text in search.bounds]
        return sorted(held, key=lambda one: one.place)

    def _is_there(self) -> bool:
        try:
            mode = os.stat(self.folder).st_mode
        except FileNotFoundError:
            if not self.folder.parent.is_dir():
                raise ExchangeError(
                    f"the folder {self.address} cannot be created because {self.folder.parent} "
                    "does not exist; check the address, and whether its drive is mounted"
                ) from None
            if self._was_there:
                raise ExchangeError(
                    f"the folder {self.address} has disappeared; check whether its drive is still "
                    "mounted, or create it again"
                ) from None
            return False
        except ValueError as error:  # a null byte, for example
            raise ExchangeError(f"{self.address!r} cannot be a folder: {error}") from None
        except OSError as error:
            raise failed(f"the folder {self.address} cannot be reached", error) from error
        if not stat.S_ISDIR(mode):
            raise ExchangeError(f"{self.address} is a file, expected a folder; check the address")
        self._was_there = True
        return True

    def _opened(self) -> OpenFolder:
        try:
            return OpenFolder(self.folder)
        except OSError as error:
            raise failed(f"the folder {self.address} cannot be read", error) from error

    def _look(self, federation: Federation, before: Found) -> Found:
        """Read the files that are new or have changed; return all that concern this federation."""
        found, holder = self._search(federation, before)
        if wanted := holder.wanted():
            for folder, name in wanted:
                found.files[folder].pop(name)
            known = replace(before, files=found.files, held=found.held)
            found, holder = self._search(federation, known)
        if holder.is_full:
            found.notices.append(
                f"{self.address} has messages of more than {holder.most:,} bytes for this "
                "federation, and the rest was ignored; agree on fewer features or on messages of "
                "weights, or list the members' keys in the federation file"
            )
        return found

    def _search(self, federation: Federation, before: Found) -> tuple[Found, Holder]:
        found, holder = Found(foreign=before.foreign, members=federation.members), Holder(before)
        look = _Look(federation, self.keyring)
        with self._opened() as root:
            search = Search(root, federation, known=before.foreign)
            for folder, names in search:
                known = before.files.get(folder.path, {})
                there = found.files.setdefault(folder.path, {})
                # Some file systems do not list a file that is being replaced at this moment.
                for name in dict.fromkeys([*names, *known]):
                    file = look(folder, name, known.get(name))
                    if file is not None:
                        holder.put(there, folder.path, name, file)
        found.held = holder.held
        found.faults = {path: (None, fault) for path, fault in search.faults.items()}
        foreign = search.foreign
        for file in found:
            if file.foreign is not None and file.foreign not in before.foreign:
                foreign[file.foreign] += 1
        if any(file.fault is not None for file in found):
            for path, file in found.with_paths():
                if file.fault is not None:
                    found.faults[path] = file.version, file.fault
        found.notices = [*search.bounds]
        if foreign := +foreign:
            found.notices.append(foreign_notice(self.address, federation, foreign))
            found.foreign = before.foreign | foreign.keys()
        return found, holder

    def _choose(self, federation: Federation, found: Found) -> list[Heard]:
        """Return the messages that are handed out; add those that the keyring refuses as faults."""
        contents = [file.content for file in found if file.content is not None]
        outlawed = Outlawed(one for one in contents if isinstance(one, Withdrawal))
        messages = [one for one in contents if isinstance(one, Heard)]
        accepted, refused = chosen(
            federation, self.keyring, [one for one in messages if one not in outlawed]
        )
        reasons = {id(message): why for message, why in refused}
        for path, file in found.with_paths() if reasons else ():
            if (why := reasons.get(id(file.content))) is not None:
                found.faults[path] = file.version, why
        return accepted

    def _skipped(self, before: Found, found: Found) -> list[str]:
        """Return what to say about files and folders that were not skipped before."""
        news = [
            f"{self._shown(path)} was skipped: {printable(fault)}"
            for path, (version, fault) in found.faults.items()
            if before.faults.get(path) != (version, fault)
        ]
        if len(news) > NAMED:
            news[NAMED:] = [f"{len(news) - NAMED:,} more files in {self.address} were skipped"]
        return news

    def _shown(self, path: str) -> str:
        """Return a path in the folder for people; others chose its names."""
        below = path.removeprefix(self.address)
        return self.address + printable(shortened(below, _LONGEST))

    def _remove(
        self,
        root: OpenFolder,
        folder: OpenFolder,
        name: str,
        message: Message | None,
        keys: KeyPair | None,
    ) -> None:
        """Remove a file, after the withdrawal of the message in it has been written."""
        try:
            if message is not None and keys is not None:
                _outlaw(root, withdrawal_of(message, keys))
            with contextlib.suppress(FileNotFoundError):
                folder.unlink(name)
        except OSError as error:
            path = self._shown(os.path.join(folder.path, name))
            whose = "the message" if message is None else f"the message of {message.sender!r}"
            raise failed(f"{whose} in {path} is still handed out", error) from error


@contextlib.contextmanager
def _home(root: OpenFolder, content: Heard | Withdrawal) -> Iterator[OpenFolder]:
    """Open the folder in which a message is put; create it if it does not exist."""
    fingerprint, epoch = home_of(Fingerprint(content.fingerprint), content.epoch)
    with (
        root.subfolder(fingerprint, create=True) as parent,
        parent.subfolder(epoch, create=True) as home,
    ):
        yield home


def _before(home: OpenFolder, name: str, message: Heard) -> Heard | None:
    """Return the message, or the release, that this one would replace."""
    try:
        there = load(home, name, max(RELEASE, len(seal(message)) + most_bytes(0)))
    except (OSError, FileRefused, MessageRefused):
        return None
    is_same = isinstance(there, type(message)) and origin(there) == origin(message)
    return there if is_same and not isinstance(there, Withdrawal) else None


def _withdrawal(home: OpenFolder, content: Message | Withdrawal) -> Withdrawal | None:
    """Return the withdrawal by the sender of a message, or of an earlier withdrawal."""
    try:
        there = load(home, withdrawal_name(content.sender, content.key), most_bytes(0))
    except (OSError, FileRefused, MessageRefused):
        return None
    if not isinstance(there, Withdrawal) or origin(there) != origin(content):
        return None
    return there if signature_fault(there) is None else None


def _is_withdrawn(home: OpenFolder, message: Heard) -> bool:
    if not message.key or not isinstance(message, Message):
        return False
    there = _withdrawal(home, message)
    return there is not None and message in Outlawed([there])


def _outlaw(root: OpenFolder, withdrawal: Withdrawal) -> None:
    """Put a withdrawal into the folder, unless a later one is there."""
    with _home(root, withdrawal) as home, home.alone():
        there = _withdrawal(home, withdrawal)
        if there is None or there.sequence < withdrawal.sequence:
            home.write(withdrawal_name(withdrawal.sender, withdrawal.key), seal(withdrawal))


def _withdrawable(
    search: Search,
    federation: Federation,
    sender: str,
    keys: KeyPair | None,
    mine: Callable[[Message], bool] | None,
) -> Iterator[tuple[OpenFolder, str, Message | None]]:
    """Find the files to withdraw: those of the messages, and a damaged one where they are put."""
    own_name = file_name(sender, b"" if keys is None else keys.public)
    most = most_in(federation)
    for folder, names in search:
        is_home = folder.path == search.home
        for name in {*names, own_name} if is_home else names:
            try:
                content = load(folder, name, most)
            except FileNotFoundError:
                continue
            except (FileRefused, MessageRefused):
                if is_home and name == own_name and mine is None:  # else it may be another's
                    yield folder, name, None
                continue
            except OSError as error:
                if is_home and name == own_name and error.errno == errno.ELOOP:
                    yield folder, name, None  # a link
                continue
            if isinstance(content, Message) and is_withdrawable(
                content, federation, sender, keys, mine
            ):
                yield folder, name, content


class _Look:
    """Looks into files for one federation.

    Args:
        federation: The federation.
        keyring: Which keys belong to whom.
    """

    def __init__(self, federation: Federation, keyring: Keyring) -> None:
        self._federation, self._keyring = federation, keyring
        self._most = most_in(federation)
        self._unlisted: dict[tuple[object, ...], str | None] = {}  # by origin and sequence

    def __call__(self, folder: OpenFolder, name: str, known: File | None) -> File | None:
        """Return what is in a file for this federation; None if there is no file."""
        try:
            status = folder.status(name)
        except FileNotFoundError:
            return None
        except OSError as error:
            return File((), 0, False, fault=unreadable(error))
        version = status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
        now = seen = time.monotonic_ns()
        if known is not None and known.version == version:
            if known.is_settled:
                return known
            seen = known.seen
        # Whoever sets the time of a file to the future does not make us read it again and again.
        is_settled = max(time.time_ns() - status.st_mtime_ns, now - seen) > _SETTLED
        file = File(version, seen, is_settled)
        try:
            if not stat.S_ISREG(status.st_mode):
                is_link = stat.S_ISLNK(status.st_mode)
                raise FileRefused(LINK if is_link else "it is not a regular file")
            return self._read(folder, name, file)
        except FileNotFoundError:
            return None
        except ExchangeError:  # not because of this file
            raise
        except OSError as error:
            return file._replace(is_settled=False, fault=unreadable(error))
        except (FileRefused, MessageRefused) as error:
            return file._replace(fault=str(error))

    def _read(self, folder: OpenFolder, name: str, file: File) -> File:
        content = load(folder, name, self._most)
        is_message = isinstance(content, Heard)
        if not same_federation(self._federation, content):
            return file._replace(foreign=content.fingerprint if is_message else None)
        if isinstance(content, Heard):
            self._federation.check(content)
        if (fault := signature_fault(content)) is not None:
            raise MessageRefused(fault)
        if content.epoch != self._federation.epoch:
            return file
        if (fault := self._unlisted_fault(content)) is not None:
            return file._replace(fault=fault if is_message else None)
        return file.holding(content)

    def _unlisted_fault(self, content: Heard | Withdrawal) -> str | None:
        if not self._federation.members:
            return None
        which = (content.type, *origin(content), content.sequence)
        if which not in self._unlisted:
            self._unlisted[which] = unlisted_fault(self._federation, self._keyring, content)
        return self._unlisted[which]


def _listed(search: Search) -> tuple[list[Holding], list[Withdrawal]]:
    """Read all files, of any federation, as long as they are not too large together."""
    held: list[Holding] = []
    withdrawals: list[Withdrawal] = []
    left = _MOST_LISTED
    for folder, names in search:
        for name in names:
            place = os.path.join(folder.path, name)
            when = content = fault = None
            try:
                status = folder.status(name)
                when = status.st_mtime
                if status.st_size > left:
                    most = f"{_MOST_LISTED:,} bytes"
                    raise FileRefused(f"it was not read: all files together have more than {most}")
                left -= status.st_size
                content = load(folder, name, LARGEST)
                fault = signature_fault(content)
            except FileNotFoundError:
                continue
            except OSError as error:
                fault = unreadable(error)
            except (FileRefused, MessageRefused) as error:
                fault = str(error)
            if isinstance(content, Withdrawal) and fault is None:
                withdrawals.append(content)
            else:
                message = content if isinstance(content, Heard) else None
                held.append(Holding(message, when, place, fault))
    return held, withdrawals
