"""A folder as an exchange: layout, hand-carried files, damage, many writers, dead ones, no room."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from contracts.exchange import (
    OURS,
    ExchangeContract,
    child,
    ended,
    exchange_warnings,
    heard,
    message,
    new_keys,
    sequences,
    together,
    unwarned,
    withdrawal,
)
from msgspec.structs import replace

from fedbo import Federation, Message, files
from fedbo.exchange import (
    ExchangeError,
    ExchangeWarning,
    FolderExchange,
    exchange_at,
)
from fedbo.exchange.folder import file_name, seal
from fedbo.message import Kind
from fedbo.testing.keys import keys_of
from fedbo.trust import Keyring


class TestFolderExchange(ExchangeContract):
    @pytest.fixture
    def exchange(self, tmp_path: Path) -> FolderExchange:
        return FolderExchange(tmp_path / "exchange")

    def put_back(self, exchange: FolderExchange, content: Message) -> None:  # type: ignore[override]
        only_file(exchange.folder).write_bytes(seal(content))


class TestWithoutDescriptors(TestFolderExchange):
    """Where folders cannot be opened, as on Windows."""

    @pytest.fixture
    def exchange(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderExchange:
        monkeypatch.setattr("fedbo.exchange.tree._BY_DESCRIPTOR", False)
        return FolderExchange(tmp_path / "exchange")

    def test_links_that_are_there_are_refused(
        self, exchange: FolderExchange, tmp_path: Path
    ) -> None:
        exchange.publish(message())
        (home(exchange.folder) / "x.fedbo").symlink_to(only_file(exchange.folder))
        with pytest.warns(ExchangeWarning, match="links are not followed"):
            assert sequences(exchange) == {"site-a": 1}
        home(exchange.folder).rename(tmp_path / "elsewhere")
        home(exchange.folder).symlink_to(tmp_path / "elsewhere")
        for act in (lambda: exchange.publish(message(sequence=2)), lambda: heard(exchange)):
            with pytest.raises(ExchangeError, match="is a link, and could lead anywhere"):
                act()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the message of site-a in it."""
    FolderExchange(tmp_path / "exchange").publish(message())
    return tmp_path / "exchange"


def home(folder: Path, federation: Federation = OURS) -> Path:
    return folder / str(federation.fingerprint)


def a_folder_with(folder: Path, sender: str, federation: Federation = OURS) -> Path:
    """A folder with one message in it."""
    FolderExchange(folder).publish(message(federation, sender))
    return folder


def only_file(folder: Path) -> Path:
    [path] = folder.rglob("*.fedbo")
    return path


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


