"""`fedbo join`, printed in a terminal: its progress, and the result."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from optuna.trial import TrialState
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedbo.cli import screen
from fedbo.exchange import Exchange, FolderExchange
from fedbo.optuna import record
from fedbo.optuna.join import FAILURES, Ending, Interrupt, Site, Step
from fedbo.policy import Origin

_SOURCES = {
    "initial": "an initial point",
    "own": "its own model",
    "pool": "the pool of peers",
    "peer": "one peer",
    "told": "outside the federation",
}
_PEERS = 3  # named for one query
_AGES = 24 * 3600.0  # seconds that the estimate of the remaining time looks back
_ONCE = "Ctrl-C: stopping after this trial; press it again to abandon the trial."


class JoinScreen:
    """Shows a site at work: a line for each trial, and a progress bar below in a terminal."""

    def __init__(self, console: Console, site: Site, trials: int) -> None:
        self._console, self._site, self._trials = console, site, trials
        self._interrupt = Interrupt(self._notice)
        self._running: int | None = None
        self._origin: Origin | None = None
        self._last_failure = ""
        self._bar = Progress(
            TextColumn("trials"),
            BarColumn(bar_width=36),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            speed_estimate_period=_AGES,
        )
        self._task = self._bar.add_task("", total=trials)
        self._look()

    def _look(self) -> None:
        """Update from the study; called once for each trial, because it reads the storage."""
        self._finished, self._best = self._site.finished, self._site.best
        self._bar.update(self._task, completed=min(self._finished, self._trials))

    # Called by the site

    def begun(self, number: int, origin: Origin | None) -> None:
        self._running = number
        self._origin = origin

    def ended(self, step: Step) -> None:
        self._running = None
        self._look()
        if step.why:
            self._last_failure = step.why
        line = _line(step)
        if not self._console.is_terminal:
            line.append(f"  ({self._finished} of {self._trials}; {self._traffic()})")
        self._console.print(line, soft_wrap=True)

    # Called by the command

    def run(self) -> Ending:
        """Run the site until it has its trials, and print what happens."""
        if self._finished < self._trials:
            with self._interrupt, self._live():
                ending = self._site.run(self._trials, self, self._interrupt)
        else:
            ending = "done"
        self._site.sampler.flush()
        self._look()
        self._end(ending)
        return ending

    def introduce(self, place: Exchange, storage: str) -> None:
        """Print what will run, and where everything is."""
        site = self._site
        begun = len(site.study.get_trials(deepcopy=False))
        state = f"{self._finished} of {self._trials} trials finished" if begun else "new"
        who = "a random name" if site.name is None else repr(site.name)
        made = ""
        if isinstance(place, FolderExchange) and not place.folder.exists():
            made = ", a folder that the first message creates"
        screen.say(
            self._console,
            f"Study {site.study.study_name!r} in {screen.printable(storage)} ({state}): "
            f"{site.study.direction.name.lower()} {site.objective.name}. Peers know it as {who}. "
            f"Messages go through {screen.printable(place.address)}{made}.\n",
        )

    @contextmanager
    def _live(self) -> Iterator[None]:
        """Show the bar and the state meanwhile, but only in a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with Live(
            get_renderable=self._picture,
            console=self._console,
            transient=True,
            refresh_per_second=4,
        ):
            yield

    def _picture(self) -> RenderableType:
        best = "none yet"
        if self._best is not None:
            best = f"{self._best.value:.6g} in trial {self._best.number}"
        running = "" if self._running is None else f"; trial {self._running} is running"
        if self._running is not None and self._origin is not None:
            running += f", from {_words(self._origin)}"
        lines = [Text(f"best {best}{running}"), Text(self._traffic(), style="dim")]
        if self._interrupt.asked:
            lines.append(Text(_ONCE, style="yellow"))
        return Group(self._bar, *lines)

    def _traffic(self) -> str:
        return f"messages: {_traffic(self._site)}"

    def _notice(self) -> None:
        if not self._console.is_terminal:  # a terminal shows it below the bar
            os.write(2, f"{_ONCE}\n".encode())  # safe in a signal handler

    def _end(self, ending: Ending) -> None:
        finished = f"{self._finished} of {self._trials} trials are finished"
        if ending == "stopped":
            abandoned = ""
            if self._running is not None:
                abandoned = f"Trial {self._running} was abandoned, and is marked as failed. "
            text = f"Stopped: {finished}. {abandoned}Run the same command again to resume."
            screen.say(self._console, text, "yellow")
        elif ending == "failing":
            screen.say(
                self._console,
                f"{FAILURES} trials in a row failed, the last with {self._last_failure}. {finished}"
                "; none of them is lost. Repair the objective, and run the same command again.",
                "red",
            )
        report(self._console, self._site)


