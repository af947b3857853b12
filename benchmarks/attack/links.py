"""Plant links in an exchange folder, as another user who may write to it, and see what they reach.

Two users share a folder: the *victim* publishes and fetches with fedbo, and the *attacker* replaces
files and folders by links to what belongs to the victim. Four attacks:

file         while the victim publishes, its message is replaced by a link to a private file (mode
             0600). Does the mode of the private file change?
folder       while the victim publishes, the folder of an epoch is replaced by a link to a private
             folder (mode 0700). Does the mode of the private folder change?
text         a message file is a link to a private file. Does a warning show the file's content?
descriptors  message files are links to a folder, at times or always. Does the victim's process
             keep file descriptors open?

The first two are races, and are run --races times. A race ends when the attack succeeds, or after
--publishes or --seconds.

THIS NEEDS ROOT, on Linux: the program changes to the two users in child processes. Without root it
says so and does nothing. It uses a temporary folder only.

    sudo python benchmarks/attack/links.py --json out.json
"""

from __future__ import annotations

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
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import fedbo
from fedbo.exchange import ExchangeError, FolderExchange
from fedbo_paper.contests import options, screen

FEDERATION = fedbo.Federation({"x": fedbo.Float(0.0, 1.0)})
SECRET = b"not for others: 5af2c1"
LINKS = 100
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of renameat2(2)


class Place(NamedTuple):
    """The shared folder, and what belongs to the victim."""

    shared: Path
    private_file: Path
    private_folder: Path

    @property
    def epoch(self) -> Path:
        return self.shared / str(FEDERATION.fingerprint) / f"epoch-{FEDERATION.epoch}"


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
        private.write_bytes(SECRET)
        private.chmod(0o600)
        for path in (top / "home", private, top / "home" / "private", top / "shared"):
            os.chown(path, victim, -1)
        yield Place(top / "shared", private, top / "home" / "private")
    finally:
        shutil.rmtree(top)


# Users


def start(uid: int, act: Callable[[], dict[str, Any] | None]) -> tuple[int, int]:
    """Run a function as this user in a child process; return its id and a pipe for its result."""
    result, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, result
    code = 1
    try:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        os.umask(0o077)
        os.write(write, json.dumps(act()).encode())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def meet(
    given: Namespace, act: Callable[[], dict[str, Any]], attack: Callable[[], None]
) -> dict[str, Any]:
    """Let the victim act while the attacker attacks; return what the victim reports."""
    attacker, _ = start(given.attacker, attack)
    victim, result = start(given.victim, act)
    with open(result, "rb") as pipe:
        text = pipe.read()
    os.waitpid(victim, 0)
    os.kill(attacker, signal.SIGKILL)
    os.waitpid(attacker, 0)
    if not text:
        raise SystemExit("links.py: the victim's process failed; its error is above")
    found: dict[str, Any] = json.loads(text)
    return found


def publish_until_changed(place: Place, path: Path, given: Namespace) -> dict[str, Any]:
    """Publish until the mode of the path changes, or for long enough."""
    warnings.simplefilter("ignore")
    agent = fedbo.Agent(FEDERATION, name="victim")
    agent.tell({"x": 0.3}, 1.0)
    message, exchange = agent.message(), FolderExchange(place.shared)
    before, end, n = _mode(path), time.monotonic() + given.seconds, 0
    while n < given.publishes and time.monotonic() < end and _mode(path) == before:
        n += 1
        with contextlib.suppress(ExchangeError):
            exchange.publish(msgspec.structs.replace(message, sequence=n))
    return {"publishes": n, "before": before, "after": _mode(path)}


def _mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):04o}"


# The attacker's part in the races


def replace_file(place: Place) -> None:
    """Replace the victim's message by a link, again and again."""
    spare = place.shared / "spare"
    names: list[str] = []
    while not names:
        with contextlib.suppress(OSError):
            names = [name for name in os.listdir(place.epoch) if name.startswith("victim")]
    message = place.epoch / names[0]
    while True:
        with contextlib.suppress(OSError):
            os.symlink(place.private_file, spare)
        with contextlib.suppress(OSError):
            os.rename(spare, message)


def replace_folder(place: Place) -> None:
    """Swap the folder of the epoch for a link as soon as it appears; remove both later."""
    beside = place.epoch.parent  # to move a folder elsewhere would need the right to write to it
    spare = beside / "spare"
    swap = _swap(spare, place.epoch)
    while not (beside.is_dir() and os.access(beside, os.W_OK)):
        pass
    for i in itertools.count():
        os.symlink(place.private_folder, spare)
        while swap():
            pass
        time.sleep(1e-4)
        os.unlink(place.epoch)
        os.rename(spare, beside / f".{i}")


def flicker(place: Place) -> None:
    """Turn message files into links to a folder, and back, again and again."""
    pairs = [(place.shared / f".{i}", place.shared / f"{i}.fedbo") for i in range(LINKS)]
    for spare, _ in pairs:
        spare.touch()
    swaps = [_swap(*pair) for pair in pairs]
    while True:
        for swap in swaps:
            swap()


def _swap(a: Path, b: Path) -> Callable[[], int]:
    """Return a function that swaps two paths in one call of the system; it returns 0 if it did."""
    paths = AT_FDCWD, os.fsencode(a), AT_FDCWD, os.fsencode(b), RENAME_EXCHANGE
    return partial(ctypes.CDLL(None).renameat2, *paths)


# Attacks


