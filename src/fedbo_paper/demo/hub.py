"""The hub of the demo: a thread of this process, with a database in a temporary folder."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import uvicorn

from fedbo.exchange.hub.memberships import Invitation
from fedbo.hub import store
from fedbo.hub.app import JsonLines, create_app
from fedbo.hub.names import command_line
from fedbo.hub.settings import Settings
from fedbo.trust import KeyPair
from fedbo_paper.demo.demo import Demo


class Hub(NamedTuple):
    """Where the hub is, a token for its page, and the invitation to each repeat's federation."""

    address: str
    token: str
    invitations: tuple[str, ...]


@contextmanager
def serving(demo: Demo, folder: Path) -> Iterator[Hub]:
    """Serve a hub with one federation for each repeat until the end of the block."""
    settings = Settings(db=f"sqlite:///{folder / 'hub.db'}", rate=0)
    engine = store.open_database(settings.db)
    invitations = []
    with store.begin(engine) as connection:
        for repeat in range(demo.repeats):
            name = f"repeat-{repeat + 1:02}"
            store.create_federation(connection, name, demo.federation(repeat), actor=command_line())
            uses = demo.agents + 1  # the agents, and whoever looks at the page
            invited = store.invite(connection, name, uses=uses, actor=command_line())
            invitations.append(invited.invitation)
        secret = Invitation.parse(invitations[0]).secret
        own = KeyPair.generate()  # who only looks publishes nothing
        token = store.enrol(connection, secret, "onlooker", own.public).token
    engine.dispose()
    log, handler = logging.getLogger("fedbo.hub"), logging.FileHandler(folder / "hub.log")
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    config = uvicorn.Config(create_app(settings), port=0, ws="none", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise OSError(f"the hub does not start: {(folder / 'hub.log').read_text()}")
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Hub(f"http://127.0.0.1:{port}", token, tuple(invitations))
    finally:
        server.should_exit = True
        thread.join()
        log.removeHandler(handler)
        handler.close()
