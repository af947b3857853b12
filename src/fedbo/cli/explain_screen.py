"""An explanation in a terminal; it needs rich, and none of the extras."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from fedbo.insight.explain import Explanation, texts
from fedbo.table import Table

_WIDTH = 88
_ROWS = 12  # shown of a long table


def report(console: Console, explanation: Explanation) -> None:
    """Print what is known of the queries and the peers, and what is estimated."""
    decimals = explanation.decimals
    _say(console, explanation.heading())
    _show(console, "Where the queries came from", explanation.sources, decimals)
    if explanation.peers.height:
        _show(console, "What each peer contributed", explanation.peers, decimals)
    improving = _improving(explanation.queries, decimals)
    if improving.height:
        _show(console, "Queries that improved on the best", improving, decimals)
    saved, sentences = explanation.saved, explanation.sentences()
    console.print(Text("\nWhat collaborating saved", style="bold"))
    _say(console, sentences[0], "green" if saved is not None and saved.low > 0 else "")
    for sentence in sentences[1:-1]:
        _say(console, sentence)
    if saved is not None:
        _show(console, "Best scores so far", saved.gains, decimals)
        console.print()
        _say(console, sentences[-1], "dim")


def _improving(queries: Table, decimals: int) -> Table:
    """The rows with a gain that shows."""
    keep, shown = queries["gained"].round(decimals) > 0, ("trial", "source", "peers", "score")
    return Table({name: queries[name][keep] for name in (*shown, "gained")})


def _show(console: Console, title: str, table: Table, decimals: int) -> None:
    console.print(Text(f"\n{title}", style="bold"))
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 2, 0, 0))
    columns = texts(table, decimals)
    for name in table.columns:
        number = table[name].dtype.kind in "if"
        grid.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in list(zip(*columns, strict=True))[:_ROWS]:
        grid.add_row(*map(Text, row))
    console.print(Padding(grid, (0, 0, 0, 2)))
    if table.height > _ROWS:
        _say(console, f"… and {table.height - _ROWS} more: --csv writes all")


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Padding(Text(text, style=style), (0, 0, 0, 2)), width=min(_WIDTH, console.width))
