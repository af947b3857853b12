"""The hub of the demo: a process on this machine, with a database in a temporary folder."""

from __future__ import annotations

import os
import signal
import sys
import threading
from functools import cached_property
from pathlib import Path

from fedbo.hub import store
from fedbo.hub.names import COMMAND_LINE
from fedbo.hub.serve import Stage
from fedbo.hub.settings import Settings
from fedbo_paper.demo.demo import Demo
from fedbo_paper.demo.processes import Process


class Hub:
    """A hub with one federation for each repeat.

    Args:
        demo: The settings.
        folder: A new folder for its database.
    """

    def __init__(self, demo: Demo, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        settings = Settings(db=f"sqlite:///{folder / 'hub.db'}", port=0, rate=0)
        engine = store.open_database(settings.db)
        #: The invitation to the federation of each repeat.
        self.invitations: list[str] = []
        with store.begin(engine) as connection:
            #: An operator's token, with which one can log in at the page.
            self.token = store.new_operator(connection, "demo", actor=COMMAND_LINE)
            for repeat in range(demo.repeats):
                name = f"repeat-{repeat + 1:02}"
                store.create_federation(
                    connection, name, demo.federation(repeat), actor=COMMAND_LINE
                )
                invited = store.invite(connection, name, uses=demo.agents, actor=COMMAND_LINE)
                self.invitations.append(invited.invitation)
        engine.dispose()
        self.process = Process("the hub", __name__, folder=folder, **settings.to_environ())

    @cached_property
    def address(self) -> str:
        """The address of the hub; the first time, this waits until it listens there."""
        for line in self.process.lines():
            return line.decode().strip()
        raise self.process.failure()


def _end_with_the_demo() -> None:
    """Stop the hub as soon as its standard input is closed."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Serve until the demo ends, however it ends."""
    stage = Stage(Settings.from_environ(os.environ))
    print(stage.address, flush=True)
    threading.Thread(target=_end_with_the_demo, daemon=True).start()
    sys.exit(stage.run())


if __name__ == "__main__":
    main()
