"""What the page shows of a whole federation, to every viewer alike."""

from __future__ import annotations

import time
from typing import Literal

import msgspec
from sqlalchemy import Connection, case, distinct, func, select

from fedbo.hub import admin
from fedbo.hub.page.activity import Activity, Hours
from fedbo.hub.schema import audit, member, message, progress

_HOUR, _DAY = 3600.0, 86400.0
_REPORTS = 20  # that are shown
_FEW = 5  # refusals in an hour that need nobody's attention


class Figures(msgspec.Struct, frozen=True):
    """The key figures; revoked members are counted apart, and only messages that are out."""

    members: int
    revoked: int
    agents: int
    messages: int
    bytes: int
    hour: int  # messages published in the last hour
    day: int  # in the last 24 bars of the activity


class Check(msgspec.Struct, frozen=True):
    """One thing that tells whether a federation is well."""

    name: str
    text: str
    is_good: bool


class Health(msgspec.Struct, frozen=True):
    """Whether a federation is well."""

    state: Literal["new", "good", "quiet", "attention"]
    checks: list[Check]


class Report(msgspec.Struct, frozen=True):
    """The progress that an agent reported, because its site wants that."""

    sender: str
    trials: int
    best: float | None
    saved: float | None
    changed: float


class Progress(msgspec.Struct, frozen=True):
    """All progress that was reported, and the latest reports by name."""

    agents: int
    trials: int
    saved: float | None  # None: nobody gives an estimate
    rows: list[Report]


class Releases(msgspec.Struct, frozen=True):
    """The private releases of a federation, and what they cost."""

    made: int
    planned: int
    epsilon: float  # of all that are planned
    delta: float
    spent: float | None  # ε of those that were made; None: there is no accountant
    latest: float | None  # when the last one was made; None: there is none
    contributed: int  # members, in the current epoch, from enough trials
    least_members: int  # that the hub waits for; 0: the operator makes releases
    least_trials: int
    is_reconciled: bool


class Summary(msgspec.Struct, frozen=True):
    """What every viewer sees."""

    figures: Figures
    health: Health
    activity: Activity
    progress: Progress
    releases: Releases | None  # None: the federation has no privacy plan


def summarise(
    connection: Connection, federation: int, name: str, epoch: int, hours: Hours
) -> Summary:
    """Sum up a federation.

    Args:
        connection: To the database.
        federation: The id of the federation.
        name: Its name at the hub.
        epoch: Its current epoch.
        hours: What has counted its activity so far.
    """
    now = time.time()
    is_member = member.c.token.is_not(None)
    members, revoked, seen = connection.execute(
        select(
            func.count(case((is_member, 1))),
            func.count(case((member.c.token.is_(None), 1))),
            func.count(case((is_member & (member.c.seen >= now - _DAY), 1))),
        ).where(member.c.federation == federation)
    ).one()
    messages, size, agents, current = connection.execute(
        select(
            func.count(),
            func.coalesce(func.sum(func.length(message.c.content)), 0),
            func.count(distinct(message.c.sender)),
            func.count(distinct(case((message.c.epoch == epoch, message.c.sender)))),
        ).where(message.c.federation == federation, message.c.is_out)
    ).one()
    in_hour = audit.c.federation == name, audit.c.time >= now - _HOUR
    by_action = select(audit.c.action, func.count()).where(*in_hour).group_by(audit.c.action)
    lately: dict[str, int] = {action: lines for action, lines in connection.execute(by_action)}
    activity = hours.count(connection, name)
    refused = lately.get("refused", 0)
    return Summary(
        Figures(
            members=members,
            revoked=revoked,
            agents=agents,
            messages=messages,
            bytes=int(size),
            hour=lately.get("published", 0),
            day=sum(activity.published[-24:]),
        ),
        _health(connection, members, seen, agents, current, refused),
        activity,
        _progress(connection, federation),
        _releases(connection, federation),
    )


def _releases(connection: Connection, federation: int) -> Releases | None:
    if not admin.find_federation(connection, federation).is_private:
        return None
    found = admin.ledger(connection, federation)
    plan = found.plan
    return Releases(
        made=len(found.made),
        planned=plan.releases,
        epsilon=plan.epsilon,
        delta=plan.delta,
        spent=found.spent,
        latest=found.made[-1].time if found.made else None,
        contributed=found.contributed,
        least_members=plan.least_members,
        least_trials=plan.least_trials,
        is_reconciled=found.is_reconciled,
    )


def _health(
    connection: Connection, members: int, seen: int, agents: int, current: int, refused: int
) -> Health:
    from fedbo.version import __version__

    database = "SQLite" if connection.dialect.name == "sqlite" else "PostgreSQL"
    checks = [
        Check("Members seen in the last day", f"{seen:,} of {members:,}", seen > 0 or not members),
        Check("Agents in this epoch", f"{current:,} of {agents:,}", 2 * current >= agents),
        Check("Refused in the last hour", f"{refused:,}", refused <= _FEW),
        Check("Hub", f"fedbo {__version__}, {database}", True),
    ]
    if not members:
        return Health("new", checks)
    bad = [check for check in checks if not check.is_good]
    if not bad:
        return Health("good", checks)
    return Health("quiet" if bad == checks[:1] else "attention", checks)


def _progress(connection: Connection, federation: int) -> Progress:
    here = progress.c.federation == federation
    sums = func.count(), func.sum(progress.c.trials), func.sum(progress.c.saved)
    agents, trials, saved = connection.execute(select(*sums).where(here)).one()
    columns = [progress.c[name] for name in Report.__struct_fields__]
    query = select(*columns).where(here).order_by(progress.c.changed.desc()).limit(_REPORTS)
    rows = [Report(*row) for row in connection.execute(query)]
    rows.sort(key=lambda row: row.sender)
    return Progress(agents, int(trials or 0), saved, rows)
