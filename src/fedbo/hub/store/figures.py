"""What the page shows of a whole federation: key figures, health, activity and progress."""

from __future__ import annotations

import hashlib
import time

from sqlalchemy import Connection, case, distinct, func, select

from fedbo.hub.records import Activity, AgentProgress, Check, Figures, Health, Progress
from fedbo.hub.store.schema import audit, federation, hub, member, message, release
from fedbo.hub.store.transaction import FederationRow

_DAY = 86400.0
_REPORTS = 20  # that are shown
_FEW = 5  # refusals in an hour that need nobody's attention


def state_of(connection: Connection, row: FederationRow) -> str:
    """Return a word that changes when anything changes that the page shows of a federation."""
    last = select(func.max(audit.c.id)).where(audit.c.federation == row.name)
    generation = connection.scalar(select(hub.c.generation))
    seen = connection.scalar(select(func.max(member.c.seen)).where(member.c.federation == row.id))
    hour = time.time() // 3600.0
    state = generation, hour, row.id, row.cursor, row.file, connection.scalar(last), seen
    return hashlib.sha256(repr(state).encode()).hexdigest()[:32]


def figures_of(connection: Connection, row: FederationRow, activity: Activity) -> Figures:
    """Return the key figures of a federation."""
    members, revoked = connection.execute(
        select(func.count(member.c.token), func.count(case((member.c.token.is_(None), 1)))).where(
            member.c.federation == row.id
        )
    ).one()
    agents, messages, size = connection.execute(
        select(
            func.count(distinct(message.c.sender)),
            func.count(),
            func.coalesce(func.sum(func.length(message.c.content)), 0),
        ).where(message.c.federation == row.id, message.c.is_out)
    ).one()
    return Figures(
        members=members,
        revoked=revoked,
        agents=agents,
        messages=messages,
        bytes=int(size),
        hour=sum(activity.published[-2:]),
        day=sum(activity.published[-24:]),
    )


def health_of(
    connection: Connection, row: FederationRow, figures: Figures, activity: Activity
) -> Health:
    """Tell whether a federation is well."""
    from fedbo.version import __version__

    here = member.c.federation == row.id, member.c.token.is_not(None)
    lately = member.c.seen >= time.time() - _DAY
    seen = connection.scalar(select(func.count()).where(*here, lately)) or 0
    refused = sum(activity.refused[-2:])
    database = "SQLite" if connection.dialect.name == "sqlite" else "PostgreSQL"
    is_seen = bool(seen or not figures.members)
    of = f"{seen:,} of {figures.members:,}"
    checks = [
        Check(name="Members seen in the last day", text=of, is_good=is_seen),
        Check(name="Refused lately", text=f"{refused:,}", is_good=refused <= _FEW),
        Check(name="Hub", text=f"fedbo {__version__}, {database}", is_good=True),
    ]
    if not figures.members:
        return Health(state="new", checks=checks)
    if refused > _FEW:
        return Health(state="attention", checks=checks)
    return Health(state="good" if is_seen else "quiet", checks=checks)


def progress_of(connection: Connection, row: FederationRow) -> Progress:
    """Return the progress that agents report."""
    here = message.c.federation == row.id, message.c.trials.is_not(None)
    sums = func.count(), func.sum(message.c.trials), func.sum(message.c.saved)
    agents, trials, saved = connection.execute(select(*sums).where(*here)).one()
    columns = [message.c[name] for name in AgentProgress.model_fields]
    query = select(*columns).where(*here).order_by(message.c.changed.desc()).limit(_REPORTS)
    rows = [AgentProgress(**each) for each in connection.execute(query).mappings()]
    return Progress(
        agents=agents,
        trials=int(trials or 0),
        saved=saved,
        rows=sorted(rows, key=lambda each: each.sender),
    )


def counts(connection: Connection) -> dict[str, int]:
    """Return how many federations, members and releases there are."""
    tables = {
        "federations": select(func.count()).select_from(federation),
        "members": select(func.count()).where(member.c.token.is_not(None)),
        "releases": select(func.count()).select_from(release),
    }
    return {name: connection.scalar(query) or 0 for name, query in tables.items()}
