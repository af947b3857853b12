"""Plant links in an exchange folder, as another user who may write to it, and see what they reach.

Two users share a folder: the *victim* publishes with fedbo, and the *attacker* replaces files and
folders by links to what belongs to the victim.

file         while the victim publishes, its message is replaced by a link to a private file (mode
             0600). Does the mode of the private file change?
folder       while the victim publishes, the folder of the federation is replaced by a link to a
             private folder (mode 0700). Does the mode of the private folder change?

A race ends when the attack succeeds, or after --seconds; each kind is run --races times. The
command ends with status 1 if an attack succeeds.

THIS NEEDS ROOT, on Linux: the program changes to the two users in child processes. Without root it
says so and does nothing. It uses a temporary folder only.

    sudo python benchmarks/attack/links.py
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import json
import os
import pwd
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import fedbo
from fedbo.exchange import ExchangeError, FolderExchange

FEDERATION = fedbo.Federation({"x": fedbo.Float(0.0, 1.0)})
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of renameat2(2)


class Place(NamedTuple):
    """The shared folder, and what belongs to the victim."""

    shared: Path
    file: Path
    folder: Path

    @property
    def messages(self) -> Path:
        return self.shared / str(FEDERATION.fingerprint)


@contextlib.contextmanager
def place(victim: int) -> Iterator[Place]:
    """Create a folder to which everybody may write, and two things only for the victim."""
    top = Path(tempfile.mkdtemp())
    try:
        top.chmod(0o755)
        for name, mode in (("shared", 0o777), ("home", 0o755), ("home/private", 0o700)):
            (top / name).mkdir()
            (top / name).chmod(mode)
        private = top / "home" / "private.txt"
        private.touch()
        private.chmod(0o600)
        for path in (top / "home", private, top / "home" / "private", top / "shared"):
            os.chown(path, victim, -1)
        yield Place(top / "shared", private, top / "home" / "private")
    finally:
        shutil.rmtree(top)


def start(uid: int, act: Callable[[], Any]) -> tuple[int, int]:
    """Run a function as this user in a child process; return its id and a pipe for its result."""
    result, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, result
    try:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        os.umask(0o077)
        os.write(write, json.dumps(act()).encode())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


# What the attacker does, again and again


def replace_file(place: Place) -> None:
    """Replace the victim's message by a link."""
    spare, names = place.shared / "spare", list[str]()
    while not names:
        with contextlib.suppress(OSError):
            names = [name for name in os.listdir(place.messages) if name.startswith("victim")]
    while True:
        with contextlib.suppress(OSError):
            os.symlink(place.file, spare)
        with contextlib.suppress(OSError):
            os.rename(spare, place.messages / names[0])


def replace_folder(place: Place) -> None:
    """Swap the folder of the federation for a link as soon as it appears; remove both later."""
    spare = place.shared / "spare"
    for i in itertools.count():
        os.symlink(place.folder, spare)
        while swap(spare, place.messages):
            pass
        time.sleep(1e-4)
        os.unlink(place.messages)
        os.rename(spare, place.shared / f".{i}")


def swap(a: Path, b: Path) -> int:
    """Swap two paths in one call of the system; return 0 if it did."""
    paths = AT_FDCWD, os.fsencode(a), AT_FDCWD, os.fsencode(b), RENAME_EXCHANGE
    result: int = ctypes.CDLL(None).renameat2(*paths)
    return result


def publish(place: Place, path: Path, seconds: float) -> str:
    """Publish until the mode of the path changes; return what happened."""
    agent = fedbo.Agent(FEDERATION, name="victim")
    agent.tell({"x": 0.3}, 1.0)
    message, exchange = agent.message(), FolderExchange(place.shared)
    before, end, n = _mode(path), time.monotonic() + seconds, 0
    while time.monotonic() < end and _mode(path) == before:
        n += 1
        with contextlib.suppress(ExchangeError), warnings.catch_warnings(action="ignore"):
            exchange.publish(msgspec.structs.replace(message, sequence=n))
    return "" if _mode(path) == before else f"mode {_mode(path)} after {n:,} publishes"


def _mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):04o}"


ATTACKS: dict[str, tuple[Callable[[Place], None], Callable[[Place], Path]]] = {
    "file": (replace_file, lambda place: place.file),
    "folder": (replace_folder, lambda place: place.folder),
}


def race(attack: str, victim: int, attacker: int, seconds: float) -> str:
    """Let the victim publish while the attacker attacks; return what happened, empty if nothing."""
    replace, private = ATTACKS[attack]
    with place(victim) as here:
        attacking, _ = start(attacker, lambda: replace(here))
        publishing, result = start(victim, lambda: publish(here, private(here), seconds))
        with open(result, "rb") as pipe:
            text = pipe.read()
        os.waitpid(publishing, 0)
        os.kill(attacking, signal.SIGKILL)
        os.waitpid(attacking, 0)
    if not text:
        raise SystemExit("links.py: the victim's process failed; its error is above")
    return str(json.loads(text))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--races", type=int, default=5, metavar="N", help="of each kind; default 5")
    text = "for a race, at most; default: 20"
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help=text)
    options = parser.parse_args()
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        print("Skipped: links.py needs root, on Linux, because it acts as two other users.")
        return
    victim, attacker = (pwd.getpwnam(name).pw_uid for name in ("daemon", "nobody"))
    faults = []
    with tempfile.TemporaryDirectory() as state:
        os.environ["FEDBO_STATE"] = state
        os.chown(state, victim, -1)
        for attack in ATTACKS:
            found = [race(attack, victim, attacker, options.seconds) for _ in range(options.races)]
            faults += [fault for fault in found if fault]
            print(f"{attack}: {', '.join(filter(None, found)) or 'the mode stays'}")
    if faults:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
