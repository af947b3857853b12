"""Pictures of what the contests and hostile.py found, from the JSON that they write.

option      what is drawn                                                          file
----------  ---------------------------------------------------------------------  ------------
--svm       table.py: regret against evaluations, and its ratio to solo            svm.png
--landmine  landmine.py: the same, a row for each box                              landmine.png
--har       har.py: regret, and its difference from solo, in errors                har.png
--ranks     table.py, landmine.py, har.py: how far behind the default others rank  ranks.png
--hostile   hostile.py: delays, and ratios to solo, for each ground and family     hostile.png

    python benchmarks/picture.py docs/transfer --svm svm.json --hostile hostile.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbo.insight.style import COLOURS
from fedbo_paper.contests import screen
from fedbo_paper.contests.contest import RANDOM, SOLO
from fedbo_paper.contests.hostile import ANY, AVERAGE, ENOUGH, HOSTILE, LATE
from fedbo_paper.contests.outside import SAMPLERS

Figures = dict[str, Any]

NAMED = ("PTS", "FTS", "RGPE", "TAF", *SAMPLERS)  # each has a colour of its own
PLAIN = {SOLO: "black", RANDOM: "0.6"}
LEAST_RATIO = 0.05  # that is shown: an interval may reach down to 0
STOPS = dict(zip(("5", "10", "20", "50"), COLOURS, strict=False))  # evaluations
TITLES = {"svm": "SVM table", "linear": "landmine, linear box", "log": "landmine, log box"}


def colour(policy: str) -> str:
    """Of a policy; the same in every picture."""
    known = PLAIN | dict(zip(NAMED, COLOURS, strict=True))
    return known.get(policy, COLOURS[0])


def interval(
    axes: Axes,
    at: float,
    values: Sequence[float | None],
    up: bool,
    least: float = -np.inf,
    **look: Any,
) -> None:
    """A point with its interval, cut at ``least``; what is null in the file is left out."""
    point, low, high = (np.nan if value is None else max(value, least) for value in values)
    if np.isnan(point):
        return
    ends = np.nan_to_num([[point - low], [point - high]])
    spread = {"yerr" if up else "xerr": np.abs(ends)}
    x, y = (at, point) if up else (point, at)
    axes.errorbar(x, y, **spread, fmt="o", ms=4.5, lw=1.4, **look)


def logarithmic(axes: Axes, which: str) -> None:
    """An axis for ratios."""
    axes.set(**{f"{which}scale": "log"})
    low, high = getattr(axes, f"get_{which}lim")()
    ticks = [0.05, 0.1, 0.2, 0.5, 1, 2, 5]
    axes.set(**{f"{which}ticks": ticks, f"{which}ticklabels": [f"{tick:g}" for tick in ticks]})
    axes.set(**{f"{which}lim": (low, max(high, 1.3))})
    axes.minorticks_off()


def bare(axes: Axes, title: str = "", **labels: str) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set(**labels)


# Contests


def curves(axes: Axes, policies: Figures) -> None:
    """Mean regret against evaluations, one line a policy."""
    for name, figures in policies.items():
        curve = np.array(figures["curve"])
        shown = np.where(curve > 0, curve, np.nan)  # 0 has no place on a logarithmic axis
        seeds = figures["seeds"]
        label = f"{name} ({seeds} seed{'s' if seeds > 1 else ''})"
        axes.plot(shown, color=colour(name), label=label, lw=2 if name == "PTS" else 1.4)
    axes.set_yscale("log")
    axes.set_xlim(0, None)
    axes.legend(frameon=False, fontsize="small")


def against_solo(axes: Axes, policies: Figures, what: str) -> None:
    """The ratio to solo's regret, or the difference from it, with intervals."""
    shown = [name for name in policies if name != SOLO]
    at = [*policies[SOLO]["regret"]]
    for k, name in enumerate(shown):
        for i, n in enumerate(at):
            place = i + 0.16 * (k - (len(shown) - 1) / 2)
            least = LEAST_RATIO if what == "ratio" else -np.inf
            interval(axes, place, policies[name][what][n], up=True, least=least, color=colour(name))
    axes.axhline(1.0 if what == "ratio" else 0.0, color=PLAIN[SOLO], lw=1)
    axes.set_xticks(range(len(at)), at)
    if what == "ratio":
        logarithmic(axes, "y")


def contests(found: dict[str, Figures], what: str = "ratio", regret: str = "normalised regret"):
    """A row for each contest: curves of regret, and the comparison with solo."""
    figure = Figure(figsize=(9, 3.5 * len(found)), layout="constrained")
    rows = figure.subplots(len(found), 2, squeeze=False)
    after = "evaluations after the 3 initial ones"
    for (left, right), (title, result) in zip(rows, found.items(), strict=True):
        policies = result["policies"]
        curves(left, policies)
        bare(left, title, xlabel=after, ylabel=f"mean {regret}")
        against_solo(right, policies, what)
        word = "ratio to" if what == "ratio" else "difference from"
        bare(right, f"{word} solo, paired, 95 % intervals", xlabel=after)
    return figure


