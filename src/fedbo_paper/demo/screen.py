"""What the demo prints: what it is about to do, and its results."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table

from fedbo.cli.screen import count, say, size
from fedbo_paper.demo.demo import MODES, Demo, Mode
from fedbo_paper.demo.outcome import Outcome
from fedbo_paper.harness import screen
from fedbo_paper.harness.intervals import Effect
from fedbo_paper.problems.digits import SPACE

_SHOWN = (1, 3, 5, 10, 20, 50, 100, 200, 500)  # trials in the final table
_STYLES: dict[Mode, str] = {"alone": "blue", "together": "dark_orange"}


def introduction(demo: Demo) -> str:
    """Describe the demo before it runs.

    >>> introduction(Demo(agents=3, repeats=1))[:42]
    '3 sites tune an SVM and how its images are'
    """
    return (
        f"{demo.agents} sites tune an SVM and how its images are prepared "
        f"({', '.join(SPACE.names)}), each on its own handwritten digits. They arrive at a hub on "
        "this machine one after the other. A site starts with the messages of those that came "
        "before it: its first trials are points that they recommend. When it is done, it leaves a "
        "message too. A message is a summary. It has no image and no score, and of all trials it "
        "names one point only, rounded. To compare, each site also tunes alone, from its own "
        "initial points: with the same policy, which without peers is expected improvement (EI). "
        f"This takes {count(demo.trials, 'trial')} each, and is repeated: "
        f"{count(demo.repeats, 'time')}, in different orders of arrival."
    )


def summary(outcome: Outcome) -> str:
    """Summarise what collaborating was worth in a few sentences."""
    T, early = outcome.demo.trials, outcome.early
    sentences = [f"After {early} trials, together is {_compared(outcome.lead(early))}."]
    if outcome.lead(early).value > 0:
        needed = outcome.catches_up(early) or f"more than {T}"
        sentences.append(f"To get as far, alone needed {needed} trials.")
    if early < T:
        sentences.append(f"After {T} trials, together is {_compared(outcome.lead(T))}.")
    if outcome.repeats == 1:
        sentences.append("One repeat gives no interval: use --repeats for more.")
    else:
        repeats = f"{outcome.repeats} repeats with the same images"
        sentences.append(f"± gives the 95 % interval of a paired difference over {repeats}.")
    return " ".join(sentences)


def trials_table(outcome: Outcome) -> Table:
    """Create a table of mean best scores and paired differences after some numbers of trials."""
    T = outcome.demo.trials
    table = screen.table("\ntrials")
    for mode in MODES:
        table.add_column(f"\n{mode}", justify="right", style=_STYLES[mode], no_wrap=True)
    table.add_column("together −\nalone", justify="right", no_wrap=True, min_width=15)
    for trial in [*(t for t in _SHOWN if t < T), T]:
        means = outcome.curves[:, :, trial - 1].mean(axis=0)
        lead = _difference(outcome.lead(trial))
        table.add_row(str(trial), *(f"{mean:.3f}" for mean in means), lead)
    return table


def report(console: Console, outcome: Outcome) -> None:
    """Print what was sent, the table and the summary."""
    sent = outcome.repeats * outcome.demo.agents
    largest = max(repeat.nbytes for repeat in outcome.finished)
    received = sum(repeat.received for repeat in outcome.finished)
    say(
        f"{count(sent, 'message')} went to the hub, at most {size(largest)} each; "
        f"{count(received, 'message')} came from it."
    )
    say("\nMean best validation accuracy of all sites:\n")
    console.print(trials_table(outcome))
    console.print()
    say(summary(outcome))


def _difference(effect: Effect) -> str:
    """Format a difference and its interval.

    >>> _difference(Effect(-0.05, -0.07, -0.03, 10)), _difference(Effect(-1e-4, -np.inf, np.inf, 1))
    ('−0.050 ± 0.020', '+0.000')
    """
    value = round(effect.value, 3) + 0.0  # -0.0 becomes 0.0
    return f"{value:+.3f}{_error(effect)}".replace("-", "−")


def _error(effect: Effect) -> str:
    return f" ± {effect.high - effect.value:.3f}" if np.isfinite(effect.high) else ""


def _compared(lead: Effect) -> str:
    """Format the lead of together in words.

    >>> _compared(Effect(0.05, 0.02, 0.08, 10))
    'ahead of alone by 0.050 ± 0.030'
    >>> _compared(Effect(-0.05, -0.11, 0.01, 10))
    'behind alone by 0.050 ± 0.060 (no clear difference)'
    """
    error = _error(lead)
    unclear = " (no clear difference)" if error and lead.low <= 0 <= lead.high else ""
    side = "ahead of" if lead.value > 0 else "behind"
    return f"{side} alone by {abs(lead.value):.3f}{error}{unclear}"
