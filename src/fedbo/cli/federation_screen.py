"""A federation, printed in a terminal: what its sites agree on, and what each of them sends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedbo.cli import screen
from fedbo.federation import Federation
from fedbo.space import Categorical, Float, Int, Parameter

_HEADER = 50  # bytes of a message besides its numbers, if its sender has a name of usual length
_KINDS = {
    "weights": "one random draw from its model",
    "belief": "the mean and covariance of its model",
    "belief+incumbent": "the mean and covariance of its model, and its best standardised score",
}
_SHOWN = 6  # choices of a categorical parameter


def report(console: Console, federation: Federation, path: Path) -> None:
    """Print what the file says."""
    space = federation.space
    screen.say(console, f"Federation {path}", "bold")
    screen.say(
        console,
        f"Scores are {'minimised' if space.direction == 'minimize' else 'maximised'} over "
        f"{screen.count(len(space.names), 'parameter')}, which span "
        f"{screen.count(space.dimensions, 'dimension')} of the unit cube of the models.",
    )
    screen.show(console, _parameters(federation), above=1, below=1)
    if space.listed is not None:
        points = screen.count(len(space.listed), "point")
        screen.say(console, f"Only the {points} that the file lists may be tried.\n")
    screen.show(console, _agreed(federation), below=1)
    screen.say(
        console,
        f"A site that joins sends {screen.count(_numbers(federation), 'number')}: "
        f"{_KINDS[federation.kind]}. The message also has the name that the site chose, how many "
        "trials it has, a counter and the fingerprint. A site sends no trial: neither parameters "
        "nor scores, neither data nor code. Peers do learn roughly where this site's scores are "
        "good, because that is what helps them.",
    )
    screen.say(console, "Further parameters, and what a score means, are up to each site.")


def next_steps(console: Console, path: Path, left_out: Sequence[str]) -> None:
    """Print which of the study's parameters the space does not have, and what to do next."""
    if left_out:
        screen.say(console, "\nLeft out; each site samples these on its own:", "yellow")
        for remark in left_out:
            screen.say(console, f"• {screen.printable(remark)}", indent=2)
        screen.say(
            console,
            "To share one of them, suggest it in every trial, with the same range, or with the "
            "same list of choices that are strings, numbers or bools.",
        )
    screen.say(
        console,
        f"\nWritten to {path}. Give every site this very file: messages from sites with other "
        f"values are refused. Each site then runs fedbo join EXCHANGE --federation {path} "
        "--storage STORAGE --objective MODULE:FUNCTION, or uses "
        f"FederatedSampler({str(path)!r}, EXCHANGE) as the sampler of its study. EXCHANGE is a "
        "folder that all sites can reach.",
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
    """Describe the kind, the range and the scale of a parameter."""
    if isinstance(parameter, Categorical):
        shown = ", ".join(map(repr, parameter.choices[:_SHOWN]))
        more = len(parameter.choices) - _SHOWN
        return "categorical", shown + (f", … {more} more" if more > 0 else ""), "unordered"
    span = f"{parameter.low:.6g} to {parameter.high:.6g}"
    if isinstance(parameter, Int):
        span = f"{parameter.low} to {parameter.high}"
    step = parameter.step is not None and not (isinstance(parameter, Int) and parameter.log)
    scale = "log" if parameter.log else "linear"
    kind = "float" if isinstance(parameter, Float) else "int"
    return kind, span, f"{scale}, steps of {parameter.step:.6g}" if step else scale


def _agreed(federation: Federation) -> Table:
    scale, numbers = federation.length_scale, _numbers(federation)
    scales = (scale,) if isinstance(scale, float) else scale
    return screen.pairs(
        {
            "features": f"{federation.features}, kernel {federation.kernel}, "
            f"seed {federation.seed}",
            "length scale": f"{', '.join(f'{one:.6g}' for one in scales)} on the unit cube",
            "noise": f"{federation.noise_variance:.6g}, as a variance of standardised scores",
            "message": f"{federation.kind}: {screen.count(numbers, 'number')}, about "
            f"{screen.size(_HEADER + 4 * numbers)} each",
            "epoch": f"{federation.epoch}",
            "fingerprint": f"{federation.fingerprint}",
            "": "sites with the same fingerprint and epoch agree on everything above",
        }
    )


def _numbers(federation: Federation) -> int:
    M = federation.features
    if federation.kind == "weights":
        return M
    return M + M * (M + 1) // 2 + (federation.kind == "belief+incumbent")
