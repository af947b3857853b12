"""Run the demo: start the hub and the sites, watch them, and end them all."""

from __future__ import annotations

import contextlib
import queue
import signal
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from fedbo.cli.screen import say
from fedbo_paper.demo import screen
from fedbo_paper.demo.demo import Demo
from fedbo_paper.demo.hub import Hub
from fedbo_paper.demo.outcome import Outcome
from fedbo_paper.demo.processes import Process
from fedbo_paper.demo.site import Left, Report, Start, Turn

_TICK = 0.2  # seconds between looks at the hub


class Show:
    """A demo in a terminal, with its hub and its sites.

    Args:
        console: The terminal.
        demo: The settings.
        folder: Where the processes keep their files.
    """

    def __init__(self, console: Console, demo: Demo, folder: Path) -> None:
        self.console, self.demo = console, demo
        self._hub = Hub(demo, folder / "hub")
        self._sites: list[Process] = []
        self._reports: queue.SimpleQueue[tuple[int, Report | None]] = queue.SimpleQueue()
        for n, name in enumerate(demo.sites):
            start = msgspec.json.encode(Start(demo, n)).decode()
            module = "fedbo_paper.demo.site"
            self._sites.append(Process(name, module, start, folder=folder / name))
            threading.Thread(target=self._listen, args=(n,), daemon=True).start()

    def end(self) -> None:
        """End all processes."""
        for process in self._sites:
            process.close()
        for process in (*self._sites, self._hub.process):
            process.end()

    def play(self, *, browser: bool = False) -> Outcome:
        """Play all repeats and show their progress. After Ctrl-C, the finished ones count."""
        say(self.console, screen.introduction(self.demo))
        watch = screen.Watch(self.demo, self.console)
        try:
            self.console.print(self._where())
            if browser:
                webbrowser.open(self._hub.address)
            with Live(watch, console=self.console, transient=True, refresh_per_second=4):
                for site, report in self._play():
                    watch.note(site, report)
        except KeyboardInterrupt:
            outcome = Outcome(self.demo, watch.tried)
            say(self.console, screen.stopped(outcome, len(watch.tried)))
            return outcome
        say(self.console, watch.traffic)
        return Outcome(self.demo, watch.tried)

    def stay(self) -> None:
        """Keep the hub running until Ctrl-C."""
        self.console.print(self._where(), Text("Ctrl-C ends it."))
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()

    def _play(self) -> Iterator[tuple[int, Report]]:
        """Let the sites of each repeat arrive one after the other, and yield what they report.

        The repeats run side by side. A site that is needed in several takes one after the other,
        which changes no result: what it finds in a repeat depends on who was there before it.
        """
        invited = enumerate(self._hub.invitations)
        turns = [Turn(repeat, self._hub.address, invitation) for repeat, invitation in invited]
        orders = [iter(self.demo.order(turn.repeat)) for turn in turns]
        for turn, order in zip(turns, orders, strict=True):
            self._send(next(order), turn)
        unfinished = len(turns)
        while unfinished:
            site, report = self._next()
            yield site, report
            if isinstance(report, Left):
                following = next(orders[report.repeat], None)
                if following is None:
                    unfinished -= 1
                else:
                    self._send(following, turns[report.repeat])

    def _send(self, site: int, turn: Turn) -> None:
        self._sites[site].write(msgspec.json.encode(turn))

    def _next(self) -> tuple[int, Report]:
        while True:
            with contextlib.suppress(queue.Empty):
                site, report = self._reports.get(timeout=_TICK)
                if report is not None:
                    return site, report
                failed = self._hub.process if self._hub.process.has_ended else self._sites[site]
                raise failed.failure()
            if self._hub.process.has_ended:
                raise self._hub.process.failure()

    def _listen(self, site: int) -> None:
        decoder = msgspec.json.Decoder(Report)
        for line in self._sites[site].lines():
            self._reports.put((site, decoder.decode(line)))
        self._reports.put((site, None))

    def _where(self) -> Text:
        return Text.assemble(
            "\nThe hub's page: ",
            (self._hub.address, "bold"),
            "\nLog in with:    ",
            (self._hub.token, "bold"),
        )


@contextlib.contextmanager
def on_stage(console: Console, demo: Demo) -> Iterator[Show]:
    """Start the processes of a demo; at the end they are ended, and their folder is deleted."""
    with (
        _terminated_like_interrupted(),
        tempfile.TemporaryDirectory(prefix="fedbo-", ignore_cleanup_errors=True) as folder,
    ):
        show = Show(console, demo, Path(folder))
        try:
            yield show
        finally:
            show.end()


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Let a polite request to end (SIGTERM) do what Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
