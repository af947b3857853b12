"""A real hub for tests: a process that serves, and people who may become its members at once."""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, insert, select, text, update
from sqlalchemy.engine import make_url

import fedbo
from contracts.exchange import KNOWN
from fedbo import Federation, FederationMismatch, Message
from fedbo.exchange import ExchangeError, Holding
from fedbo.exchange.hub.exchange import HubExchange
from fedbo.exchange.hub.memberships import Invitation, Membership, Memberships
from fedbo.hub import admin, schema
from fedbo.hub.database import begin, open_database
from fedbo.hub.problems import Refused
from fedbo.message import Withdrawal
from fedbo.message.signed import key_text, member

_START = 60.0  # seconds


class HubProcess:
    """A hub that runs as a process of its own until it is stopped.

    Args:
        db: The address of its database.
        settings: Its settings, beside the database.
    """

    def __init__(self, db: str, **settings: Any) -> None:
        self.db, self._settings = db, {"rate": 0, "failures": 0, "log": "plain"} | settings
        self.address, self._port = "", 0
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `stop`)

    def start(self) -> HubProcess:
        given = self._settings | {"db": self.db, "port": self._port}
        source = Path(fedbo.__file__).parents[1]
        environ = {name: value for name, value in os.environ.items() if "FEDBO" not in name}
        environ |= {f"FEDBO_HUB_{name.upper()}": str(value) for name, value in given.items()}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fedbo", "hub", "serve"],
            env=environ | {"PYTHONPATH": str(source)},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        until, begin = time.monotonic() + _START, len(self.log)
        while (found := re.search(r"https?://\S+:(\d+)$", self.log[begin:], re.M)) is None:
            assert self._process.poll() is None, self.log
            assert time.monotonic() < until, self.log
            time.sleep(0.05)
        self.address, self._port = found[0], int(found[1])
        return self

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, f"it ended with {self._process.poll()}: {self.log}"
        self._process.terminate()
        self._process.wait(timeout=60)
        self._log.close()

    def __enter__(self) -> HubProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def log(self) -> str:
        """All that it has printed."""
        return os.pread(self._log.fileno(), 10**8, 0).decode()


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
        with begin(self.engine) as connection:
            admin.create_federation(connection, name, federation, actor=admin.COMMAND_LINE)

    def invite(self, name: str, uses: int = 10, days: float = 1.0) -> Invitation:
        with begin(self.engine) as connection:
            made = admin.invite(connection, name, uses=uses, days=days, actor=admin.COMMAND_LINE)
            return made.invitation

    def begin_epoch(self, name: str, federation: Federation) -> None:
        with begin(self.engine) as connection:
            admin.add_epoch(connection, name, federation, actor=admin.COMMAND_LINE)

    def enrol(self, address: str, name: str, who: str, key: bytes = b"") -> Membership:
        """Make somebody a member without a request, and remember that here."""
        invited = self.invite(name)
        with begin(self.engine) as connection:
            made = admin.enrol(connection, invited.secret, who, key or None)
        membership = Membership(
            address=address,
            federation=name,
            fingerprint=str(invited.fingerprint),
            member=who,
            token=made.token,
            key=key_text(key) if key else "",
        )
        Memberships().add(membership)
        return membership

    def add_past_epoch(self, name: str, federation: Federation) -> None:
        with begin(self.engine) as connection:
            here = admin.find_federation(connection, name)
            row = {
                "federation": here.id,
                "number": federation.epoch,
                "fingerprint": bytes(federation.fingerprint),
                "file": federation.to_toml(),
                "created": time.time(),
            }
            connection.execute(insert(schema.epoch).values(row))

    def put(self, name: str, content: Message | Withdrawal) -> None:
        """Put a message into the database, as whoever has broken into the hub can."""
        with begin(self.engine) as connection:
            here = admin.lock_federation(connection, name)
            (cursor,) = admin.take_cursors(connection, here.id)
            whose = select(schema.member.c.id).where(
                schema.member.c.federation == here.id,
                schema.member.c.name == member(content.sender),
            )
            origin = {
                "federation": here.id,
                "epoch": content.epoch,
                "sender": content.sender,
                "key": content.key,
            }
            row = {
                "member": connection.scalar(whose),
                "sequence": content.sequence,
                "t_n": getattr(content, "t_n", 0),
                "is_out": True,
                "content": content.encode(),
                "cursor": cursor,
                "changed": time.time(),
            }
            same = [schema.message.c[column] == value for column, value in origin.items()]
            if not connection.execute(update(schema.message).where(*same).values(row)).rowcount:
                connection.execute(insert(schema.message).values(origin | row))

    def put_all(self, name: str, messages: list[Message]) -> None:
        """Put new messages into the database, of nobody, at once."""
        with begin(self.engine) as connection:
            here = admin.lock_federation(connection, name)
            cursors = admin.take_cursors(connection, here.id, len(messages))
            rows = [
                {
                    "federation": here.id,
                    "epoch": one.epoch,
                    "sender": one.sender,
                    "key": one.key,
                    "sequence": one.sequence,
                    "t_n": one.t_n,
                    "is_out": True,
                    "content": one.encode(),
                    "cursor": cursor,
                    "changed": time.time(),
                }
                for one, cursor in zip(messages, cursors, strict=True)
            ]
            connection.execute(insert(schema.message), rows)

    def take_back(self, name: str, senders: list[str]) -> None:
        """Remove messages, as if their members had left."""
        with begin(self.engine) as connection:
            here = admin.lock_federation(connection, name)
            cursors = admin.take_cursors(connection, here.id, len(senders))
            for sender, cursor in zip(senders, cursors, strict=True):
                row = schema.message.c
                gone = update(schema.message).where(row.federation == here.id, row.sender == sender)
                connection.execute(gone.values(is_out=False, content=b"", cursor=cursor))