# Addresses


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://hub.example.org", "is not encrypted, and anyone on the way could read the token"),
        ("https://hub.example.org/A_b", "expected https://HOST"),
        ("https://", "expected https://HOST"),
        ("s3://bucket/folder", "is neither a folder nor the https:// address of a hub"),
        ("", "the address is '', expected a folder"),
        ("a\0b", r"the address is 'a\\x00b', expected a folder"),
        ("localhost:8765", "write https://localhost:8765"),
        ("hub.example.org:443/liver", "write https://hub.example.org:443/liver"),
        ("/no/such/folder", "does not exist; check the address"),
        ("/dev/null", "Not a directory; give the path of a folder"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused_at_once(address: str, said: str) -> None:
    with pytest.raises(ExchangeError, match=said):
        exchange_at(address)


def test_a_folder_may_be_called_like_a_port_of_a_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run:2025").mkdir()
    for address in ("run:2025", "./run:2026", tmp_path / "run:2027"):
        assert isinstance(exchange_at(address), FolderExchange)


def test_a_folder_without_permission_is_refused_at_once(plain_user: Path) -> None:
    (plain_user / "below").mkdir(mode=0o000)
    for folder in ("below", "below/new"):
        said = "cannot be used: Permission denied; ask for permission"
        with pytest.raises(ExchangeError, match=said) as caught:
            exchange_at(str(plain_user / folder))
        assert caught.value.__suppress_context__  # all is said


# Where messages lie


def test_a_message_lies_where_people_find_it(folder: Path) -> None:
    path = only_file(folder)
    assert path.parent == folder / str(OURS.fingerprint)
    assert path.name == file_name("site-a", keys_of("site-a").public)
    assert path.name.startswith("site-a-")
    assert files.unseal("fedbo message 1", path.read_bytes(), "x") == message().encode()
    assert visible(folder) == [path.name]


def test_who_may_write_into_the_folder_may_write_below_and_read(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2770)
    before = os.umask(0o077)
    try:
        FolderExchange(shared).publish(message())
    finally:
        os.umask(before)
    assert stat.S_IMODE(home(shared).stat().st_mode) & 0o777 == 0o770
    assert stat.S_IMODE(only_file(shared).stat().st_mode) == 0o640


def test_a_folder_that_was_there_and_is_gone_is_an_error(folder: Path) -> None:
    exchange = FolderExchange(folder)
    shutil.rmtree(folder)
    for act in (
        lambda: heard(exchange),
        lambda: exchange.publish(message()),
        lambda: exchange.publish(withdrawal(message())),
    ):
        with pytest.raises(ExchangeError, match="does not exist; check the address"):
            act()
    assert not folder.exists()
    folder.mkdir()
    exchange.publish(message())
    assert heard(exchange) == [message()]


# What does not belong there


def test_nothing_is_looked_for_elsewhere(folder: Path, tmp_path: Path) -> None:
    theirs = only_file(a_folder_with(tmp_path / "theirs", "site-b"))
    for where in ("x.fedbo", theirs.name, "by hand/x.fedbo", f"{OURS.fingerprint}/deep/x.fedbo"):
        (folder / where).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(theirs, folder / where)
    for name in (".x.fedbo", "x.txt", "x"):
        shutil.copy(theirs, home(folder) / name)
    assert sequences(FolderExchange(folder)) == {"site-a": 1}  # a warning would be an error
    assert len(FolderExchange(folder).holdings()) == 1
    shutil.copy(theirs, home(folder))
    assert sequences(FolderExchange(folder)) == {"site-a": 1, "site-b": 1}


def test_a_copy_under_another_name_is_skipped(folder: Path) -> None:
    """As programs that synchronise make them. It could bring back what was replaced."""
    path, exchange = only_file(folder), FolderExchange(folder)
    shutil.copy(path, home(folder) / "site-a (conflicted copy).fedbo")
    exchange.publish(message(sequence=2))
    with pytest.warns(ExchangeWarning, match=f"a file called {path.name}"):
        assert sequences(exchange) == {"site-a": 2}
    assert exchange.publish(withdrawal(message(sequence=2))) is True
    assert heard(exchange) == []


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda whole: b"", "empty"),
        (lambda whole: whole[:-1], "damaged or cut short"),
        (lambda whole: whole[:20], "damaged or cut short"),
        (lambda whole: whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:], "damaged or cut short"),
        (lambda whole: bytes(len(whole)), "written by another program"),
        (lambda whole: files.seal("fedbo message 2", b"x"), "another version of fedbo"),
        (lambda whole: files.seal("fedbo message 1", b"x"), "no message"),
    ],
)
def test_a_damaged_file_is_told_of_once_and_is_in_nobodys_way(
    folder: Path, damage: Callable[[bytes], bytes], why: str
) -> None:
    exchange = FolderExchange(folder)
    exchange.publish(message(sender="good"))
    [path] = home(folder).glob("site-a*")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(ExchangeWarning, match=why) as caught:
        assert sequences(exchange) == {"good": 1}
    assert [str(path) in str(one.message) for one in caught] == [True]
    assert sequences(exchange) == {"good": 1}
    assert exchange.publish(message(sequence=1)) is True
    assert sequences(exchange) == {"good": 1, "site-a": 1}


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("features", [1, 40, 1000])
def test_no_file_is_read_that_is_larger_than_the_federations_messages(
    tmp_path: Path, kind: Kind, features: int
) -> None:
    """But the largest that it can have is: signed, with a long name and large counters."""
    federation = Federation(OURS.space, features=features, kind=kind)
    largest = message(federation, sender="x" * 64, sequence=2**32 - 1, t_n=2**31 - 1)
    most = federation.most_bytes
    assert most - 512 < len(seal(largest)) <= most
    exchange = FolderExchange(tmp_path)
    exchange.publish(largest)
    large = home(tmp_path, federation) / "x.fedbo"
    large.write_bytes(seal(largest) + bytes(most + 1 - len(seal(largest))))
    with pytest.warns(ExchangeWarning, match=f"has {most + 1:,} bytes, expected at most {most:,}"):
        assert heard(exchange, federation) == [largest]


def test_odd_things_called_as_a_message_keep_nobody_waiting(folder: Path) -> None:
    (home(folder) / "folder.fedbo").mkdir()
    os.mkfifo(home(folder) / "pipe.fedbo")
    exchange = FolderExchange(folder)
    with pytest.warns(ExchangeWarning, match="was skipped") as caught:
        assert sequences(exchange) == {"site-a": 1}
    assert len(caught) == 2


# Links


