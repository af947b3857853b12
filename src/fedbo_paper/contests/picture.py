"""Draw pictures of the figures that contests write as JSON.

option      picture                                                                file
----------  ---------------------------------------------------------------------  ------------
--regret    table.py, landmine.py, har.py: regret against trials, one panel for    regret.png
            each file and box
--private   private.py: the gain that is kept against ε, one panel for each file   kept.png

    python benchmarks/picture.py docs/transfer --regret lcbench.json svm.json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from fedbo.insight.colours import COLOURS
from fedbo_paper.contests import options, screen
from fedbo_paper.contests.best_first import BEST_FIRST
from fedbo_paper.contests.contest import EI
from fedbo_paper.contests.hostile import TABLE
from fedbo_paper.contests.outside import TOLD, TPE
from fedbo_paper.contests.summary import AT

Figures = dict[str, Any]

KEPT = (-0.5, 1.5)  # the shares of a gain that are shown
TITLES = {
    "svm": "SVM table",
    "lcbench": "LCBench",
    "har": "activity recognition",
    Path(TABLE).stem: "SVM table",
    "linear": "landmine, linear box",
    "log": "landmine, log box",
    "synthetic": "similar synthetic tasks",
}


def interval(
    axes: Axes,
    at: float,
    values: Sequence[float | None],
    up: bool,
    least: float = -np.inf,
    **look: Any,
) -> None:
    """Draw a point with its interval, cut off at ``least``; null values are left out."""
    point, low, high = (np.nan if value is None else max(value, least) for value in values)
    if np.isnan(point):
        return
    ends = np.nan_to_num([[point - low], [point - high]])
    spread = {"yerr" if up else "xerr": np.abs(ends)}
    x, y = (at, point) if up else (point, at)
    axes.errorbar(x, y, **spread, fmt="o", ms=4.5, lw=1.4, **look)


def label(axes: Axes, title: str, **labels: str) -> None:
    """Set the title and labels of a panel, and hide the upper and right borders."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set(**labels)


# Contests


def regrets(found: dict[str, Figures]) -> Figure:
    """Draw the mean regret against trials, one panel for each contest.

    Args:
        found: The figures of the contests, by title.
    """
    figure = Figure(figsize=(4.6 * len(found), 4.2), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, (heading, result) in zip(panels, found.items(), strict=True):
        policies, default = result["policies"], result["default"]
        looks = {  # by policy: its name, colour and line
            default: (f"fedbo ({default})", COLOURS[0], "-"),
            EI: ("EI alone", "black", "-"),
            BEST_FIRST: (BEST_FIRST, COLOURS[1], "-"),
            TOLD: (TOLD, COLOURS[2], "-"),
            TPE: (TPE, COLOURS[2], "--"),
        }
        for name in (name for name in looks if name in policies):
            curve, (text, colour, line) = np.array(policies[name]["curve"]), looks[name]
            if (seeds := policies[name]["seeds"]) < policies[EI]["seeds"]:
                text = f"{text}, {seeds} seed{'s' if seeds > 1 else ''} only"
            shown = np.where(curve > 0, curve, np.nan)  # a logarithmic axis cannot show 0
            trials = range(1, len(curve) + 1)
            axes.plot(trials, shown, line, color=colour, label=text, lw=1.6)
        last = len(policies[EI]["curve"])
        at = [n for n in AT if n <= last]
        axes.set(xscale="log", yscale="log", xlim=(1, last))
        axes.set_xticks(at, [str(n) for n in at])
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        label(axes, heading, xlabel="trials")
    panels[0].set_ylabel("mean regret")
    handles, names = panels[0].get_legend_handles_labels()
    columns = len(found)
    figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False)
    return figure


# Private releases


def kept(found: Sequence[Figures], n: str = "10") -> Figure:
    """Draw the share of the gain without privacy that is kept against ε, a panel for each ground.

    Args:
        found: The figures of private.py, with the ``kept`` of several ε.
        n: The number of trials.
    """
    figure = Figure(figsize=(4.4 * len(found) + 0.4, 3.6), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False, sharey=True)[0]
    colours = cycle(COLOURS)
    for axes, result in zip(panels, found, strict=True):
        by_members = result["members"]
        for k, (N, figures) in enumerate(by_members.items()):
            # Points with the same ε stand side by side, so that their intervals do not overlap
            aside = 1.07 ** (k - (len(by_members) - 1) / 2)
            own = next(colours)
            shares = {float(eps): by_n[n] for eps, by_n in figures["kept"].items()}
            for eps, share in shares.items():
                interval(axes, eps * aside, share, up=True, color=own)
            values = [share[0] for share in shares.values()]
            text = f"{int(N):,} members"
            axes.plot([eps * aside for eps in shares], values, color=own, lw=1.4, label=text)
        axes.set_xscale("log", base=2)
        axes.set_xticks([*shares], [f"{eps:g}" for eps in shares])
        axes.axhline(1.0, color="black", lw=1)
        axes.axhline(0.0, color="0.7", lw=1)
        axes.set_ylim(*KEPT)
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.15), "ncols": len(by_members)}
        axes.legend(frameon=False, fontsize="small", **below)
        heading = TITLES.get(result["ground"], result["ground"])
        label(axes, f"{heading}, δ = {result['delta']:g}", xlabel="ε")
    panels[0].set_ylabel(f"share of the gain that is kept, at {n}")
    return figure


# Files


def read(path: Path, key: str) -> Figures:
    """Read the JSON of a contest, which has this key among its figures."""
    try:
        text = path.read_text()
        result = json.loads(text)
    except (OSError, ValueError) as error:
        raise screen.refuse(f"cannot read {path}: {error}") from None
    if not isinstance(result, dict) or f'"{key}":' not in text:
        raise screen.refuse(
            f"{path} is not a JSON file of the right contest, or an older one wrote it: it has no "
            f"{key!r}. Run the contest again"
        )
    return result


def boxes(result: Figures, title: str) -> dict[str, Figures]:
    """List the contests of a file by title: one, or one for each box."""
    if "boxes" not in result:
        return {TITLES.get(title, title): result}
    return {TITLES.get(box, box): figures for box, figures in result["boxes"].items()}


def main() -> None:
    """Run the command."""
    parser = options.parser(__doc__)
    parser.add_argument("folder", type=Path, metavar="OUT_FOLDER")
    for name in ("regret", "private"):
        parser.add_argument(f"--{name}", type=Path, nargs="+", default=[], metavar="FILE.json")
    given = parser.parse_args()
    pictures, panels = dict[str, Figure](), dict[str, Figures]()
    for path in given.regret:
        panels |= boxes(read(path, "to_target"), path.stem)
    if panels:
        pictures["regret"] = regrets(panels)
    if given.private:
        pictures["kept"] = kept([read(path, "kept") for path in given.private])
    if not pictures:
        raise screen.refuse("nothing to draw: give a file, such as --regret out.json")
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, figure in pictures.items():
        path = given.folder / f"{name}.png"
        figure.savefig(path, dpi=110)
        print(path)
