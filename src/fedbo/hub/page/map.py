"""The map of who resembles whom, from the messages of a federation's current epoch."""

from __future__ import annotations

import msgspec
import numpy as np
from sqlalchemy import Connection, func, select

from fedbo.federation import Federation
from fedbo.federation.likeness import Likeness
from fedbo.hub.page.alike import MOST_ON_MAP, layout, weights
from fedbo.hub.schema import message
from fedbo.message.signed import member

_MOST_BYTES = 64_000_000  # of the messages that are read
_PEERS = 3  # the most alike peers that are named for each agent


class Placed(msgspec.Struct, frozen=True):
    """An agent on the map.

    Args:
        sender: Its name.
        member: The name of its member.
        trials: How many trials are behind its message.
        x: Where it is; -1 to 1.
        y: Where it is; -1 to 1.
        alike: The rows of its most alike peers, and how alike they are: at most 1.
    """

    sender: str
    member: str
    trials: int
    x: float
    y: float
    alike: list[tuple[int, float]]


class Map(msgspec.Struct, frozen=True):
    """The agents that published last.

    Args:
        history: A cursor of another history does not compare with this one's.
        version: The cursor of the federation when it was drawn.
        total: How many agents there are.
        agents: Those on the map, by name.
    """

    history: str
    version: int
    total: int
    agents: list[Placed]


def draw(
    connection: Connection,
    federation: int,
    agreed: Federation,
    likeness: Likeness,
    history: str,
    version: int,
) -> Map:
    """Draw the map.

    Args:
        connection: To the database.
        federation: The id of the federation.
        agreed: What its agents agree on, in the current epoch.
        likeness: What compares its messages.
        history: The generation of the database.
        version: The cursor of the federation.
    """
    here = (
        message.c.federation == federation,
        message.c.epoch == agreed.epoch,
        message.c.is_out,
    )
    total = connection.scalar(select(func.count()).where(*here)) or 0
    query = select(message.c.sender, message.c.t_n, message.c.content).where(*here)
    latest = query.order_by(message.c.cursor.desc()).limit(_most(agreed))
    found = {row.sender: row for row in connection.execute(latest)}  # a sender has one key at most
    rows = [found[sender] for sender in sorted(found)]
    if not rows:
        return Map(history, version, total, [])
    U = likeness.directions(np.stack([weights(row.content) for row in rows]))
    places, cosines = layout(U).round(4).tolist(), (U @ U.T).astype(float)
    np.fill_diagonal(cosines, -np.inf)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, : min(_PEERS, len(rows) - 1)]
    agents = [
        Placed(
            row.sender,
            member(row.sender),
            row.t_n,
            places[i][0],
            places[i][1],
            [(int(j), round(float(cosines[i, j]), 3)) for j in order[i] if cosines[i, j] > 0],
        )
        for i, row in enumerate(rows)
    ]
    return Map(history, version, total, agents)


def _most(agreed: Federation) -> int:
    return max(2, min(MOST_ON_MAP, _MOST_BYTES // agreed.sent_bytes))