def ranks(found: dict[str, Figures]) -> Figure:
    """A panel for each contest: how far the others' mean ranks are behind the default's."""
    figure = Figure(figsize=(3.4 * len(found) + 1, 3.2), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, (title, result) in zip(panels, found.items(), strict=True):
        policies, default = result["policies"], result["default"]
        others = [name for name in policies if name != default]
        stops = [n for n in STOPS if n in policies[default]["rank"]]
        for row, name in enumerate(others):
            for k, n in enumerate(stops):
                behind = policies[name]["rank_difference"][n]
                place = row + 0.18 * (k - (len(stops) - 1) / 2)
                look = {"color": STOPS[n], "label": f"at {n}" if not row else None}
                interval(axes, place, behind, up=False, **look)
        axes.axvline(0.0, color="black", lw=1)
        axes.set_yticks(range(len(others)), others)
        axes.invert_yaxis()
        bare(axes, title, xlabel=f"mean rank behind {default}")
    panels[-1].legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


# Hostile peers


def hostile(result: Figures) -> Figure:
    """Delays, and ratios to solo's regret, a row for each ground and family."""
    found = [
        (ground, family, figures)
        for ground, by_family in result["grounds"].items()
        for family, figures in by_family.items()
    ]
    figure = Figure(figsize=(9, 1.4 + 0.32 * len(found)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for row, (_, _, figures) in enumerate(found):
        for k, (n, shade) in enumerate(STOPS.items()):
            place = row + 0.18 * (k - 1.5)
            if n in figures["delay"]:
                interval(left, place, figures["delay"][n], up=False, color=shade)
            if n in figures["ratio"] and figures["solo"][n] > ENOUGH:
                ratio = figures["ratio"][n]
                interval(right, place, ratio, up=False, least=LEAST_RATIO, color=shade)
        if row and found[row][0] != found[row - 1][0]:
            for axes in (left, right):
                axes.axhline(row - 0.5, color="0.8", lw=0.8)
    for n, shade in STOPS.items():
        right.plot([], [], "o", color=shade, label=f"at {n}")
    for axes, lines in ((left, {0.0: "-", AVERAGE: "--", ANY: ":"}), (right, {1.0: "-"})):
        for x, style in lines.items():
            axes.axvline(x, color="black", lw=1, ls=style)
    names = [
        f"{ground}, {family if family in HOSTILE else 'half negated'}"
        for ground, family, _ in found
    ]
    left.set_yticks(range(len(found)), names)
    left.set_ylim(len(found) - 0.5, -0.5)
    limits = f"(allowed: {AVERAGE:g} on average, dashed; {ANY:g} in any, dotted)"
    bare(left, f"{result['default']} later than solo", xlabel=f"evaluations\n{limits}")
    logarithmic(right, "x")
    right.axvline(LATE, color=STOPS["50"], lw=1, ls="--")
    note = f"(allowed at 50: {LATE:g}, dashed)"
    title = f"where solo's regret exceeds {ENOUGH:g}"
    bare(right, title, xlabel=f"ratio to solo's regret\n{note}")
    right.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


# Files


def read(path: Path) -> Figures:
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise screen.refuse(f"cannot read {path}: {error}") from None
    if not isinstance(result, dict) or not {"policies", "grounds"} & {*result}:
        raise screen.refuse(f"{path} is no JSON of table.py, landmine.py, har.py or hostile.py")
    return result


def boxes(result: Figures, title: str) -> dict[str, Figures]:
    """The contests of a file: one, or one for each box."""
    if "boxes" not in result:
        return {TITLES.get(title, title): result}
    return {TITLES.get(box, box): figures for box, figures in result["boxes"].items()}


def wanted(options: argparse.Namespace) -> dict[str, Figure]:
    """The pictures that were asked for, by the names of their files."""
    pictures = {}
    if options.svm:
        pictures["svm"] = contests(boxes(read(options.svm), "svm"))
    if options.landmine:
        pictures["landmine"] = contests(boxes(read(options.landmine), "landmine"))
    if options.har:
        found = boxes(read(options.har), "HAR")
        pictures["har"] = contests(found, "difference", "error beyond the best known")
    if options.ranks:
        together: dict[str, Figures] = {}
        for path in options.ranks:
            together |= boxes(read(path), path.stem)
        pictures["ranks"] = ranks(together)
    if options.hostile:
        pictures["hostile"] = hostile(read(options.hostile))
    return pictures


def main() -> None:
    first, _, rest = __doc__.partition("\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="OUT_FOLDER")
    for name in ("svm", "landmine", "har", "hostile"):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE.json")
    parser.add_argument("--ranks", type=Path, nargs="+", metavar="FILE.json")
    options = parser.parse_args()
    pictures = wanted(options)
    if not pictures:
        raise screen.refuse("nothing to draw: give a file, such as --svm out.json")
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, figure in pictures.items():
        path = options.folder / f"{name}.png"
        figure.savefig(path, dpi=110)
        print(path)
