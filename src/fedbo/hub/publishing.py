"""What becomes of messages and withdrawals that are published, many of them in one transaction.

It depends on the row of the federation, epoch, sender and key:

======================  ==========================================================
the row                 a message is handed out if
======================  ==========================================================
there is none           always
has a message           its sequence is larger; the same message again is a retry
has a withdrawal        its sequence is larger
is empty                its sequence is larger, or it is not signed
======================  ==========================================================

A row is empty if its message was deleted: its member has left, or has another key. Whoever kept a
signed message cannot put it back. Without a signature anyone can write a message with a larger
sequence, so the sequence of an empty row protects nobody there, and a study that has withdrawn may
publish the same message again.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, Self

from sqlalchemy import Connection

from fedbo.exchange.hub.wire import ANSWER_BYTES
from fedbo.hub.problems import Refused
from fedbo.hub.statements import Statements
from fedbo.message import Message, Withdrawal
from fedbo.message.signed import MOST_AGENTS

#: How many names the agents of one member may have had, withdrawn messages included. A name counts
#: once for each key, because each has a row of its own.
MOST_NAMES = 256

_KEY, _CURSOR = '"key"', '"cursor"'  # words of SQL
_MESSAGE = (
    "federation", "member", "epoch", "sender", _KEY, "sequence", "t_n", "is_out", "content",
    _CURSOR, "changed",
)  # fmt: skip
_PLACE = ("federation", "epoch", "sender", _KEY)
_AUDIT = ('"time"', "federation", "actor", "action", "subject", "detail")
_REPLACED = ", ".join(f"{name} = excluded.{name}" for name in _MESSAGE if name not in _PLACE)
_CONFLICT = f" ON CONFLICT ({', '.join(_PLACE)}) DO UPDATE SET {_REPLACED}"


class Member(Protocol):
    """Who publishes, as the request was authenticated: a row of the table of members."""

    @property
    def id(self) -> int: ...
    @property
    def federation(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def token(self) -> bytes | None: ...


class Place(NamedTuple):
    """What identifies a row of the table of messages."""

    federation: int
    epoch: int
    sender: str
    key: bytes


class Publication(NamedTuple):
    """A message or a withdrawal that someone publishes."""

    member: Member
    place: Place
    sequence: int
    t_n: int
    is_message: bool
    content: bytes

    @classmethod
    def of(cls, member: Member, signed: Message | Withdrawal, content: bytes) -> Self:
        place = Place(member.federation, signed.epoch, signed.sender, signed.key)
        t_n = signed.t_n if isinstance(signed, Message) else 0
        return cls(member, place, signed.sequence, t_n, isinstance(signed, Message), content)


class Locked(NamedTuple):
    """A federation that nobody else changes until the transaction ends."""

    name: str
    cursor: int


class _Row(NamedTuple):
    """What the table of messages has in a place."""

    sequence: int
    is_out: bool
    is_empty: bool
    content: bytes | None = None  # None: it was not read


_EMPTY = _Row(-1, False, True)
_Answer = tuple[bool | None, BaseException | None]
_Agent = tuple[str, bytes]  # its name, and the key of its messages


def lock(connection: Connection, ids: Collection[int]) -> dict[int, Locked]:
    """Lock federations in the order of their ids.

    Args:
        connection: In a transaction that writes.
        ids: Of the federations.
    """
    if not ids:
        return {}
    run = Statements(connection)
    text = f"SELECT id, name, {_CURSOR} FROM federation WHERE id IN {run.marks(len(ids))}"
    found = run.execute(f"{text} ORDER BY id{'' if run.is_file else ' FOR UPDATE'}", sorted(ids))
    return {id: Locked(name, cursor) for id, name, cursor in found}


class Publishing:
    """Decides about what is published in one transaction, in its order.

    Args:
        connection: In a transaction that writes.
        locked: The federations concerned.
    """

    def __init__(self, connection: Connection, locked: dict[int, Locked]) -> None:
        self._run = Statements(connection)
        self._names = {id: one.name for id, one in locked.items()}
        self._cursors = {id: one.cursor for id, one in locked.items()}
        self._now = time.time()
        self._changed: dict[Place, tuple[Any, ...]] = {}
        self._audit: list[tuple[Any, ...]] = []
        self._agents: dict[int, dict[_Agent, int]] | None = None  # messages of each, by member

    def answers(self, given: Sequence[Publication]) -> list[_Answer]:
        """Make the changes, and return the answer to each: whether it is out, or an error."""
        self._members = self._read_members({one.member.id for one in given})
        self._stored = self._read_rows(one.place for one in given)
        self._rows = {**self._stored}
        answers = [self._answer(one) for one in given]
        if self._changed:
            self._run.insert("message", _MESSAGE, self._changed.values(), _CONFLICT)
            self._run.insert("audit", _AUDIT, self._audit)
            self._advance()
        return answers

    def _read_members(self, ids: Collection[int]) -> dict[int, tuple[bytes, bytes]]:
        """Return the token and the key of members; empty if they have none."""
        place = f"member WHERE id IN {self._run.marks(len(ids))}"
        found = self._run.select(("id", "token", _KEY), place, ids, binary=("token", _KEY))
        return {id: (token, key) for id, token, key in found}

    def _read_rows(self, places: Iterable[Place]) -> dict[Place, _Row]:
        wanted: dict[tuple[int, int], set[str]] = defaultdict(set)
        for federation, epoch, sender, _ in places:
            wanted[federation, epoch].add(sender)
        rows: dict[Place, _Row] = {}
        for (federation, epoch), senders in wanted.items():
            mark = self._run.mark
            found = self._run.select(
                ("sender", _KEY, "sequence", "is_out", "length(content)"),
                f"message WHERE federation = {mark} AND epoch = {mark} "
                f"AND sender IN {self._run.marks(len(senders))}",
                (federation, epoch, *senders),
                binary=(_KEY,),
            )
            for sender, key, sequence, is_out, length in found:
                place = Place(federation, epoch, sender, key)
                rows[place] = _Row(sequence, bool(is_out), not length)
        return rows

    def _content(self, place: Place) -> bytes:
        """Return what is in a row."""
        if (known := self._rows[place].content) is not None:
            return known
        where = " AND ".join(f"{name} = {self._run.mark}" for name in _PLACE)
        ((content,),) = self._run.execute(f"SELECT content FROM message WHERE {where}", place)
        return bytes(content)

    def _read_agents(self) -> dict[int, dict[_Agent, int]]:
        """Return how many messages are out of each agent of the members."""
        agents: dict[int, dict[_Agent, int]] = {id: {} for id in self._members}
        place = f"message WHERE member IN {self._run.marks(len(agents))}"
        columns = ("member", "sender", _KEY, "is_out")
        for id, name, key, is_out in self._run.select(columns, place, agents, binary=(_KEY,)):
            agents[id][name, key] = agents[id].get((name, key), 0) + is_out
        return agents

    def _answer(self, one: Publication) -> _Answer:
        try:
            self._check_member(one)
            return self._publish(one), None
        except Refused as refused:
            return None, refused

    def _check_member(self, one: Publication) -> None:
        """Check again, under the lock, what authenticated the request."""
        token, key = self._members.get(one.member.id, (b"", b""))
        if not token or token != one.member.token:
            raise Refused("wrong-token", "the token was revoked or replaced meanwhile")
        if key != one.place.key:
            raise Refused("wrong-key", f"the key of {one.member.name!r} was replaced meanwhile")

    def _publish(self, one: Publication) -> bool:
        row = self._rows.get(one.place, _EMPTY)
        is_free = row.is_empty and not one.place.key
        if not is_free and one.sequence <= row.sequence:
            if one.is_message:
                return row.is_out and self._content(one.place) == one.content
            if not row.is_out or one.sequence < row.sequence:
                return False
        if not row.is_out:
            self._check_agents(one)
        self._change(one, row.is_out)
        return one.is_message or row.is_out

    def _check_agents(self, one: Publication) -> None:
        """Check that the member does not get too many agents."""
        if self._agents is None:
            self._agents = self._read_agents()
            for place, (_, member, *_) in self._changed.items():  # not in the database yet
                self._count(member, place, self._stored.get(place, _EMPTY).is_out)
        agent, agents = (one.place.sender, one.place.key), self._agents[one.member.id]
        others = sum(1 for other, out in agents.items() if out and other != agent)
        most = min(MOST_AGENTS, max(1, ANSWER_BYTES // max(1, len(one.content))))
        if one.is_message and others >= most:
            raise Refused(
                "too-many-agents",
                f"{one.member.name!r} has {others} agents with a message here, expected at most "
                f"{most} with messages of {len(one.content):,} bytes: withdraw one, or publish "
                "under one of their names",
            )
        if agent not in agents and len(agents) >= MOST_NAMES:
            raise Refused(
                "too-many-agents",
                f"the agents of {one.member.name!r} have had {MOST_NAMES} names here (a name "
                "counts again under each new key), and cannot have more: publish under one of "
                "these names with its key, or leave and join again",
            )

    def _count(self, member: int, place: Place, was_out: bool) -> None:
        if self._agents is not None:
            agents, change = self._agents[member], self._rows[place].is_out - was_out
            agent = place.sender, place.key
            agents[agent] = agents.get(agent, 0) + change

    def _change(self, one: Publication, was_out: bool) -> None:
        place, member, is_out = one.place, one.member, one.is_message
        self._cursors[place.federation] += 1
        self._rows[place] = _Row(one.sequence, is_out, False, one.content)
        self._count(member.id, place, was_out)
        self._changed[place] = (
            place.federation,
            member.id,
            place.epoch,
            place.sender,
            place.key,
            one.sequence,
            one.t_n,
            is_out,
            one.content,
            self._cursors[place.federation],
            self._now,
        )
        self._audit.append(
            (
                self._now,
                self._names[place.federation],
                member.name,
                "published" if is_out else "withdrew",
                place.sender,
                f'{{"sequence":{one.sequence},"bytes":{len(one.content)}}}',
            )
        )

    def _advance(self) -> None:
        text = f"UPDATE federation SET {_CURSOR} = {self._run.mark} WHERE id = {self._run.mark}"
        for federation in {place.federation for place in self._changed}:
            self._run.execute(text, (self._cursors[federation], federation))
