"""Plant links in an exchange folder, as another user who may write to it, and see what they reach.

Two users share a folder: the *victim* publishes with fedbo, and the *attacker* swaps for a link

file         the victim's message: the link leads to a private file (mode 0600)
folder       the folder of the federation: the link leads to a private folder (mode 0700)

Does the mode of what is private change? A race ends then, or after --seconds. The command ends with
status 1 if an attack succeeds. It NEEDS ROOT, on Linux, because it acts as two other users.

    sudo python benchmarks/attack/links.py
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import os
import pwd
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import msgspec

import fedbo
from fedbo.exchange import ExchangeError, FolderExchange

FEDERATION = fedbo.Federation({"x": fedbo.Float(0.0, 1.0)})
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of renameat2(2)


def start(user: str, act: Callable[..., str], *arguments: object) -> tuple[int, int]:
    """Run a function as this user in a child process; return its id and a pipe for its result."""
    uid = pwd.getpwnam(user).pw_uid
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
        os.write(write, act(*arguments).encode())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def publish(shared: Path, private: Path, seconds: float) -> str:
    """Publish until the mode of what is private changes; return what happened."""
    agent = fedbo.Agent(FEDERATION, name="victim")
    agent.tell({"x": 0.3}, 1.0)
    message, exchange = agent.message(), FolderExchange(shared)
    before, end, n = private.stat().st_mode, time.monotonic() + seconds, 0
    while time.monotonic() < end and private.stat().st_mode == before:
        n += 1
        with contextlib.suppress(ExchangeError), warnings.catch_warnings(action="ignore"):
            exchange.publish(msgspec.structs.replace(message, sequence=n))
    is_same = private.stat().st_mode == before
    return f"{n:,} publishes: the mode {'stays' if is_same else 'HAS CHANGED'}"


def replace_file(shared: Path, private: Path) -> str:
    """Replace the victim's message by a link, again and again."""
    spare, names = shared / "spare", list[Path]()
    while not names:
        names = [*shared.glob("*/victim*")]
    while True:
        with contextlib.suppress(OSError):
            os.symlink(private, spare)
        with contextlib.suppress(OSError):
            os.rename(spare, names[0])


def replace_folder(shared: Path, private: Path) -> str:
    """Swap the folder of the federation for a link as soon as it appears; remove both later."""
    spare, folder = shared / "spare", shared / str(FEDERATION.fingerprint)
    both = AT_FDCWD, os.fsencode(spare), AT_FDCWD, os.fsencode(folder), RENAME_EXCHANGE
    for i in itertools.count():
        os.symlink(private, spare)
        while ctypes.CDLL(None).renameat2(*both):
            pass
        time.sleep(1e-4)
        os.unlink(folder)
        os.rename(spare, shared / f".{i}")
    raise AssertionError("it counts for ever")


ATTACKS = {"file": replace_file, "folder": replace_folder}


def race(attack: str, seconds: float) -> str:
    """Let the victim publish while the attacker attacks; return what happened."""
    uid = pwd.getpwnam("daemon").pw_uid
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("shared", "home", "home/private", "home/state")]
        for path, mode in zip(paths, (0o777, 0o755, 0o700, 0o700), strict=True):
            path.mkdir()
            path.chmod(mode)
        shared, home, private, state = paths
        if attack == "file":
            private = home / "private.txt"
            private.touch(0o600)
        os.chmod(folder, 0o755)
        for path in (shared, home, private, state):
            os.chown(path, uid, -1)
        os.environ["FEDBO_STATE"] = str(state)
        attacker, _ = start("nobody", ATTACKS[attack], shared, private)
        victim, result = start("daemon", publish, shared, private, seconds)
        with open(result) as pipe:
            text = pipe.read()
        os.waitpid(victim, 0)
        os.kill(attacker, signal.SIGKILL)
        os.waitpid(attacker, 0)
    return text or "FAILED: the error is above"


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
        sys.exit("links.py needs root, on Linux, because it acts as two other users")
    faults = 0
    for attack in [*ATTACKS] * options.races:
        outcome = race(attack, options.seconds)
        faults += not outcome.endswith("stays")
        print(f"{attack}: {outcome}")
    if faults:
        sys.exit(1)


if __name__ == "__main__":
    main()
