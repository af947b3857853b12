"""All sites of a demo: their processes, and whose turn it is."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from fedbo_paper.demo.demo import Demo
from fedbo_paper.demo.processes import Process
from fedbo_paper.demo.site import Left, Report, Start, Turn

_TICK = 0.2  # seconds between looks at the hub


class Crew:
    """The sites as processes. Leaving the block ends them all.

    Args:
        demo: The settings.
        hub: The address of the hub.
        folder: Where the sites keep their state folders.
    """

    def __init__(self, demo: Demo, hub: str, folder: Path) -> None:
        self.demo = demo
        self._reports: queue.SimpleQueue[tuple[int, Report | None]] = queue.SimpleQueue()
        self._processes: list[Process] = []
        for n, name in enumerate(demo.sites):
            start = msgspec.json.encode(Start(demo=demo, site=n, hub=hub)).decode()
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

    def play(self, invitations: Sequence[str], hub: Process) -> Iterator[tuple[int, Report]]:
        """Let the sites of each repeat arrive one after the other, and yield what they report.

        The repeats run side by side. A site that is needed in several takes one after the other,
        which changes no result: what it finds in a repeat depends on who was there before it.

        Args:
            invitations: The invitation to the federation of each repeat.
            hub: The process of the hub.

        Yields:
            The number of a site, from 0, and its report.
        """
        orders = [iter(self.demo.order(repeat)) for repeat in range(self.demo.repeats)]
        waiting = self.demo.repeats
        for repeat in range(self.demo.repeats):
            self._send(next(orders[repeat]), Turn(repeat, invitations[repeat]))
        while waiting:
            site, report = self._next(hub)
            yield site, report
            if isinstance(report, Left):
                following = next(orders[report.repeat], None)
                if following is None:
                    waiting -= 1
                else:
                    self._send(following, Turn(report.repeat, invitations[report.repeat]))

    def _send(self, site: int, turn: Turn) -> None:
        self._processes[site].write(msgspec.json.encode(turn))

    def _next(self, hub: Process) -> tuple[int, Report]:
        while True:
            try:
                site, report = self._reports.get(timeout=_TICK)
            except queue.Empty:
                if hub.has_ended:
                    raise hub.failure() from None
                continue
            if report is None:
                raise self._processes[site].failure()
            return site, report

    def _listen(self, site: int) -> None:
        decoder = msgspec.json.Decoder(Report)
        for line in self._processes[site].lines():
            self._reports.put((site, decoder.decode(line)))
        self._reports.put((site, None))
