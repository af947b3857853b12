"""An explanation, printed in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from fedbo.cli import screen
from fedbo.insight.explain import Explanation, texts
from fedbo.table import Table

_ROWS = 12  # shown of a long table


def report(console: Console, explanation: Explanation) -> None:
    """Print what is known about the queries and the peers, and what is estimated."""
    decimals = explanation.decimals
    screen.say(console, explanation.heading(), indent=2)
    _show(console, "Where the queries came from", explanation.sources, decimals)
    if explanation.peers.height:
        _show(console, "What each peer contributed", explanation.peers, decimals)
    improving = _improving(explanation.queries, decimals)
    if improving.height:
        _show(console, "Queries that improved on the best", improving, decimals)
    saved, sentences = explanation.saved, explanation.sentences()
    screen.say(console, "\nWhat collaborating saved", "bold")
    style = "green" if saved is not None and saved.low > 0 else ""
    screen.say(console, sentences[0], style, indent=2)
    for sentence in sentences[1:-1]:
        screen.say(console, sentence, indent=2)
    if saved is not None:
        _show(console, "Best scores so far", saved.gains, decimals)
        console.print()
        screen.say(console, sentences[-1], "dim", indent=2)


def _improving(queries: Table, decimals: int) -> Table:
    """Select the queries with a gain that is visible after rounding."""
    keep = queries["gained"].round(decimals) > 0
    return Table(
        {name: queries[name][keep] for name in ("trial", "source", "peers", "score", "gained")}
    )


def _show(console: Console, title: str, table: Table, decimals: int) -> None:
    screen.say(console, f"\n{title}", "bold")
    grid = screen.grid(*table)
    for column, values in zip(grid.columns, table.values(), strict=True):
        column.justify = "right" if values.dtype.kind in "if" else "left"
    for row in list(zip(*texts(table, decimals), strict=True))[:_ROWS]:
        grid.add_row(*map(Text, row))
    screen.show(console, grid)
    if table.height > _ROWS:
        more = table.height - _ROWS
        screen.say(console, f"… and {more} more: --csv writes all of them", indent=2)