def test_links_are_neither_followed_nor_read_and_reported_once(
    folder: Path, tmp_path: Path
) -> None:
    theirs = only_file(a_folder_with(tmp_path / "theirs", "site-b"))
    (tmp_path / "secret").write_bytes(b"PRIVATE KEY of somebody")
    targets = {
        theirs.name: theirs,
        "nowhere.fedbo": Path("nowhere"),
        "round.fedbo": Path("round.fedbo"),
        "secret.fedbo": tmp_path / "secret",
    }
    for name, target in targets.items():
        (home(folder) / name).symlink_to(target)
    exchange = FolderExchange(folder)
    said = exchange_warnings(exchange)
    assert {text.removeprefix(f"{home(folder)}/") for text in said} == {
        f"{name} was skipped: it is a link, and links are not followed" for name in targets
    }
    assert sequences(exchange) == {"site-a": 1}
    assert all((home(folder) / name).is_symlink() for name in targets)
    listed = {one.place for one in exchange.holdings() if one.message is None}
    assert listed == {f"{home(folder)}/{name}" for name in targets}


def test_a_link_in_place_of_a_message_is_replaced_and_its_target_untouched(
    folder: Path, tmp_path: Path
) -> None:
    target, path = tmp_path / "private", only_file(folder)
    target.write_text("mine")
    target.chmod(0o600)
    path.unlink()
    path.symlink_to(target)
    exchange = FolderExchange(folder)
    assert exchange.publish(message(sequence=2)) is True
    assert not path.is_symlink() and sequences(exchange) == {"site-a": 2}
    assert target.read_text() == "mine" and stat.S_IMODE(target.stat().st_mode) == 0o600


SWAPPER = """
import os, random, sys, time
os.setgroups([]), os.setgid(65534), os.setuid(65534)
path, private, what, seconds = sys.argv[1:]
end, tries, swaps = time.monotonic() + float(seconds), 0, 0

def linger():
    until = time.monotonic() + random.uniform(0, 1e-3)
    while time.monotonic() < until:
        pass

def swap():
    if what == "file":      # the message becomes a link to a private file
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
            os.symlink(private, os.path.join(path, name))
        return
    if os.path.lexists(path):
        os.rename(path, f"{path}.{tries}")
    if what == "new":       # a link is there when the folder is to be made
        linger()
    os.symlink(private, path)
    linger()
    os.unlink(path)
    if what == "folder":    # the folder becomes a link to a private one, and comes back
        os.rename(f"{path}.{tries}", path)
        linger()

print("ready", flush=True)
sys.stdin.readline()
while time.monotonic() < end:
    tries += 1
    try:
        swap()
        swaps += 1
    except OSError:
        pass
print(swaps)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="a second user attacks: needs root to become nobody")
@pytest.mark.parametrize("what", ["file", "folder", "new"])
def test_another_user_who_may_write_to_the_folder_gains_nothing(what: str) -> None:
    """While we publish, files and folders become links to what only we may read."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    shared, private, secret = place / "shared", place / "private", place / "secret"
    shared.mkdir()
    shared.chmod(0o777)
    private.mkdir(mode=0o700)
    secret.write_text("mine")
    secret.chmod(0o600)
    target = home(shared)
    try:
        exchange = FolderExchange(shared, Keyring())
        if what != "new":
            exchange.publish(message())
        attacked = home(shared) if what == "file" else target
        aim = secret if what == "file" else private
        attacker = child(SWAPPER, attacked, aim, what, 2.0)
        together([attacker])
        published, sequence = 0, 1
        while attacker.poll() is None:
            sequence += 1
            with contextlib.suppress(ExchangeError):
                published += exchange.publish(message(sequence=sequence))
            with contextlib.suppress(ExchangeError):
                assert all(found.sender == "site-a" for found in unwarned(exchange))
        assert int(ended(attacker)) > 0 and sequence > 10
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600 and secret.read_text() == "mine"
        assert stat.S_IMODE(private.stat().st_mode) == 0o700 and not [*private.iterdir()]
    finally:
        shutil.rmtree(place)


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    """Whoever may write into the folder could let us write where only we may."""
    private, folder = tmp_path / "private", tmp_path / "exchange"
    private.mkdir(mode=0o700)
    folder.mkdir()
    folder.chmod(0o777)
    home(folder).symlink_to(private)
    exchange = FolderExchange(folder)
    for act in (lambda: exchange.publish(message()), lambda: heard(exchange)):
        with pytest.raises(ExchangeError, match="is a link, and could lead anywhere"):
            act()
    assert not [*private.iterdir()]
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    home(folder).unlink()
    assert exchange.publish(message()) is True


