"""Private releases: what a hub publishes of its members' contributions, and what that costs.

A release is a row of its table, which says all of it. The transaction that adds the row has locked
the federation and has read all earlier rows: nobody can fetch a release that is not counted, and no
two processes make the same one. `fedbo.privacy.budget` says when one is due, and makes it within
the plan.

In the noise of a release, everything but the number of members follows from the plan. So a release
of which only the number is known has a known cost too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    func,
    insert,
    select,
    update,
)

from fedbo.errors import BudgetSpent, KeyRefused
from fedbo.federation.federation import Federation
from fedbo.federation.plan import Plan
from fedbo.hub.names import SCHEDULE
from fedbo.hub.problems import Refused
from fedbo.hub.records import ReleaseInfo, ReleaseLedger
from fedbo.hub.store.schema import federation, member, message, release
from fedbo.hub.store.transaction import (
    FederationRow,
    find_federation,
    lock_federation,
    record,
    take_cursors,
)
from fedbo.message import Message, Release
from fedbo.privacy.accounting import Gaussian, Laplace, epsilon
from fedbo.privacy.budget import is_due, next_release, one_each
from fedbo.privacy.release import composed, mechanisms
from fedbo.trust import KeyPair


def make_release(
    connection: Connection,
    name: str,
    *,
    actor: str,
    number: int | None = None,
    keys: KeyPair,
) -> ReleaseInfo:
    """Make the next release of a federation, from the contributions of its members.

    Asking for the same number twice gives one release; by default, it is the next number."""
    row = lock_federation(connection, name)
    plan = _plan(row)
    if row.is_restored:
        raise Refused(
            "suspended",
            f"this hub was restored from a backup, and releases of {name!r} may have been made "
            "after that backup. Ask the members for the number of the last release that fedbo "
            f"ledger shows, and run fedbo hub admit {name} --releases NUMBER with the largest",
        )
    made = _count(connection, row)
    if number is not None and number <= made:
        raise Refused(
            "release-made",
            f"release {number} of {name!r} was made already; fedbo hub releases {name} lists all",
        )
    if number is not None and number > made + 1:
        raise Refused("wrong-request", f"release {number} was asked for, but {made + 1} is next")
    chosen = _contributions(connection, row)
    if not chosen and made < plan.releases:
        anyone, _ = _contributors(connection, row, least=0)
        raise Refused(
            "nothing-to-release",
            f"nobody in {name!r} has contributed from {plan.least_trials} trials or more, as its "
            f"plan asks for; {anyone} of its members contributed from fewer",
        )
    return _make(connection, row, chosen, actor, keys)


def make_due_release(
    connection: Connection, federation_id: int, *, keys: KeyPair
) -> ReleaseInfo | None:
    """Make the next release of a federation if its plan asks for it now; None if it does not."""
    row = lock_federation(connection, federation_id)
    if (last := _last(connection, row)) is None:
        return None
    when, cursor = last
    new = _contributions(connection, row, since=cursor)
    if not is_due(row.agreed, new, last=when, now=time.time()):
        return None
    return _make(connection, row, _contributions(connection, row), SCHEDULE, keys)


def due_releases(connection: Connection) -> list[FederationRow]:
    """Return the federations of which a release may be due: something has changed since the last.

    `make_due_release` decides, in a transaction of its own for each federation.
    """
    private = select(federation.c.id).where(federation.c.is_private)
    rows = [find_federation(connection, number) for number in connection.scalars(private).all()]
    return [row for row in rows if _last(connection, row) is not None]


def record_lost(connection: Connection, row: FederationRow, releases: int | None) -> int:
    """Record releases that were made since the backup as spent; return how many there are.

    Args:
        connection: In a transaction that has locked the federation.
        row: The federation.
        releases: The number of the last release that was made; it is needed after a restore.
    """
    if not row.is_restored and releases is None:
        return 0
    plan, made = _plan(row), _count(connection, row)
    if releases is None or not made <= releases <= plan.releases:
        raise Refused(
            "wrong-request",
            f"the number of releases is {releases}, expected {made} to {plan.releases}: ask "
            "the members for the number of the last one that fedbo ledger shows, and give the "
            "largest with --releases",
        )
    for number in range(made + 1, releases + 1):
        _insert(connection, row, number)
    known = update(federation).where(federation.c.id == row.id)
    connection.execute(known.values(is_restored=False))
    return releases - made


def ledger(connection: Connection, name: str) -> ReleaseLedger:
    """Return the releases of a federation, and what they cost each member."""
    row = find_federation(connection, name)
    plan, rows = _plan(row), _rows(connection, row)
    contributed, trials = _contributors(connection, row, plan.least_trials)
    return ReleaseLedger(
        epsilon=plan.epsilon,
        delta=plan.delta,
        planned=plan.releases,
        spent=_spent(row.agreed, plan, (each.content for each in rows)),
        contributed=contributed,
        trials=trials,
        least_members=plan.least_members,
        least_trials=plan.least_trials,
        is_restored=row.is_restored,
        releases=[
            ReleaseInfo(
                number=each.sequence,
                time=each.time,
                members=each.members,
                trials=each.trials,
                is_lost=each.content is None,
            )
            for each in rows
        ],
    )


def _make(
    connection: Connection,
    row: FederationRow,
    chosen: list[Message],
    actor: str,
    keys: KeyPair,
) -> ReleaseInfo:
    """Make a release within the plan, and record it in the same transaction."""
    contents = [each.content for each in _rows(connection, row)]
    released = [Release.decode(bytes(content)) for content in contents if content is not None]
    lost = len(contents) - len(released)
    try:
        made = next_release(row.agreed, released, chosen, lost=lost, keys=keys)
    except BudgetSpent as error:
        raise Refused("budget-spent", f"{row.name!r}: {error}") from None
    except KeyRefused as error:
        raise Refused(
            "no-release-key",
            f"{error}. Set release_key to the file of the listed private key, an identity.pem",
        ) from None
    when = _insert(connection, row, made.sequence, made)
    record(
        connection,
        "released",
        actor=actor,
        federation=row.name,
        detail={"number": made.sequence, "members": made.members},
    )
    return ReleaseInfo(
        number=made.sequence, time=when, members=made.members, trials=made.trials, is_lost=False
    )


def _insert(
    connection: Connection, row: FederationRow, number: int, made: Release | None = None
) -> float:
    """Add a release, or a lost one; return its time."""
    (cursor,) = take_cursors(connection, row.id)
    now = time.time()
    values = {
        "federation": row.id,
        "sequence": number,
        "members": made.members if made else 0,
        "trials": made.trials if made else 0,
        "content": made.encode() if made else None,
        "cursor": cursor,
        "time": now,
    }
    connection.execute(insert(release).values(values))
    return now


def _plan(row: FederationRow) -> Plan:
    """Return the privacy plan of a federation; `Refused` if it has none."""
    if (plan := row.agreed.privacy) is None:
        raise Refused(
            "no-privacy-plan",
            f"{row.name!r} has no privacy plan, so its members hear one another's messages and "
            "not releases; create a federation whose file has a table [privacy]",
        )
    return plan


def _rows(connection: Connection, row: FederationRow) -> list[Row[Any]]:
    own = select(release).where(release.c.federation == row.id)
    return [*connection.execute(own.order_by(release.c.sequence))]


def _count(connection: Connection, row: FederationRow) -> int:
    last = select(func.max(release.c.sequence)).where(release.c.federation == row.id)
    return connection.scalar(last) or 0


def _last(connection: Connection, row: FederationRow) -> tuple[float, int] | None:
    """Return the time and cursor of the last release; None if no other one can be due."""
    plan = row.agreed.privacy
    if plan is None or not plan.least_members or row.is_restored:
        return None
    last = select(release.c.sequence, release.c.time, release.c.cursor)
    last = last.where(release.c.federation == row.id).order_by(release.c.sequence.desc()).limit(1)
    made, when, cursor = connection.execute(last).first() or (0, row.created, -1)
    return None if made >= plan.releases or row.cursor == cursor else (when, cursor)


def _counted(row: FederationRow, least: int, *columns: ColumnElement[Any]) -> Select[Any]:
    """Select from the contributions of members, from so many trials."""
    return (
        select(*columns)
        .select_from(message.join(member, message.c.member == member.c.id))
        .where(
            message.c.federation == row.id,
            message.c.is_out,
            message.c.t_n >= least,
            member.c.token.is_not(None),
            ~member.c.is_suspended,
        )
    )


def _contributors(connection: Connection, row: FederationRow, least: int) -> tuple[int, int]:
    """Count the members that have contributed from so many trials, and their trials."""
    most = _counted(row, least, func.max(message.c.t_n).label("t_n")).group_by(member.c.id)
    each = most.subquery().c.t_n
    members, trials = connection.execute(select(func.count(each), func.sum(each))).one()
    return int(members), int(trials or 0)


def _contributions(connection: Connection, row: FederationRow, since: int = -1) -> list[Message]:
    """Return one contribution since a cursor of each member whose messages others would accept."""
    columns = member.c.name, message.c.key, message.c.content
    agreed = row.agreed
    chosen = _counted(row, _plan(row).least_trials, *columns)
    rows = connection.execute(chosen.where(message.c.cursor > since))
    return one_each(
        agreed,
        (
            Message.decode(bytes(content))
            for name, key, content in rows
            if not agreed.members or agreed.members.get(name) == bytes(key)
        ),
    )


def _spent(agreed: Federation, plan: Plan, contents: Iterable[bytes | None]) -> float | None:
    """Return ε of releases, of which lost ones cost what the plan says; None: it is not known."""
    planned = mechanisms(composed(agreed, [None], None, 1))
    costs: list[Laplace | Gaussian] = []
    for content in contents:
        costs += planned if content is None else mechanisms(Release.decode(bytes(content)))
    try:
        return _epsilon(tuple(costs), plan.delta) if costs else 0.0
    except ModuleNotFoundError:
        return None


@lru_cache(maxsize=256)
def _epsilon(costs: tuple[Laplace | Gaussian, ...], delta: float) -> float:
    return epsilon(costs, delta)