def race(
    given: Namespace, attack: Callable[[Place], None], private: Callable[[Place], Path]
) -> dict[str, Any]:
    """Publish while the attacker attacks, several times; list the publishes of each race."""
    runs = []
    for _ in range(given.races):
        with place(given.victim) as here:
            act = partial(publish_until_changed, here, private(here), given)
            runs.append(meet(given, act, partial(attack, here)))
    changed = [run["publishes"] for run in runs if run["after"] != run["before"]]
    return {
        "publishes": sum(run["publishes"] for run in runs),
        "races": given.races,
        "changed after": sorted(changed),
        "before": runs[0]["before"],
        "after": max(run["after"] for run in runs),
    }


def attack_text(given: Namespace) -> dict[str, Any]:
    def read() -> dict[str, Any]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            FolderExchange(here.shared).fetch(FEDERATION)
        text = " ".join(str(each.message) for each in caught)
        return {"fetches": 1, "is shown": SECRET[:12].decode() in text}

    with place(given.victim) as here:
        (here.shared / "a.fedbo").symlink_to(here.private_file)
        return meet(given, read, lambda: None)


def attack_descriptors(given: Namespace, fetches: int, at_times: bool) -> dict[str, Any]:
    """Count the descriptors that stay open after fetches."""

    def read() -> dict[str, Any]:
        warnings.simplefilter("ignore")
        exchange = FolderExchange(here.shared)
        time.sleep(0.5)  # until the attacker is busy
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(fetches):
            exchange.fetch(FEDERATION)
        return {"fetches": fetches, "left open": len(os.listdir("/proc/self/fd")) - before}

    with place(given.victim) as here:
        for i in range(LINKS):
            (here.shared / f"{i}.fedbo").symlink_to(here.private_folder)
        return meet(given, read, (lambda: flicker(here)) if at_times else lambda: None)


def attack_own_message(given: Namespace) -> dict[str, Any]:
    """Count the descriptors that stay open after publishing to a file that is a link."""

    def write() -> dict[str, Any]:
        warnings.simplefilter("ignore")
        agent = fedbo.Agent(FEDERATION, name="victim")
        agent.tell({"x": 0.3}, 1.0)
        message, exchange = agent.message(), FolderExchange(here.shared)
        exchange.publish(message)
        (path,) = here.epoch.glob("*.fedbo")
        before = len(os.listdir("/proc/self/fd"))
        for n in range(2, LINKS + 2):
            path.unlink()
            path.symlink_to(here.private_folder)
            with contextlib.suppress(ExchangeError):
                exchange.publish(msgspec.structs.replace(message, sequence=n))
        return {"publishes": LINKS, "left open": len(os.listdir("/proc/self/fd")) - before}

    with place(given.victim) as here:
        return meet(given, write, lambda: None)


ATTACKS: dict[str, Callable[[Namespace], dict[str, Any]]] = {
    "file": lambda given: race(given, replace_file, lambda here: here.private_file),
    "folder": lambda given: race(given, replace_folder, lambda here: here.private_folder),
    "text": attack_text,
    "descriptors, always links": lambda given: attack_descriptors(given, 5, at_times=False),
    "descriptors, links at times": lambda given: attack_descriptors(given, 100, at_times=True),
    "descriptors, own message": attack_own_message,
}


def describe(found: dict[str, Any]) -> list[str]:
    """Say how much was tried, and what happened."""
    tried = ", ".join(f"{found[key]:,} {key}" for key in ("publishes", "fetches") if key in found)
    if "races" in found:
        if not found["changed after"]:
            return [tried, f"the mode stays {found['before']} in {found['races']} races"]
        counts = ", ".join(f"{n:,}" for n in found["changed after"])
        became = f"MODE {found['before']} BECAME {found['after']}"
        return [tried, f"{became} after {counts} publishes ({found['races']} races)"]
    if "left open" in found:
        left = found["left open"]
        return [tried, f"{left:,} DESCRIPTORS LEFT OPEN" if left > 0 else "no descriptor left open"]
    return [tried, "THE CONTENT IS SHOWN" if found["is shown"] else "the content is not shown"]


def main() -> None:
    """Run the command."""
    parser = options.parser(__doc__)
    add = parser.add_argument
    add("--races", type=options.positive, default=5, metavar="N", help="of each kind; default: 5")
    text = "most publishes in a race; default: 20,000"
    add("--publishes", type=options.positive, default=20_000, metavar="N", help=text)
    text = "most seconds for a race; default: 20"
    add("--seconds", type=options.positive, default=20, metavar="S", help=text)
    for name, user in (("--victim", "daemon"), ("--attacker", "nobody")):
        add(name, default=user, metavar="USER", help=f"default: {user}")
    add("--json", type=Path, metavar="OUT", help="also write the outcomes to this file")
    given = parser.parse_args()
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        screen.say("Skipped: links.py needs root, on Linux, because it acts as two other users.")
        return
    for name in ("victim", "attacker"):
        setattr(given, name, pwd.getpwnam(getattr(given, name)).pw_uid)
    os.environ["FEDBO_STATE"] = tempfile.mkdtemp()
    os.chown(os.environ["FEDBO_STATE"], given.victim, -1)
    found = {}
    try:
        for name, attack in ATTACKS.items():
            screen.say(f"{name} …")
            found[name] = attack(given)
    finally:
        shutil.rmtree(os.environ["FEDBO_STATE"])
    rows = [[name, *describe(each)] for name, each in found.items()]
    screen.table("links in an exchange folder", ["attack", "tried", "outcome"], rows)
    screen.finish(found, given.json)


if __name__ == "__main__":
    screen.run(main)
