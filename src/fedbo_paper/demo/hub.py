"""The hub of the demo: a process on this machine, with a database in a temporary folder."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from fedbo_paper.demo.demo import Demo
from fedbo_paper.demo.processes import Process

_ACTOR = "command line"
_POLL = 0.05  # seconds between two looks whether the hub is ready


class Hub:
    """A hub with one federation for each repeat.

    Args:
        demo: The settings.
        folder: Where the database is put.
    """

    def __init__(self, demo: Demo, folder: Path) -> None:
        from fedbo.hub.database import begin, open_database

        from fedbo.hub import admin

        folder.mkdir(mode=0o700)
        db = f"sqlite:///{folder / 'hub.db'}"
        engine = open_database(db)
        with begin(engine) as connection:
            #: A token for the page.
            self.token = admin.new_operator(connection, "demo", actor=_ACTOR)
            #: The invitation to the federation of each repeat.
            self.invitations = []
            for repeat in range(demo.repeats):
                name = f"repeat-{repeat + 1}"
                admin.create_federation(connection, name, demo.federation(repeat), actor=_ACTOR)
                invited = admin.invite(connection, name, uses=demo.agents, days=1, actor=_ACTOR)
                self.invitations.append(str(invited.invitation))
        engine.dispose()
        port = _free_port()
        self.address = f"http://127.0.0.1:{port}"
        environ = {"FEDBO_HUB_DB": db, "FEDBO_HUB_PORT": str(port), "FEDBO_HUB_RATE": "0"}
        self.process = Process("the hub", __name__, folder=folder, environ=environ)

    def wait(self) -> None:
        """Wait until the hub answers."""
        while True:
            if self.process.has_ended:
                raise self.process.failure()
            try:
                with urlopen(f"{self.address}/readyz", timeout=5):
                    return
            except (URLError, OSError):
                time.sleep(_POLL)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _end_with_the_demo() -> None:
    """Stop the hub when its standard input is closed."""
    while sys.stdin.buffer.read(1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    from fedbo.hub.serve import serve
    from fedbo.hub.settings import load

    threading.Thread(target=_end_with_the_demo, daemon=True).start()
    serve(load({}, None, os.environ))