class OpenHub(HubExchange):
    """A hub at which whoever publishes or asks is made a member at once.

    Each federation that is needed, and each epoch, is created in the hub's database.

    Args:
        address: The address of the hub.
        db: The address of its database.
        town: Its federations have names that begin with this word.
    """

    def __init__(self, address: str, db: str, town: str) -> None:
        super().__init__(address)
        self.db, self.town = db, town

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"db": self.db, "town": self.town}

    @property
    def office(self) -> Office:
        return Office(self.db)

    def publish(self, message: Message) -> bool:
        self.admit(message)
        return super().publish(message)

    def fetch(self, federation: Federation) -> list[Message]:
        self.come(federation)
        return super().fetch(federation)

    def withdraw(self, federation: Federation, sender: str, *rest: Any, **more: Any) -> bool:
        self.come(federation)
        return super().withdraw(federation, sender, *rest, **more)

    def holdings(self) -> list[Holding]:
        if not Memberships().all():
            return []
        return super().holdings()

    def put(self, content: Message | Withdrawal) -> None:
        """Put a message into the hub's database."""
        name = self.come(KNOWN[bytes(content.fingerprint), content.epoch])
        self.office.put(name, content)

    def come(self, federation: Federation) -> str:
        """Let the hub have this federation and one member of it; return the federation's name."""
        with _lock:
            name = self._name(federation)
            if not Memberships().of(self.url.base, name):
                who, key = next(iter(federation.members.items()), ("a watcher", b""))
                self.office.enrol(self.url.base, name, who, key)
            return name

    def admit(self, message: Message) -> None:
        """Let the sender of a message be a member, with the key of the message."""
        who = member(message.sender)
        with _lock:
            name = self._name(KNOWN[bytes(message.fingerprint), message.epoch])
            if not Memberships().of(self.url.base, name, member=who):
                try:
                    self.office.enrol(self.url.base, name, who, message.key)
                except Refused as refused:
                    raise ExchangeError(f"{refused.title}: {refused.detail}") from None

    def _name(self, federation: Federation) -> str:
        """Return the name of a federation, which is created if it is not there."""
        known = _towns.setdefault(self.town, {})
        for name, epochs in known.items():
            there = epochs.get(federation.epoch)
            if there is not None:
                if there.fingerprint == federation.fingerprint:
                    return name
                continue
            latest = epochs[max(epochs)]
            is_later = federation.epoch > latest.epoch
            first, second = (latest, federation) if is_later else (federation, latest)
            try:
                first.require_later(second)
            except FederationMismatch:
                continue
            add = self.office.begin_epoch if is_later else self.office.add_past_epoch
            add(name, federation)
            epochs[federation.epoch] = federation
            return name
        name = f"{self.town}-{len(known)}"
        self.office.create(name, federation)
        known[name] = {federation.epoch: federation}
        return name


_lock = threading.RLock()
_towns: dict[str, dict[str, dict[int, Federation]]] = {}  # by name and epoch


@cache
def _engine(db: str, process: int) -> Engine:
    return open_database(db)


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
            _engine(db, os.getpid()).dispose()
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    connection.engine.dispose()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