def test_of_many_damaged_files_some_are_named_and_the_rest_counted(folder: Path) -> None:
    exchange = FolderExchange(folder)
    for i in range(1005):
        (home(folder) / f"{i}.fedbo").write_bytes(b"x")
    *named, rest = exchange_warnings(exchange)
    assert len(named) == 5 and all("was skipped: it does not hold" in one for one in named)
    assert rest == f"1,000 more messages in {folder} were skipped"
    (home(folder) / "new.fedbo").write_bytes(b"x")
    with pytest.warns(ExchangeWarning, match=r"new\.fedbo was skipped"):
        assert sequences(exchange) == {"site-a": 1}


def test_names_of_files_do_not_reach_the_screen_as_they_are(folder: Path) -> None:
    (home(folder) / "\x1b[31mred\n.fedbo").write_bytes(b"x")
    raw = msgspec.msgpack.decode(message().encode())
    raw[-1][0] = "\x1b[31m"
    content = files.seal("fedbo message 1", msgspec.msgpack.encode(raw))
    (home(folder) / "kind.fedbo").write_bytes(content)
    with pytest.warns(ExchangeWarning) as caught:
        heard(FolderExchange(folder))
    said = sorted(str(one.message) for one in caught)
    assert said[0].startswith(f"{home(folder)}/\\x1b[31mred\\n.fedbo was skipped")
    assert "kind.fedbo was skipped" in said[1] and r"'\x1b[31m'" in said[1]
    assert all(one.isprintable() for one in said)


# Too much of everything


def test_a_peer_that_was_heard_is_not_displaced_by_planted_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedbo.exchange.folder.MOST_FILES", 5)
    exchange = FolderExchange(folder)
    assert sequences(exchange) == {"site-a": 1}
    for i in range(100):
        (home(folder) / f"{i}.fedbo").write_bytes(b"x")
    assert unwarned(exchange) == [message()]
    FolderExchange(folder).publish(message(sequence=2))
    assert unwarned(exchange) == [message(sequence=2)]


def test_files_of_other_programs_hide_no_newcomer(folder: Path) -> None:
    """Such as the 60,000 that a program that synchronises has left there."""
    for i in range(60_000):
        (home(folder) / f".{i}").touch()
    FolderExchange(folder).publish(message(sender="newcomer"))
    exchange = FolderExchange(folder)
    assert sequences(exchange) == {"newcomer": 1, "site-a": 1}  # a warning would be an error


def test_who_has_gone_takes_no_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it was heard before."""
    monkeypatch.setattr("fedbo.exchange.folder.MOST_FILES", 5)
    exchange = FolderExchange(folder)
    for i in range(4):
        FolderExchange(folder).publish(message(sender=f"old-{i}"))
    assert len(sequences(exchange)) == 5
    for path in home(folder).glob("old-*"):
        path.unlink()
    for i in range(4):
        FolderExchange(folder).publish(message(sender=f"new-{i}"))
    assert sequences(exchange) == {"site-a": 1} | {f"new-{i}": 1 for i in range(4)}


def test_what_has_not_changed_is_neither_read_nor_judged_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = FolderExchange(folder)
    past = time.time() - 60
    for path in (folder, home(folder)):
        os.utime(path, (past, past))
    before = exchange.fetch(OURS)
    monkeypatch.setattr("fedbo.exchange.folder._names", None)
    monkeypatch.setattr("fedbo.trust.border.verify", None)
    assert exchange.fetch(OURS) is before
    monkeypatch.undo()
    FolderExchange(folder).publish(message(sequence=2))
    assert sequences(exchange) == {"site-a": 2}


def test_planted_folders_cost_next_to_nothing(folder: Path) -> None:
    for i in range(2000):
        (folder / f"{i}").mkdir()
        (folder / f"{i:08x}-00000000-00000000-00000000").mkdir()
    exchange = FolderExchange(folder)
    assert len(exchange_warnings(exchange)) == 6
    start = time.monotonic()
    assert sequences(exchange) == {"site-a": 1}
    assert time.monotonic() - start < 1


def test_all_folders_together_list_a_bounded_number_of_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedbo.exchange.folder.MOST_FILES", 5)
    for i in range(4):
        planted = folder / f"{i:08x}-00000000-00000000-00000000"
        planted.mkdir()
        for j in range(3):
            (planted / f"{j}.fedbo").write_bytes(b"x")
    assert len(FolderExchange(folder).holdings()) == 5


# Signed messages


def test_folders_in_place_of_files_silence_nobody(tmp_path: Path) -> None:
    exchange = FolderExchange(tmp_path)
    name = file_name("site-a", keys_of("site-a").public)
    (home(tmp_path) / name / "x").mkdir(parents=True)
    assert exchange.publish(message()) is True
    assert unwarned(exchange) == [message()]
    assert exchange.publish(withdrawal(message())) is True
    assert [path.name for path in home(tmp_path).iterdir() if path.is_file()] == [name]
    assert unwarned(exchange) == []


def test_a_forged_withdrawal_withdraws_nothing(tmp_path: Path) -> None:
    exchange, keys = FolderExchange(tmp_path), keys_of("site-a")
    exchange.publish(message())
    path, last = only_file(tmp_path), withdrawal(message(sequence=2**32 - 1))
    path.write_bytes(seal(replace(last, signature=bytes(64))))
    with pytest.warns(ExchangeWarning, match="wrong signature"):
        assert sequences(exchange) == {}
    assert exchange.publish(message(sequence=2)) is True
    other = withdrawal(message(sequence=2**32 - 1), new_keys())
    assert other.key != keys.public
    path.write_bytes(seal(other))
    assert exchange.publish(message(sequence=3)) is True
    assert unwarned(exchange) == [message(sequence=3)]


# Many writers


WRITER = """
exchange, enough = FolderExchange(sys.argv[1]), Path(sys.argv[2])
sequence, step = map(int, sys.argv[4:])
print("ready", flush=True)
sys.stdin.readline()
while not enough.exists():
    sequence += step
    exchange.publish(message(sender=sys.argv[3], sequence=sequence))