def report(console: Console, site: Site) -> None:
    """Print the best trial, the sources of the queries, and how many messages there were."""
    best = site.best
    if best is None:
        pruned = len(site.trials(TrialState.PRUNED))
        why = f"all {pruned} finished trials were pruned" if pruned else "none is finished"
        screen.say(console, f"There is no best trial, because no trial has a score: {why}.")
        return
    console.print()
    params = ", ".join(f"{name} = {_short(value)}" for name, value in best.params.items())
    rows = {
        "best": f"{best.value:.6g} in trial {best.number}, from {_words(record.read_origin(best))}",
        "with": params,
        "trials": _counts(site),
        "messages": f"{_traffic(site)}, in this run",
    }
    screen.show(console, screen.pairs(rows), below=1)
    screen.show(console, _sources(site), below=1)
    name = screen.printable(shlex.quote(site.name or ""))
    screen.say(console, f"fedbo ledger --agent {name} lists every message that this site sent.")


def _traffic(site: Site) -> str:
    peers = screen.count(site.peers, "peer")
    return f"{site.ledger.sent} sent, {site.received} received from {peers}"


def _counts(site: Site) -> str:
    counts = [f"{len(site.trials(TrialState.COMPLETE))} complete"]
    for state, word in {TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}.items():
        n = len(site.trials(state))
        counts += [f"{n} {word}"] if n else []
    return ", ".join(counts)


def _sources(site: Site) -> Table:
    """Count the complete trials of each source, and show the best of them."""
    scores: dict[str, list[float]] = {}
    for trial in site.trials(TrialState.COMPLETE):
        origin = record.read_origin(trial)
        source: str = "told" if origin is None else origin.source
        assert trial.value is not None
        scores.setdefault(source, []).append(trial.value)
    best = min if site.study.direction.name == "MINIMIZE" else max
    grid = screen.grid("source of the query")
    for name in ("trials", "best score"):
        grid.add_column(name, justify="right")
    for source, words in _SOURCES.items():
        if source in scores:
            given = scores[source]
            grid.add_row(words, f"{len(given)}", f"{best(given):.6g}")
    return grid


def _line(step: Step) -> Text:
    """Say in one line how a trial ended."""
    line = Text(f"trial {step.number:>4}  ")
    if step.state == TrialState.FAIL:
        return line.append("failed", style="red").append(f"  {screen.printable(step.why)}")
    if step.state == TrialState.PRUNED:
        line.append("pruned", style="yellow")
    else:
        line.append(f"{step.score:<10.6g}", style="bold green" if step.best else "")
    return line.append(f"  {'best so far' if step.best else '':<11}  {_words(step.origin)}")


def _words(origin: Origin | None) -> str:
    """Say where a query came from."""
    if origin is None:
        return _SOURCES["told"]
    if origin.source == "peer" and origin.peer is not None:
        return f"peer {screen.printable(origin.peer)}"
    ranked = sorted(origin.credit.items(), key=lambda pair: -pair[1])[:_PEERS]
    if origin.source != "pool" or not ranked:
        return _SOURCES[origin.source]
    shares = ", ".join(f"{screen.printable(name)} {share:.0%}" for name, share in ranked)
    return f"{_SOURCES['pool']} ({shares})"


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)
