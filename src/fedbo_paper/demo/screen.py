"""The demo in a terminal: how far it is while it runs, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedbo_paper.demo.demo import MODES, N_INITIAL, Board, Demo, Floats, Outcome, Run, play_all
from fedbo_paper.harness import workers
from fedbo_paper.harness.averages import mean_and_error
from fedbo_paper.problems import digits

_COLUMNS = 6  # of the live table
_WIDTH = 80  # of everything, or the terminal's where that is narrower
_STYLES = ("blue", "dark_orange")
_CAPTION = (
    'Means over repeats. "as good by": the trial, in the median repeat, by which '
    "the agent had together the best accuracy that it ended with alone."
)


def introduction(demo: Demo) -> str:
    """What is about to run.

    >>> introduction(Demo(agents=3, repeats=1))[:46]
    '3 agents tune an SVM (C and gamma), each to ha'
    """
    return (
        f"{demo.agents} agents tune an SVM (C and gamma), each to handwritten digits of its own: "
        "alone (Thompson sampling), and together (federated Thompson sampling, with a message from "
        f"each to all others before every query). {demo.trials} trials for each agent, the first "
        f"{N_INITIAL} the same alone and together; {_repeats(demo.repeats)}."
    )


def summary(outcome: Outcome) -> str:
    """What the repeats say, whichever way it went."""
    T, lead = outcome.demo.trials, outcome.lead
    final, overall = lead[:, -1], lead[:, N_INITIAL:].mean(axis=1)
    return (
        f"On average over trials {N_INITIAL + 1} to {T}, the mean best accuracy together is "
        f"{_lead(overall)}. After {T} trials it is {outcome.curves[:, 1, -1].mean():.4f} "
        f"together and {outcome.curves[:, 0, -1].mean():.4f} alone: together is {_lead(final)}. "
        f"{_sooner(outcome.curves.mean(axis=0))} {_basis(outcome.repeats)}"
    )


def agents_table(outcome: Outcome) -> Table:
    """One row for each agent, and their mean."""
    table = _table(show_footer=True, caption=_CAPTION, caption_justify="left")
    T, best = outcome.demo.trials, outcome.best[..., -1].mean(axis=0)
    peers = outcome.from_peers.sum(axis=-1).mean(axis=0)
    table.add_column("agent", "mean")
    table.add_column("images", justify="right")
    table.add_column("mostly")
    for mode, style, mean in zip(MODES, _STYLES, best.mean(axis=1), strict=True):
        table.add_column(f"best\n{mode}", f"{mean:.4f}", justify="right", style=style)
    table.add_column("\ndifference", _signed(best[1].mean() - best[0].mean()), justify="right")
    table.add_column("as good\nby", justify="right")
    table.add_column("queries\nby peers", f"{peers.mean():.1f}", justify="right")
    hands = digits.deal(outcome.demo.agents, outcome.demo.seed)
    after = np.median(outcome.catching_up, axis=0)
    for n, (name, images) in enumerate(zip(outcome.demo.names, hands, strict=True)):
        table.add_row(
            name,
            str(len(images)),
            " ".join(map(str, np.argsort(-images.counts, kind="stable")[:3])),
            f"{best[0, n]:.4f}",
            f"{best[1, n]:.4f}",
            _coloured(best[1, n] - best[0, n]),
            f"{after[n]:.0f}" if np.isfinite(after[n]) else f"> {T}",
            f"{peers[n]:.1f}",
        )
    return table


def report(console: Console, outcome: Outcome) -> None:
    """The table of agents, and the summary."""
    console.print(agents_table(outcome))
    _say(console, summary(outcome))


def run(console: Console, demo: Demo, jobs: int) -> Outcome:
    """Run the demo and show how far it is; Ctrl-C ends it, and what is finished counts."""
    _say(console, introduction(demo))
    runs: list[Run] = []
    with Board.open(demo) as board:
        try:
            with _watching(console, demo, board):
                for finished in play_all(demo, board, jobs):
                    runs.append(finished)
        except KeyboardInterrupt:
            workers.stop()
            outcome = Outcome(demo, runs)
            _say(console, _stopped(outcome, board))
            return outcome
    return Outcome(demo, runs)


@contextmanager
def _watching(console: Console, demo: Demo, board: Board) -> Iterator[None]:
    """Show progress and scores while the body runs; nothing of it stays on the screen."""
    progress = Progress(
        TextColumn("trials"),
        BarColumn(bar_width=36),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
    )
    task = progress.add_task("", total=int(np.prod(demo.shape)))

    def picture() -> RenderableType:
        progress.update(task, completed=board.done)
        return Group(Text(), progress, _scores_table(demo, board))

    with Live(get_renderable=picture, console=console, transient=True, refresh_per_second=5):
        yield


def _scores_table(demo: Demo, board: Board) -> Table:
    """Mean best scores so far after some numbers of trials, over repeats that are that far."""
    table = _table()
    trials = np.unique(np.linspace(N_INITIAL, demo.trials, _COLUMNS).astype(int)).tolist()
    columns = [board.paired_best(trial) for trial in trials]
    table.add_column("mean best accuracy\nafter trial", min_width=18)
    for trial in trials:
        table.add_column(f"\n{trial}", justify="right", min_width=7)
    for m, (mode, style) in enumerate(zip(MODES, _STYLES, strict=True)):
        table.add_row(mode, *(_or_dots(f"{best[m]:.4f}", n) for best, n in columns), style=style)
    table.add_row("difference", *(_or_dots(_signed(b[1] - b[0]), n) for b, n in columns))
    table.add_row("repeats so far", *(str(n) for _, n in columns), style="dim")
    return table


def _say(console: Console, text: str) -> None:
    console.print(Text(text), width=min(_WIDTH, console.width))


def _stopped(outcome: Outcome, board: Board) -> str:
    """What was done before Ctrl-C."""
    demo = outcome.demo
    done = f"Stopped after {board.done} of {np.prod(demo.shape)} trials"
    if not outcome.repeats:
        return f"{done}: no repeat is finished, so there is nothing to compare."
    return f"{done}. {outcome.repeats} of {_repeats(demo.repeats)} are finished; this is of those:"


def _table(**options: Any) -> Table:
    return Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), **options)


def _or_dots(text: str, repeats: int) -> str:
    return text if repeats else "…"


def _signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")


def _coloured(value: float) -> Text:
    return Text(_signed(value), style="green" if value > 0 else "red" if value < 0 else "dim")


def _lead(leads: Floats) -> str:
    """The mean difference and its standard error, in words that give the sign its meaning."""
    mean, error = mean_and_error(leads)
    text = f"{'ahead' if mean >= 0 else 'behind'} by {abs(mean):.4f}"
    if np.isnan(error):
        return text
    return f"{text} ± {error:.4f}" + (", no clear difference" if abs(mean) < 2 * error else "")


def _sooner(curves: Floats) -> str:
    """When the mean curve together, of (2, T), reached what alone came to in the end."""
    reached = np.flatnonzero(curves[1] >= curves[0, -1])
    if not len(reached):
        return f"Together did not reach the final mean of alone in {curves.shape[1]} trials."
    return f"Together reached the final mean of alone after {1 + reached[0]} trials."


def _basis(repeats: int) -> str:
    if repeats == 1:
        return "One repeat has no standard error: take more with --repeats."
    return f"(± is one standard error over {repeats} repeats with the same images.)"


def _repeats(n: int) -> str:
    return "1 repeat" if n == 1 else f"{n} repeats"
