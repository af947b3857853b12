"""Run the demo: start the hub and the sites, watch them, and end them all."""

from __future__ import annotations

import signal
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType, TracebackType

from rich.console import Console
from rich.text import Text

from fedbo.cli.screen import say
from fedbo_paper.demo import screen
from fedbo_paper.demo.crew import Crew
from fedbo_paper.demo.demo import Demo
from fedbo_paper.demo.hub import Hub
from fedbo_paper.demo.outcome import Outcome


class Show:
    """A demo in a terminal. Leaving the block ends its processes and deletes their folder.

    Args:
        console: The terminal.
        demo: The settings.
        browser: Whether to open the hub's page.
    """

    def __init__(self, console: Console, demo: Demo, *, browser: bool = False) -> None:
        self.console, self.demo, self.browser = console, demo, browser

    def __enter__(self) -> Show:
        with ExitStack() as stack:
            stack.enter_context(_terminated_like_interrupted())
            temporary = tempfile.TemporaryDirectory(prefix="fedbo-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(temporary))
            self._hub = Hub(self.demo, folder / "hub")
            stack.callback(self._hub.process.end)
            self._crew = stack.enter_context(Crew(self.demo, folder))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def play(self) -> Outcome:
        """Play all repeats and show their progress. After Ctrl-C, the finished ones count."""
        say(self.console, screen.introduction(self.demo))
        watch = screen.Watch(self.demo, self.console)
        try:
            self.console.print(self._where())
            if self.browser:
                webbrowser.open(self._hub.address)
            with screen.watching(self.console, watch):
                for site, report in self._crew.play(self._hub):
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
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return

    def _where(self) -> Text:
        return Text.assemble(
            "\nThe hub's page: ",
            (self._hub.address, "bold"),
            "\nLog in with:    ",
            (self._hub.token, "bold"),
        )


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Let a polite request to end (SIGTERM) do what Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
