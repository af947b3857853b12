"""All sites of a demo: their processes, and whose turn it is."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import msgspec

from fedbo_paper.demo.demo import Demo
from fedbo_paper.demo.hub import Hub
from fedbo_paper.demo.processes import Process
from fedbo_paper.demo.site import Left, Report, Start, Turn

_TICK = 0.2  # seconds between looks at the hub


class Crew:
    """The sites as processes. Leaving the block ends them all.

    Args:
        demo: The settings.
        folder: Where the sites keep their state folders.
    """

    def __init__(self, demo: Demo, folder: Path) -> None:
        self.demo = demo
        self._reports: queue.SimpleQueue[tuple[int, Report | None]] = queue.SimpleQueue()
        self._processes: list[Process] = []
        for n, name in enumerate(demo.sites):
            start = msgspec.json.encode(Start(demo, n)).decode()
            module = "fedbo_paper.demo.site"
            self._processes.append(Process(name, module, start, folder=folder / name))
            threading.Thread(target=self._listen, args=(n,), daemon=True).start()

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.close()
        for process in self._processes:
            process.end()

    def play(self, hub: Hub) -> Iterator[tuple[int, Report]]:
        """Let the sites of each repeat arrive one after the other, and yield what they report.

        The repeats run side by side. A site that is needed in several takes one after the other,
        which changes no result: what it finds in a repeat depends on who was there before it.

        Args:
            hub: The hub.

        Yields:
            The number of a site, from 0, and its report.
        """
        turns = [Turn(repeat, hub.address, word) for repeat, word in enumerate(hub.invitations)]
        orders = [iter(self.demo.order(turn.repeat)) for turn in turns]
        for turn, order in zip(turns, orders, strict=True):
            self._send(next(order), turn)
        unfinished = len(turns)
        while unfinished:
            site, report = self._next(hub)
            yield site, report
            if isinstance(report, Left):
                following = next(orders[report.repeat], None)
                if following is None:
                    unfinished -= 1
                else:
                    self._send(following, turns[report.repeat])

    def _send(self, site: int, turn: Turn) -> None:
        self._processes[site].write(msgspec.json.encode(turn))

    def _next(self, hub: Hub) -> tuple[int, Report]:
        while True:
            with contextlib.suppress(queue.Empty):
                site, report = self._reports.get(timeout=_TICK)
                if report is not None:
                    return site, report
                failed = self._processes[site]
                raise hub.process.failure() if hub.process.has_ended else failed.failure()
            if hub.process.has_ended:
                raise hub.process.failure()

    def _listen(self, site: int) -> None:
        decoder = msgspec.json.Decoder(Report)
        for line in self._processes[site].lines():
            self._reports.put((site, decoder.decode(line)))
        self._reports.put((site, None))
