"""What a hub forgets when it starts and once a day, so that its tables do not grow for ever."""

from __future__ import annotations

import time

from sqlalchemy import Connection, and_, case, delete, func, not_, or_, select, update

from fedbo.hub.admin.federations import lock_federation
from fedbo.hub.schema import federation, invitation, message, session

#: Days after which the hub forgets that a message was removed. Then a copy could be put back.
DAYS = 30
_DAY = 86400.0


def prune(connection: Connection, *, days: float = DAYS) -> int:
    """Delete traces of messages removed long ago, and old invitations and sessions.

    Signed withdrawals stay as long as their member does. Whoever asks with a cursor from before
    such a removal gets everything anew.

    Args:
        connection: In a transaction that writes.
        days: How old they must be; a month by default.

    Returns:
        How many traces of messages were deleted.
    """
    now, pruned = time.time(), 0
    oldest = now - days * _DAY
    is_trace = or_(func.length(message.c.content) == 0, message.c.member.is_(None))
    old = and_(not_(message.c.is_out), is_trace, message.c.changed < oldest)
    for number in connection.scalars(select(federation.c.id).order_by(federation.c.id)).all():
        here = lock_federation(connection, number)
        own = and_(message.c.federation == here.id, old)
        highest = connection.scalar(select(func.max(message.c.cursor)).where(own))
        if highest is None:
            continue
        pruned += connection.execute(delete(message).where(own)).rowcount
        change = update(federation).where(federation.c.id == here.id)
        connection.execute(change.values(floor=max(here.floor, highest)))
    used = case((invitation.c.uses == 0, invitation.c.created), else_=invitation.c.expires)
    connection.execute(delete(invitation).where(used < oldest))
    connection.execute(delete(session).where(session.c.expires < now))
    return pruned
