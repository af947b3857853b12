"""Private releases: what a hub publishes of its members' contributions, and what that costs.

A release is a row of its table, which says all of it. The transaction that adds the row has locked
the federation, and has counted the rows of all its epochs: nobody can fetch a release that is not
counted, and no two processes make the same one.

In the noise of a release, everything but the number of members follows from the plan. So a release
of which only the number is known has a known cost too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, distinct, func, insert, select, update

from fedbo.federation import Federation, Plan
from fedbo.hub.admin.audit import record
from fedbo.hub.admin.due import Standing, is_due
from fedbo.hub.admin.federations import (
    FederationRow,
    epoch_file,
    find_federation,
    lock_federation,
    take_cursors,
)
from fedbo.hub.admin.names import SCHEDULE
from fedbo.hub.problems import Refused
from fedbo.hub.schema import federation, member, message, release
from fedbo.identity import KeyPair
from fedbo.message import Message, Release
from fedbo.message.signed import key_text
from fedbo.privacy.accounting import Gaussian, Laplace, epsilon
from fedbo.privacy.budget import one_each
from fedbo.privacy.release import composed, mechanisms
from fedbo.privacy.release import release as release_of


class Made(NamedTuple):
    """A release, as the ledger of a hub lists it."""

    number: int  # from 1
    epoch: int
    time: float
    members: int
    trials: int
    is_lost: bool  # it was made after the backup that this hub was restored from


class Ledger(NamedTuple):
    """The releases of a federation, and what they cost.

    Args:
        plan: Its privacy plan.
        made: All releases so far.
        spent: ε that they cost each member, by the accountant; None: it is not installed.
        contributed: How many members have contributed from enough trials in the current epoch.
        is_reconciled: Whether releases can be made; False after a restore.
    """

    plan: Plan
    made: list[Made]
    spent: float | None
    contributed: int
    is_reconciled: bool


def make_release(
    connection: Connection,
    name: str,
    *,
    actor: str,
    number: int | None = None,
    keys: KeyPair | None = None,
) -> Made:
    """Make the next release of a federation, from the contributions of its current epoch.

    Args:
        connection: In a transaction that writes.
        name: The name of the federation at the hub.
        actor: Who does it.
        number: The number that the release should have; by default the next one. Whoever asks for
            the same number twice gets one release.
        keys: What signs it; None: it is not signed.

    Raises:
        Refused: If there is no plan, if it is used up, if there are no contributions, if the hub
            was restored and not reconciled, or if the release cannot be signed.
    """
    here = lock_federation(connection, name)
    agreed, plan = _agreed(connection, here)
    _check_reconciled(here)
    made = _count(connection, here)
    if number is not None and number <= made:
        raise Refused(
            "release-made",
            f"release {number} of {name!r} was made already; fedbo hub releases {name} lists all",
        )
    if number is not None and number > made + 1:
        raise Refused("wrong-request", f"release {number} was asked for, but {made + 1} is next")
    if made >= plan.releases:
        raise Refused(
            "budget-spent",
            f"all {plan.releases} releases that {name!r} plans for ε = {plan.epsilon:g} were made, "
            "in all of its epochs together: more would cost its members more than was promised",
        )
    chosen = _contributions(connection, here, agreed, plan)
    if not chosen:
        anyone = _contributors(connection, here, least=0)
        raise Refused(
            "nothing-to-release",
            f"nobody in {name!r} has contributed from {plan.least_trials} trials or more in epoch "
            f"{here.epoch}, as its plan asks for; {anyone} of its members contributed from fewer",
        )
    return _make(connection, here, agreed, chosen, made + 1, actor, keys)


def make_due_release(
    connection: Connection, federation_id: int, *, keys: KeyPair | None = None
) -> Made | None:
    """Make the next release of a federation if its plan asks for it now.

    Args:
        connection: In a transaction that writes.
        federation_id: The federation.
        keys: What signs it; None: it is not signed.

    Returns:
        The release; None if none is due.

    Raises:
        Refused: If it cannot be signed.
    """
    here = lock_federation(connection, federation_id)
    if not here.is_private or here.is_unreconciled:
        return None
    agreed, plan = _agreed(connection, here)
    standing = _standing(connection, here, plan)
    if not is_due(plan, standing, time.time()):
        return None
    chosen = _contributions(connection, here, agreed, plan)
    if len(chosen) < plan.least_members:  # some have another key than the file lists
        return None
    return _make(connection, here, agreed, chosen, standing.made + 1, SCHEDULE, keys)


def due_releases(connection: Connection) -> list[FederationRow]:
    """Return the federations whose plan asks for a release now.

    Args:
        connection: To the database.
    """
    found, now = [], time.time()
    open_ = federation.c.is_private & ~federation.c.is_unreconciled
    for number in connection.scalars(select(federation.c.id).where(open_)).all():
        here = find_federation(connection, number)
        _, plan = _agreed(connection, here)
        if plan.least_members and is_due(plan, _standing(connection, here, plan), now):
            found.append(here)
    return found


def reconcile(connection: Connection, name: str, releases: int, *, actor: str) -> int:
    """Record releases that were made after the backup from which this hub was restored.

    Args:
        connection: In a transaction that writes.
        name: The name of the federation at the hub.
        releases: The number of the last release that any member's ledger shows; 0 if none does.
        actor: Who does it.

    Returns:
        How many releases are recorded that this hub did not know.
    """
    here = lock_federation(connection, name)
    _, plan = _agreed(connection, here)
    made = _count(connection, here)
    if not made <= releases <= plan.releases:
        raise Refused(
            "wrong-request",
            f"releases is {releases}, expected {made} to {plan.releases}: this hub knows of "
            f"{made}, and the plan of {name!r} has {plan.releases}",
        )
    lost, now = range(made + 1, releases + 1), time.time()
    if lost:
        cursors = take_cursors(connection, here.id, len(lost))
        common = {"federation": here.id, "epoch": here.epoch, "members": 0, "trials": 0}
        rows = [
            {**common, "sequence": number, "content": None, "cursor": cursor, "time": now}
            for number, cursor in zip(lost, cursors, strict=True)
        ]
        connection.execute(insert(release), rows)
    known = update(federation).where(federation.c.id == here.id)
    connection.execute(known.values(is_unreconciled=False))
    detail = {"releases": releases, "lost": len(lost)}
    record(connection, "reconciled", actor=actor, federation=name, detail=detail, when=now)
    return len(lost)


def ledger(connection: Connection, name_or_id: str | int) -> Ledger:
    """Return the releases of a federation, and what they cost; `Refused` if it has no plan.

    Args:
        connection: To the database.
        name_or_id: The name of the federation at the hub, or its id.
    """
    here = find_federation(connection, name_or_id)
    agreed, plan = _agreed(connection, here)
    row = release.c
    columns = row.sequence, row.epoch, row.time, row.members, row.trials, row.content
    query = select(*columns).where(row.federation == here.id).order_by(row.sequence)
    rows = connection.execute(query).all()
    return Ledger(
        plan,
        [Made(*found[:5], is_lost=found.content is None) for found in rows],
        _spent(agreed, plan, (found.content for found in rows)),
        _contributors(connection, here, plan.least_trials),
        not here.is_unreconciled,
    )


def next_number(connection: Connection, name: str) -> int:
    """Return the number of the next release of a federation; `Refused` if it has no plan.

    Args:
        connection: To the database.
        name: The name of the federation at the hub.
    """
    here = find_federation(connection, name)
    _agreed(connection, here)
    return _count(connection, here) + 1


def _make(
    connection: Connection,
    here: FederationRow,
    agreed: Federation,
    chosen: list[Message],
    number: int,
    actor: str,
    keys: KeyPair | None,
) -> Made:
    _check_signer(agreed, keys)
    published = release_of(agreed, chosen, sequence=number)
    if keys is not None:
        published = keys.sign(published)
    (cursor,), now = take_cursors(connection, here.id), time.time()
    values = {
        "federation": here.id,
        "epoch": here.epoch,
        "sequence": number,
        "members": published.members,
        "trials": published.trials,
        "content": published.encode(),
        "cursor": cursor,
        "time": now,
    }
    connection.execute(insert(release).values(values))
    record(
        connection,
        "released",
        actor=actor,
        federation=here.name,
        detail={"number": number, "epoch": here.epoch, "members": published.members},
        when=now,
    )
    return Made(number, here.epoch, now, published.members, published.trials, False)


@lru_cache(maxsize=1024)
def _read(file: str) -> Federation:
    return Federation.from_toml(file)


def _agreed(connection: Connection, here: FederationRow) -> tuple[Federation, Plan]:
    """Return a federation in its current epoch, and its privacy plan."""
    agreed = _read(epoch_file(connection, here.id, here.epoch).file)
    if agreed.privacy is None:
        raise Refused(
            "no-privacy-plan",
            f"{here.name!r} has no privacy plan, so its members hear one another's messages and "
            "not releases; create a federation whose file has a table [privacy]",
        )
    return agreed, agreed.privacy


def _check_reconciled(here: FederationRow) -> None:
    if here.is_unreconciled:
        raise Refused(
            "not-reconciled",
            f"this hub was restored from a backup, and releases of {here.name!r} may have been "
            "made after that backup. Ask the members for the number of the last release that "
            f"fedbo ledger shows, and run fedbo hub reconcile {here.name} --releases NUMBER with "
            "the largest",
        )


def _check_signer(agreed: Federation, keys: KeyPair | None) -> None:
    """Check that members who know the keys of all senders will accept a release."""
    if not agreed.members or agreed.privacy is None:
        return
    by = agreed.privacy.by
    listed = agreed.members[by]  # no file lists members without it
    if keys is None or keys.public != listed:
        given = "this hub has no key" if keys is None else f"the key of this hub is {keys}"
        raise Refused(
            "no-release-key",
            f"the federation file lists {by!r} with the key {key_text(listed)}, and {given}: set "
            "release_key to the file of the listed private key, an identity.pem",
        )


def _count(connection: Connection, here: FederationRow) -> int:
    """Return how many releases were made, in all epochs."""
    last = select(func.max(release.c.sequence)).where(release.c.federation == here.id)
    return connection.scalar(last) or 0


def _standing(connection: Connection, here: FederationRow, plan: Plan) -> Standing:
    last = select(release.c.sequence, release.c.time, release.c.cursor)
    last = last.where(release.c.federation == here.id).order_by(release.c.sequence.desc()).limit(1)
    made, since, cursor = connection.execute(last).first() or (0, here.created, -1)
    if made >= plan.releases or here.cursor == cursor:  # there is no need to look further
        return Standing(made, since, 0, False)
    latest = _counted(here, plan.least_trials, func.max(message.c.cursor))
    has_changed = (connection.scalar(latest) or -1) > cursor
    members = _contributors(connection, here, plan.least_trials) if has_changed else 0
    return Standing(made, since, members, has_changed)


def _counted(here: FederationRow, least: int, *columns: ColumnElement[Any]) -> Select[Any]:
    """Select from the contributions of members to the current epoch, from so many trials."""
    return (
        select(*columns)
        .select_from(message.join(member, message.c.member == member.c.id))
        .where(
            message.c.federation == here.id,
            message.c.epoch == here.epoch,
            message.c.is_out,
            message.c.t_n >= least,
            member.c.token.is_not(None),
        )
    )


def _contributors(connection: Connection, here: FederationRow, least: int) -> int:
    return int(connection.scalar(_counted(here, least, func.count(distinct(member.c.id)))) or 0)


def _contributions(
    connection: Connection, here: FederationRow, agreed: Federation, plan: Plan
) -> list[Message]:
    """Return one contribution of each member whose messages others would accept."""
    columns = member.c.name, message.c.key, message.c.content
    rows = connection.execute(_counted(here, plan.least_trials, *columns))
    listed = agreed.members
    return one_each(
        agreed,
        (
            Message.decode(bytes(content))
            for name, key, content in rows
            if not listed or listed.get(name) == bytes(key)
        ),
    )


def _spent(agreed: Federation, plan: Plan, contents: Iterable[bytes | None]) -> float | None:
    """Return ε of releases, of which lost ones cost what the plan says; None: it is not known."""
    planned = mechanisms(composed(agreed, [None], 0, 1))
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