print(sequence)
"""


@pytest.mark.slow
def test_processes_write_and_read_at_once(folder: Path, tmp_path: Path) -> None:
    """Two senders of their own and one that two processes share; nothing torn, nothing lost."""
    senders, enough = ("own-0", "own-1", "shared", "shared"), tmp_path / "enough"
    writers = [
        child(WRITER, folder, enough, sender, first, 1 + (sender == "shared"))
        for first, sender in zip((0, 0, -1, 0), senders, strict=True)
    ]
    together(writers)
    exchange = FolderExchange(folder)
    seen: dict[str, int] = {}
    reads = 0
    while reads < 20 or any(seen.get(sender, 0) < 60 for sender in senders):
        assert all(writer.poll() is None for writer in writers)
        found = sequences(exchange)  # a warning would be an error
        assert found.keys() >= seen.keys()
        assert all(found[sender] >= sequence for sender, sequence in seen.items())
        seen, reads = found, reads + 1
    enough.touch()
    own_0, own_1, *shared = [int(ended(writer)) for writer in writers]
    assert sequences(exchange) == {
        "site-a": 1,
        "own-0": own_0,
        "own-1": own_1,
        "shared": max(shared),
    }
    assert len(visible(folder)) == 4


FORK = """
import os, threading, time
exchange = FolderExchange(sys.argv[1])
exchange.publish(message())
held, done = threading.Event(), threading.Event()

def hold():
    with exchange._lock:
        held.set()
        done.wait()

threading.Thread(target=hold).start()
held.wait()
pid = os.fork()
if not pid:
    os._exit(0 if heard(exchange) == [message()] else 1)
for _ in range(1200):
    ended, status = os.waitpid(pid, os.WNOHANG)
    if ended:
        break
    time.sleep(0.05)
else:
    os.kill(pid, 9)
done.set()
print(ended == pid and os.waitstatus_to_exitcode(status) == 0)
"""


def test_a_forked_process_does_not_wait_for_a_thread_it_does_not_have(tmp_path: Path) -> None:
    assert ended(child(FORK, tmp_path / "exchange")) == "True\n"


# No room


def test_a_full_disk_is_an_error_that_says_so_and_the_old_message_stays(tmp_path: Path) -> None:
    federation = Federation(OURS.space, features=1000, kind="weights")
    FolderExchange(tmp_path).publish(message(federation))
    program = (
        "import resource, signal\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "federation = Federation(PLANE, features=1000, kind='weights')\n"
        "try:\n"
        "    FolderExchange(sys.argv[1]).publish(message(federation, sequence=2))\n"
        "except ExchangeError as error:\n"
        "    print(error)\n"
    )
    said = ended(child(program, tmp_path))
    assert said == (
        f"message 2 of 'site-a' was not put into {tmp_path}: File too large; "
        "free some space there, or raise the limit on the size of files\n"
    )
    assert heard(FolderExchange(tmp_path), federation) == [message(federation)]
    assert len(os.listdir(home(tmp_path, federation))) == 1
