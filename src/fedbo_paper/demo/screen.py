"""Show the demo in a terminal: its progress and its results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedbo.cli.screen import count, say
from fedbo_paper.demo.demo import MODES, N_INITIAL, Board, Demo, Floats, Outcome, Run, play_all
from fedbo_paper.harness import screen, workers
from fedbo_paper.harness.averages import mean_and_error
from fedbo_paper.problems import digits

_COLUMNS = 6  # of the live table
_STYLES = ("blue", "dark_orange")
_CAPTION = (
    'Means over repeats. "as good by" is the trial, in the median repeat, at which the agent '
    "reached together the best accuracy that it had at the end alone."
)


def introduction(demo: Demo) -> str:
    """Describe the demo before it runs.

    >>> introduction(Demo(agents=3, repeats=1))[:46]
    '3 agents tune an SVM (C and gamma), each on it'
    """
    return (
        f"{demo.agents} agents tune an SVM (C and gamma), each on its own handwritten digits. They "
        "do it alone (Thompson sampling) and together (federated Thompson sampling: before every "
        "query, each agent sends a message to all others). Each agent runs "
        f"{demo.trials} trials; the first {N_INITIAL} are the same in both modes. "
        f"The demo runs {count(demo.repeats, 'repeat')}."
    )


def summary(outcome: Outcome) -> str:
    """Summarise the lead of together over alone in a few sentences."""
    T, lead = outcome.demo.trials, outcome.lead
    final, overall = lead[:, -1], lead[:, N_INITIAL:].mean(axis=1)
    return (
        f"After {T} trials, the mean best accuracy is {outcome.curves[:, 1, -1].mean():.4f} "
        f"together and {outcome.curves[:, 0, -1].mean():.4f} alone: together is {_lead(final)}. "
        f"Averaged over trials {N_INITIAL + 1} to {T}, together is {_lead(overall)}. "
        f"{_sooner(outcome.curves.mean(axis=0))} {_basis(outcome.repeats)}"
    )


def agents_table(outcome: Outcome) -> Table:
    """Create a table with one row for each agent, and their mean."""
    table = screen.table(show_footer=True, caption=_CAPTION, caption_justify="left")
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
    """Print the table of agents and the summary."""
    console.print(agents_table(outcome))
    say(console, summary(outcome))


def run(console: Console, demo: Demo, jobs: int) -> Outcome:
    """Run the demo and show its progress. After Ctrl-C, the finished repeats count."""
    say(console, introduction(demo))
    runs: list[Run] = []
    with Board.create(demo) as board:
        try:
            with _watching(console, demo, board):
                for finished in play_all(demo, board, jobs):
                    runs.append(finished)
        except KeyboardInterrupt:
            workers.stop()
            outcome = Outcome(demo, runs)
            say(console, _stopped(outcome, board))
            return outcome
    return Outcome(demo, runs)


@contextmanager
def _watching(console: Console, demo: Demo, board: Board) -> Iterator[None]:
    """Show progress and scores while the body runs, and remove them afterwards."""
    progress = screen.bars(console)
    task = progress.add_task("trials", total=int(np.prod(demo.shape)))

    def picture() -> RenderableType:
        progress.update(task, completed=board.done)
        return Group(Text(), progress, _scores_table(demo, board))

    with Live(get_renderable=picture, console=console, transient=True, refresh_per_second=5):
        yield


def _scores_table(demo: Demo, board: Board) -> Table:
    """Create a table of mean best scores after some numbers of trials, over repeats so far."""
    table = screen.table()
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


def _stopped(outcome: Outcome, board: Board) -> str:
    """Say how much was finished before Ctrl-C."""
    demo = outcome.demo
    done = f"Stopped after {board.done} of {np.prod(demo.shape)} trials"
    if not outcome.repeats:
        return f"{done}. No repeat is finished, so there is nothing to compare."
    repeats = f"{outcome.repeats} of {count(demo.repeats, 'repeat')}"
    return f"{done}. The results below are of the {repeats} that finished."


def _or_dots(text: str, repeats: int) -> str:
    return text if repeats else "…"


def _signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")


def _coloured(value: float) -> Text:
    return Text(_signed(value), style="green" if value > 0 else "red" if value < 0 else "dim")


def _lead(leads: Floats) -> str:
    """Format a mean lead and its standard error in words."""
    mean, error = mean_and_error(leads)
    text = f"{'ahead' if mean >= 0 else 'behind'} by {abs(mean):.4f}"
    if np.isnan(error):
        return text
    return f"{text} ± {error:.4f}" + (" (no clear difference)" if abs(mean) < 2 * error else "")


def _sooner(curves: Floats) -> str:
    """Say when the mean curve together, of (2, T), reached the final value of alone."""
    reached = np.flatnonzero(curves[1] >= curves[0, -1])
    if not len(reached):
        return f"Together did not reach the final mean of alone in {curves.shape[1]} trials."
    return f"Together reached the final mean of alone after {1 + reached[0]} trials."


def _basis(repeats: int) -> str:
    if repeats == 1:
        return "One repeat gives no standard error: use --repeats for more."
    return f"(± is one standard error over {repeats} repeats with the same images.)"
