"""What the page shows to one viewer: a page of members, recent events, open invitations."""

from __future__ import annotations

from typing import Literal

import msgspec
from sqlalchemy import Connection, func, select

from fedbo.hub import admin
from fedbo.hub.admin.audit import concerns
from fedbo.hub.auth import Caller
from fedbo.hub.schema import audit, member, message, progress
from fedbo.message.signed import key_text

Sort = Literal["name", "seen"]

_EVENTS = 40  # that are shown
_LOOKED_AT = 5000  # lines of the audit log, to find those of one member


class View(msgspec.Struct, frozen=True):
    """Which members a viewer wants to see: some of those with a text in their name."""

    search: str
    sort: Sort
    offset: int
    limit: int


class Reported(msgspec.Struct, frozen=True):
    """The progress that a member's agents reported."""

    trials: int
    best: float | None
    saved: float | None


class Person(msgspec.Struct, frozen=True):
    """A member, as the table shows it."""

    name: str
    key: str | None
    joined: float
    seen: float
    is_revoked: bool
    agents: int
    messages: int
    bytes: int
    trials: int
    progress: Reported | None


class People(msgspec.Struct, frozen=True):
    """A page of the table of members."""

    search: str
    sort: Sort
    offset: int
    limit: int
    matching: int  # members with this text in their name
    rows: list[Person]


class Event(msgspec.Struct, frozen=True):
    """A line of the audit log."""

    id: int
    time: float
    actor: str
    action: str
    subject: str
    detail: msgspec.Raw


class Invited(msgspec.Struct, frozen=True):
    """An invitation that can still be used."""

    id: int
    uses: int
    expires: float
    created: float


def people(connection: Connection, federation: int, view: View, *, is_larger_best: bool) -> People:
    """Return a page of members.

    Args:
        connection: To the database.
        federation: The id of the federation.
        view: Which ones.
        is_larger_best: Whether the federation maximises.
    """
    here = [member.c.federation == federation]
    if view.search:
        here.append(member.c.name.icontains(view.search, autoescape=True))
    matching = connection.scalar(select(func.count()).select_from(member).where(*here)) or 0
    columns = member.c.id, member.c.name, member.c.key, member.c.joined, member.c.seen
    order = (member.c.name,) if view.sort == "name" else (member.c.seen.desc(), member.c.name)
    query = select(*columns, member.c.token.is_(None).label("is_revoked")).where(*here)
    rows = connection.execute(query.order_by(*order).offset(view.offset).limit(view.limit)).all()
    ids = [row.id for row in rows]
    held, reports = _held(connection, ids), _reports(connection, ids, is_larger_best)
    return People(
        **msgspec.structs.asdict(view),
        matching=matching,
        rows=[
            Person(
                row.name,
                key_text(row.key) if row.key else None,
                row.joined,
                row.seen,
                bool(row.is_revoked),
                *held.get(row.id, (0, 0, 0, 0)),
                reports.get(row.id),
            )
            for row in rows
        ],
    )


def _held(connection: Connection, ids: list[int]) -> dict[int, tuple[int, int, int, int]]:
    """Count agents, messages, bytes and trials of members."""
    query = (
        select(
            message.c.member,
            func.count(),
            func.sum(func.length(message.c.content)),
            func.max(message.c.t_n),
        )
        .where(message.c.member.in_(ids), message.c.is_out)
        .group_by(message.c.member, message.c.sender)
    )
    found: dict[int, tuple[int, int, int, int]] = {}
    for number, messages, size, trials in connection.execute(query):
        agents_, messages_, size_, trials_ = found.get(number, (0, 0, 0, 0))
        sums = agents_ + 1, messages_ + messages, size_ + int(size), trials_ + trials
        found[number] = sums
    return found


def _reports(connection: Connection, ids: list[int], is_larger_best: bool) -> dict[int, Reported]:
    best = func.max if is_larger_best else func.min
    query = (
        select(
            progress.c.member,
            func.sum(progress.c.trials),
            best(progress.c.best),
            func.sum(progress.c.saved),
        )
        .where(progress.c.member.in_(ids))
        .group_by(progress.c.member)
    )
    return {
        number: Reported(int(trials), score, saved)
        for number, trials, score, saved in connection.execute(query)
    }


def events(connection: Connection, federation: str, caller: Caller) -> list[Event]:
    """Return the latest events: an operator sees all, a member those that concern it.

    Args:
        connection: To the database.
        federation: The name of the federation.
        caller: The viewer.
    """
    here = audit.c.federation == federation
    latest = audit.c.time.desc(), audit.c.id.desc()
    columns = [audit.c[name] for name in Event.__struct_fields__]
    if caller.is_operator:
        query = select(*columns).where(here).order_by(*latest).limit(_EVENTS)
    else:
        joined = select(member.c.joined).where(member.c.id == caller.id).scalar_subquery()
        since = here, audit.c.time >= joined  # someone else may have had its name before
        recent = select(*columns).where(*since).order_by(*latest).limit(_LOOKED_AT).subquery()
        query = select(recent).where(concerns(recent, caller.name)).limit(_EVENTS)
        query = query.order_by(recent.c.time.desc(), recent.c.id.desc())
    return [
        Event(id_, when, actor, action, subject, msgspec.Raw(detail.encode() or b"{}"))
        for id_, when, actor, action, subject, detail in connection.execute(query)
    ]


def invitations(connection: Connection, federation: str) -> list[Invited]:
    """Return the invitations that can still be used, without their secrets.

    Args:
        connection: To the database.
        federation: The name of the federation.
    """
    return [
        Invited(one.id, one.uses, one.expires, one.created)
        for one in admin.invitations(connection, federation)
    ]
