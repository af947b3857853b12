"""A federation in a terminal: what its agents agree on, and what leaves a site that joins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedbo.cli import screen
from fedbo.federation import Federation
from fedbo.space import Categorical, Float, Int, Parameter

_HEADER = 50  # bytes of a message beside its numbers, if its sender has a name of usual length
_KINDS = {
    "weights": "one random draw of what the site believes",
    "belief": "what the site believes, and how surely",
    "belief+incumbent": "what the site believes, how surely, and its best standardised score",
}
_SHOWN = 6  # choices of a categorical parameter


def report(console: Console, federation: Federation, path: Path) -> None:
    """Print what the file agrees on."""
    space = federation.space
    minimised = space.direction == "minimize"
    count = screen.count(len(space.names), "parameter")
    screen.title(console, f"Federation {path}")
    screen.say(
        console,
        f"Scores are {'minimised' if minimised else 'maximised'} ({space.direction}) over {count}, "
        f"{screen.count(space.dimensions, 'dimension')} of the cube on which models live.",
    )
    console.print(Padding(_parameters(federation), (1, 0, 1, 2)))
    if space.listed is not None:
        points = screen.count(len(space.listed), "point")
        screen.say(console, f"Of these, only {points} listed in the file may be tried.\n")
    console.print(Padding(_agreed(federation), (0, 0, 1, 2)))
    for sentence in _shared(federation):
        screen.say(console, sentence)


def next_steps(console: Console, path: Path, remarks: Sequence[str]) -> None:
    """Print what the space lacks of the study's, and what to do with the file."""
    if remarks:
        screen.say(console, "\nLeft out; each site samples these by itself:", "yellow")
        for remark in remarks:
            console.print(
                Padding(Text(f"• {screen.printable(remark)}"), (0, 0, 0, 2)),
                width=screen.width(console),
            )
        screen.say(
            console,
            "To share one of them, suggest it in every trial, with one range, or with one list of "
            "choices that are strings, numbers or bools.",
        )
    screen.say(
        console,
        f"\nWritten to {path}. Give every site this very file: messages of one that has other "
        "values are refused. Each then runs fedbo join EXCHANGE --federation "
        f"{path} --objective module:function, or has FederatedSampler({str(path)!r}, EXCHANGE) as "
        "its study's sampler; EXCHANGE is a folder that all of them reach.",
    )


def _parameters(federation: Federation) -> Table:
    grid = screen.grid("parameter", "kind", "range", "scale")
    grid.columns[1].no_wrap = True
    grid.add_column("dimensions", justify="right", no_wrap=True)
    for name, parameter in federation.space.parameters.items():
        cells = (name, *_described(parameter), str(parameter.axis().size))
        grid.add_row(*(Text(screen.printable(cell)) for cell in cells))
    return grid


def _described(parameter: Parameter) -> tuple[str, str, str]:
    """Its kind, its range and its scale."""
    if isinstance(parameter, Categorical):
        shown = ", ".join(map(repr, parameter.choices[:_SHOWN]))
        more = len(parameter.choices) - _SHOWN
        return "categorical", shown + (f", … {more} more" if more > 0 else ""), "one or the other"
    span = f"{parameter.low:.6g} to {parameter.high:.6g}"
    if isinstance(parameter, Int):
        span = f"{parameter.low} to {parameter.high}"
    step = parameter.step is not None and not (isinstance(parameter, Int) and parameter.log)
    scale = "log" if parameter.log else "linear"
    kind = "float" if isinstance(parameter, Float) else "int"
    return kind, span, f"{scale}, steps of {parameter.step:.6g}" if step else scale


def _agreed(federation: Federation) -> Table:
    scales = federation.length_scale
    told = f"{scales:.6g}" if isinstance(scales, float) else ", ".join(f"{s:.6g}" for s in scales)
    rows = {
        "features": f"{federation.features}, kernel {federation.kernel}, seed {federation.seed}",
        "length scale": f"{told} on the cube, of the shared features",
        "noise": f"{federation.noise_variance:.6g}, variance in standardised scores, of messages",
        "message": f"{federation.kind}: {_size(federation)}, each time",
        "epoch": f"{federation.epoch}",
        "fingerprint": f"{federation.fingerprint}",
        "": "sites that read out the same fingerprint and epoch agree on everything",
    }
    return screen.pairs(rows)


def _numbers(federation: Federation) -> int:
    M = federation.features
    if federation.kind == "weights":
        return M
    return M + M * (M + 1) // 2 + (federation.kind == "belief+incumbent")


def _size(federation: Federation) -> str:
    numbers = _numbers(federation)
    return f"{screen.count(numbers, 'number')}, about {screen.size(_HEADER + 4 * numbers)}"


def _shared(federation: Federation) -> list[str]:
    count = screen.count(_numbers(federation), "number")
    return [
        f"A site that joins hands out {count}: {_KINDS[federation.kind]}. With them go the name "
        "that it chose, how many trials are behind them, a counter, and the fingerprint. It hands "
        "out no trial: neither the parameters it tried nor their scores, and neither data nor "
        "code. Peers do learn roughly where scores are good for this site: that is what helps.",
        "What is searched beyond these parameters, and what scores mean, is each site's own.",
    ]
