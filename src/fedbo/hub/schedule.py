"""Releases that a hub makes by itself, when the privacy plan of a federation asks for one.

Every process of a hub looks about once a minute. Which of them makes a release is decided in the
transaction that makes it: the next one finds that it was made.
"""

from __future__ import annotations

import asyncio

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from fedbo.hub import admin
from fedbo.hub.problems import Refused
from fedbo.hub.service import Service

EVERY = 60.0  # seconds


async def make_due_releases(service: Service) -> None:
    """Make all releases that are due, and log them.

    Args:
        service: The hub.
    """
    try:
        due = await service.read(admin.due_releases)
    except SQLAlchemyError:  # the database does not answer; there is another look in a minute
        return
    for here in due:
        try:
            await _make(service, here)
        except Exception as error:  # of one federation; the others do not wait for it
            service.log.error("not-released", error, federation=here.name)


async def _make(service: Service, here: admin.FederationRow) -> None:
    agreed = await service.agreed(here.id, here.epoch)
    await asyncio.to_thread(lambda: agreed.basis)  # not while others wait for the database

    def make(connection: Connection) -> admin.Made | None:
        return admin.make_due_release(connection, here.id, keys=service.keys)

    try:
        made = await service.change(make, here.id)
    except Refused as refused:
        fault = {"problem": refused.slug, "detail": refused.detail}
        service.log.write("not-released", federation=here.name, **fault)
        return
    if made is not None:  # else another process was first
        found = {"number": made.number, "members": made.members}
        service.log.write("released", federation=here.name, **found)


async def run(service: Service) -> None:
    """Look again and again for releases that are due, until it is cancelled.

    Args:
        service: The hub.
    """
    while True:
        await asyncio.sleep(EVERY)
        try:
            await make_due_releases(service)
        except Exception as error:  # the next look may do better
            service.log.error("not-released", error)
