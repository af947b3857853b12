"""What the demo prints: what it is about to do, and its results."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from fedbo.cli.screen import count, say, size
from fedbo_paper.demo.demo import Demo
from fedbo_paper.demo.outcome import ALONE, TOGETHER, Outcome
from fedbo_paper.harness import screen
from fedbo_paper.problems.digits import SPACE

_SHOWN = (1, 3, 5, 10, 20, 50, 100, 200, 500)  # trials in the final table


def introduction(demo: Demo) -> str:
    """Describe the demo before it runs.

    >>> introduction(Demo(agents=3, repeats=1))[:34]
    '3 sites each tune a classifier of '
    """
    return (
        f"{demo.agents} sites each tune a classifier of handwritten digits on images of their "
        f"own. It has {len(SPACE.names)} parameters: {', '.join(SPACE.names)}. The sites arrive at "
        "a hub one after the other, and first try what those before them recommend. When a site is "
        "done, it leaves a message: no image, no score, and of all trials only one point, "
        "rounded. To compare, each site also tunes alone. Each has "
        f"{count(demo.trials, 'trial')}, and all is repeated {count(demo.repeats, 'time')}."
    )


def trials_table(outcome: Outcome) -> Table:
    """Create a table of accuracies, and of who is ahead, after some numbers of trials."""
    T, means = outcome.demo.trials, outcome.curves.mean(axis=0)
    table = screen.table("trials")
    table.add_column("alone", justify="right")
    table.add_column("together", justify="right", style="blue")
    table.add_column("better", justify="right")
    table.add_column("worse", justify="right")
    for trial in [*(t for t in _SHOWN if t < T), T]:
        accuracies = (f"{100 * means[mode, trial - 1]:.1f} %" for mode in (ALONE, TOGETHER))
        shares = (f"{100 * share:.0f} %" for share in outcome.shares(trial))
        table.add_row(str(trial), *accuracies, *shares)
    return table


def report(console: Console, outcome: Outcome) -> None:
    """Print what was sent, the table, and what it comes to."""
    sent = outcome.repeats * outcome.demo.agents
    largest = max(repeat.nbytes for repeat in outcome.finished)
    received = sum(repeat.received for repeat in outcome.finished)
    say(
        f"{count(sent, 'message')} went to the hub, at most {size(largest)} each; "
        f"{count(received, 'message')} came from it."
    )
    say(
        "\nMean accuracy of the best trial so far, and the share of sites for which it is better "
        "or worse together than alone:\n"
    )
    console.print(trials_table(outcome))
    console.print()
    say(outcome.headline(), style="bold")
    say(outcome.doubt())
