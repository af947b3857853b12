"""A real hub for tests: a process that serves, and people who may become its members at once."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
from sqlalchemy import Engine, bindparam, create_engine, insert, select, text, update
from sqlalchemy.engine import make_url

import fedbo
from contracts.exchange import KNOWN
from contracts.hub_rows import Desk
from fedbo import Federation
from fedbo.exchange import ExchangeError
from fedbo.exchange.hub.exchange import HubExchange
from fedbo.exchange.hub.memberships import HubUrl, Invitation, Membership, Memberships
from fedbo.exchange.latest import Content
from fedbo.hub import store
from fedbo.hub.names import command_line
from fedbo.hub.problems import Refused
from fedbo.hub.store import schema
from fedbo.message import Withdrawal
from fedbo.message.signed import key_text, member
from fedbo.testing.keys import keys_of
from fedbo.trust import Trusted

SOURCE = str(Path(fedbo.__file__).parents[1])
PATIENCE = 120.0  # seconds for anything on a busy machine


class HubProcess(Desk):
    """A hub that runs as a process of its own, at a free port of this machine.

    Args:
        db: The address of its database.
        settings: Its settings, beside the database; by default it has no limits on requests.
    """

    def __init__(self, db: str, **settings: Any) -> None:
        self.db, self._settings = db, {"rate": 0} | settings
        self.address, self.port = "", 0
        self.process: subprocess.Popen[bytes]
        self._log, name = tempfile.mkstemp()
        os.unlink(name)

    def __enter__(self) -> HubProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop()
        os.close(self._log)

    def start(self) -> HubProcess:
        """Start it, at the same port if it ran before, and wait until it says where it is."""
        given = self._settings | {"db": self.db, "port": self.port}
        environ = {name: value for name, value in os.environ.items() if "FEDBO" not in name}
        environ |= {f"FEDBO_HUB_{name.upper()}": str(value) for name, value in given.items()}
        begin = len(self.log)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fedbo", "hub", "serve"],
            env=environ | {"PYTHONPATH": SOURCE},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        pattern = re.compile(r"^fedbo hub: (\S+:(\d+))$", re.M)
        self.wait_for(lambda: pattern.search(self.log, begin) or self.process.poll() is not None)
        found = pattern.search(self.log, begin)
        assert found is not None, self.log
        self.address, self.port = found[1], int(found[2])
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self, sig: signal.Signals = signal.SIGTERM) -> int:
        """Stop it, and return its exit code."""
        assert self.process.poll() is None, f"it ended with {self.process.poll()}: {self.log}"
        self.process.send_signal(sig)
        return self.process.wait(PATIENCE)

    @property
    def log(self) -> str:
        """All that it has printed."""
        return os.pread(self._log, 10**8, 0).decode()

    def events(self) -> list[dict[str, Any]]:
        """Return the lines of its log."""
        lines = self.log.splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    @property
    def engine(self) -> Engine:  # type: ignore[override]
        """The database, as ``fedbo hub create`` and others use it."""
        return _engine(self.db, os.getpid())

    def client(self, token: str | None = None, **given: Any) -> httpx2.Client:
        """Return a client that knows a token."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx2.Client(
            base_url=self.address, headers=headers, timeout=PATIENCE, trust_env=False, **given
        )

    def get(self, path: str, token: str | None = None) -> httpx2.Response:
        """Send one request, through a connection of its own."""
        with self.client(token) as client:
            return client.get(path)

    @staticmethod
    def wait_for(condition: Callable[[], object]) -> None:
        """Wait until something is true."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, "this took too long"
            time.sleep(0.02)


class Office:
    """Whoever runs a hub, straight at its database.

    Args:
        db: The address of the database.
    """

    def __init__(self, db: str) -> None:
        self.db = db

    @property
    def engine(self) -> Engine:
        return _engine(self.db, os.getpid())

    def create(self, name: str, federation: Federation) -> None:
        with store.begin(self.engine) as connection:
            store.create_federation(connection, name, federation, actor=command_line())

    def update(self, name: str, federation: Federation) -> None:
        with store.begin(self.engine) as connection:
            store.update_federation(connection, name, federation, actor=command_line())

    def invite(self, name: str, uses: int = 10, days: float = 1.0) -> Invitation:
        with store.begin(self.engine) as connection:
            made = store.invite(connection, name, uses=uses, days=days, actor=command_line())
            return Invitation.parse(made.invitation)

    def revoke(self, name: str, who: str) -> None:
        with store.begin(self.engine) as connection:
            store.revoke(connection, name, who, actor=command_line())

    def remove(self, name: str, who: str) -> None:
        with store.begin(self.engine) as connection:
            store.remove(connection, name, who, actor=command_line())

    def enrol(self, address: str, name: str, who: str, key: bytes | None = None) -> Membership:
        """Make somebody a member without a request, and remember that here.

        It has the key of its name if no other is given.
        """
        key = keys_of(who).public if key is None else key
        invited = self.invite(name)
        with store.begin(self.engine) as connection:
            made = store.enrol(connection, invited.secret, who, key)
        membership = Membership(
            address=address,
            federation=name,
            fingerprint=str(invited.fingerprint),
            member=who,
            token=made.token,
            key=key_text(key),
        )
        Memberships().add(membership)
        return membership

    def put(self, name: str, *contents: Content) -> None:
        """Put messages into the database, as whoever has broken into the hub can."""
        with store.begin(self.engine) as connection:
            place = store.lock_federation(connection, name)
            whose = select(schema.member.c.name, schema.member.c.id)
            members = dict(
                tuple(row)
                for row in connection.execute(whose.where(schema.member.c.federation == place.id))
            )
            cursors = store.take_cursors(connection, place.id, len(contents))
            for content, cursor in zip(contents, cursors, strict=True):
                origin = {"federation": place.id, "sender": content.sender, "key": content.key}
                row = {
                    "member": members.get(member(content.sender)),
                    "sequence": content.sequence,
                    "t_n": getattr(content, "t_n", 0),
                    "is_out": not isinstance(content, Withdrawal),
                    "content": content.encode(),
                    "cursor": cursor,
                    "changed": time.time(),
                }
                change = update(schema.message).filter_by(**origin).values(row)
                if not connection.execute(change).rowcount:
                    connection.execute(insert(schema.message).values(origin | row))

    def take_back(self, name: str, senders: list[str]) -> None:
        """Remove messages, as if their members had left."""
        with store.begin(self.engine) as connection:
            place = store.lock_federation(connection, name)
            cursors = store.take_cursors(connection, place.id, len(senders))
            row = schema.message.c
            gone = update(schema.message).values(is_out=False, content=b"", cursor=bindparam("_at"))
            gone = gone.where(row.federation == place.id, row.sender == bindparam("_sender"))
            pairs = zip(senders, cursors, strict=True)
            connection.execute(gone, [{"_sender": who, "_at": cursor} for who, cursor in pairs])


class OpenHub(HubExchange):
    """A hub at which whoever publishes or asks is made a member at once.

    Each federation that is needed is created in the hub's database.

    Args:
        address: The address of the hub.
        db: The address of its database.
        town: Its federations have names that begin with this word.
    """

    def __init__(self, address: str, db: str, town: str) -> None:
        super().__init__(address)
        self.db, self.town = db, town

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenHub, (self.address, self.db, self.town)

    @property
    def office(self) -> Office:
        return Office(self.db)

    def publish(self, content: Content) -> bool:
        self.admit(content)
        return super().publish(content)

    def fetch(self, federation: Federation) -> list[Trusted]:
        self.come(federation)
        return super().fetch(federation)

    def put(self, content: Content) -> None:
        """Put a message into the hub's database."""
        self.office.put(self.come(KNOWN[content.fingerprint]), content)

    def come(self, federation: Federation) -> str:
        """Let the hub have this federation and one member of it; return the federation's name."""
        with _lock:
            name = self._name(federation)
            if not Memberships().at(HubUrl(self.url.base, name)):
                who, key = next(iter(federation.members.items()), ("a watcher", None))
                self.office.enrol(self.url.base, name, who, key)
            return name

    def admit(self, content: Content) -> None:
        """Let the sender of a message be a member, with the key of the message."""
        who = member(content.sender)
        with _lock:
            name = self._name(KNOWN[content.fingerprint])
            if not Memberships().at(HubUrl(self.url.base, name), who):
                try:
                    self.office.enrol(self.url.base, name, who, content.key)
                except Refused as refused:
                    raise ExchangeError(f"{refused.title}: {refused.detail}") from None

    def _name(self, federation: Federation) -> str:
        """Return the name of a federation, which is created if it is not there."""
        names = _towns.setdefault(self.town, {})
        if federation.fingerprint not in names:
            name = f"{self.town}-{len(names)}"
            self.office.create(name, federation)
            names[federation.fingerprint] = name
        return names[federation.fingerprint]


_lock = threading.RLock()
_towns: dict[str, dict[bytes, str]] = {}  # the names of federations, by town and fingerprint


@cache
def _engine(db: str, process: int) -> Engine:
    return store.open_database(db)


@contextmanager
def new_postgresql(server: str) -> Iterator[str]:
    """The address of a new database at a PostgreSQL server; it is dropped in the end."""
    name = f"hub_{secrets.token_hex(6)}"
    with create_engine(server, isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
        db = make_url(server).set(database=name).render_as_string(hide_password=False)
        try:
            yield db
        finally:
            with suppress(store.HubError):
                _engine(db, os.getpid()).dispose()
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    connection.engine.dispose()
