"""Draw pictures of the figures that the contests and hostile.py write as JSON.

option      picture                                                                file
----------  ---------------------------------------------------------------------  ------------
--svm       table.py: regret against evaluations, and its ratio to EI alone        svm.png
--landmine  landmine.py: the same, one row for each box                            landmine.png
--har       har.py: regret, and its difference from EI alone, as errors            har.png
--ranks     table.py, landmine.py, har.py: mean ranks behind the default policy    ranks.png
--hostile   hostile.py: delays and ratios to EI alone, by ground and family        hostile.png
--private   private.py: the gain that is kept against ε, one panel for each file   kept.png
--bytes     bytes.py: regret against the bytes of a message, odd tasks             bytes.png

    python benchmarks/picture.py docs/transfer --svm svm.json --hostile hostile.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbo.insight.colours import COLOURS
from fedbo_paper.contests import options, portfolio, screen
from fedbo_paper.contests.contest import ALONE, EI, RANDOM, TS
from fedbo_paper.contests.hostile import ANY, AVERAGE, ENOUGH, HOSTILE, LATE, TABLE
from fedbo_paper.contests.outside import BOTORCH, SAMPLERS
from fedbo_paper.contests.sizes import MEAN, SENT

Figures = dict[str, Any]

OTHERS = {
    EI: "black",
    TS: "0.45",
    RANDOM: "0.75",
    "PTS-weights": "#A01040",
    portfolio.NAME: "#8B5A2B",
    BOTORCH: "#5B4B8A",
}
NAMED = ("PTS", "FTS", "RGPE", "TAF", *(name for name in SAMPLERS if name not in OTHERS))
LEAST_RATIO = 0.05  # the smallest ratio that is shown: an interval may reach down to 0
STOPS = dict(zip(("5", "10", "20", "50"), COLOURS, strict=False))  # evaluations
KEPT = (-0.5, 1.5)  # the shares of a gain that are shown
MOST_BYTES = 128  # that a message may have
ALONE_AT = 30  # bytes, where an agent without messages is shown
RATIOS = (0.55, 2.5)  # ratios to summaries in float32 that are shown
TITLES = {
    "svm": "SVM table",
    Path(TABLE).stem: "SVM table",
    "linear": "landmine, linear box",
    "log": "landmine, log box",
    "synthetic": "similar synthetic tasks",
}


def colour(policy: str) -> str:
    """Return the colour of a policy, which is the same in every picture."""
    known = OTHERS | dict(zip(NAMED, COLOURS, strict=True))
    return known.get(policy, COLOURS[0])


def title(policy: str) -> str:
    """Return the name of a policy as pictures show it."""
    return f"{policy} alone" if policy in ALONE else policy


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


def logarithmic(axes: Axes, which: str) -> None:
    """Make an axis logarithmic, with ticks for ratios."""
    axes.set(**{f"{which}scale": "log"})
    low, high = getattr(axes, f"get_{which}lim")()
    ticks = [0.05, 0.1, 0.2, 0.5, 1, 2, 5]
    axes.set(**{f"{which}ticks": ticks, f"{which}ticklabels": [f"{tick:g}" for tick in ticks]})
    axes.set(**{f"{which}lim": (low, max(high, 1.3))})
    axes.minorticks_off()


def label(axes: Axes, title: str, **labels: str) -> None:
    """Set the title and labels of a panel, and hide the upper and right borders."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set(**labels)


# Contests


def curves(axes: Axes, policies: Figures) -> None:
    """Draw the mean regret against evaluations, one line for each policy."""
    for name, figures in policies.items():
        curve = np.array(figures["curve"])
        shown = np.where(curve > 0, curve, np.nan)  # a logarithmic axis cannot show 0
        seeds = figures["seeds"]
        text = f"{title(name)} ({seeds} seed{'s' if seeds > 1 else ''})"
        axes.plot(shown, color=colour(name), label=text, lw=2 if name == "PTS" else 1.4)
    axes.set_yscale("log")
    axes.set_xlim(0, None)
    axes.legend(frameon=False, fontsize="small")


def against_ei(axes: Axes, policies: Figures, what: str) -> None:
    """Draw the ratio to the regret of EI alone, or the difference from it, with intervals."""
    shown = [name for name in policies if name != EI]
    at = [*policies[EI]["regret"]]
    step = min(0.16, 0.8 / len(shown))
    for k, name in enumerate(shown):
        for i, n in enumerate(at):
            place = i + step * (k - (len(shown) - 1) / 2)
            least = LEAST_RATIO if what == "ratio" else -np.inf
            values = policies[name][f"{what}_ei"][n]
            interval(axes, place, values, up=True, least=least, color=colour(name))
    axes.axhline(1.0 if what == "ratio" else 0.0, color=OTHERS[EI], lw=1)
    axes.set_xticks(range(len(at)), at)
    if what == "ratio":
        logarithmic(axes, "y")


def contests(
    found: dict[str, Figures], what: str = "ratio", regret: str = "normalised regret"
) -> Figure:
    """Draw one row for each contest: the regrets, and the comparison with EI alone."""
    figure = Figure(figsize=(9, 3.5 * len(found)), layout="constrained")
    rows = figure.subplots(len(found), 2, squeeze=False)
    after = "evaluations after the 3 initial points"
    for (left, right), (heading, result) in zip(rows, found.items(), strict=True):
        policies = result["policies"]
        curves(left, policies)
        label(left, heading, xlabel=after, ylabel=f"mean {regret}")
        against_ei(right, policies, what)
        word = "ratio to" if what == "ratio" else "difference from"
        label(right, f"{word} EI alone, paired, 95 % intervals", xlabel=after)
    return figure


def ranks(found: dict[str, Figures]) -> Figure:
    """Draw one panel for each contest: the mean ranks behind the default policy."""
    figure = Figure(figsize=(3.4 * len(found) + 1, 3.2), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, (heading, result) in zip(panels, found.items(), strict=True):
        policies, default = result["policies"], result["default"]
        others = [name for name in policies if name != default]
        stops = [n for n in STOPS if n in policies[default]["rank"]]
        for row, name in enumerate(others):
            for k, n in enumerate(stops):
                behind = policies[name]["rank_difference"][n]
                place = row + 0.18 * (k - (len(stops) - 1) / 2)
                text = f"at {n}" if not row else None
                interval(axes, place, behind, up=False, color=STOPS[n], label=text)
        axes.axvline(0.0, color="black", lw=1)
        axes.set_yticks(range(len(others)), [title(name) for name in others])
        axes.invert_yaxis()
        label(axes, heading, xlabel=f"mean rank behind {default}")
    panels[-1].legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


# Hostile peers


def hostile(result: Figures) -> Figure:
    """Draw delays behind EI alone and ratios to its regret, one row for each ground and family."""
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
            if n in figures["ratio_ei"] and figures["solo_ei"][n] > ENOUGH:
                ratio = figures["ratio_ei"][n]
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
    limits = f"(limits: {AVERAGE:g} on average, dashed; {ANY:g} for each, dotted)"
    label(left, f"delay of {result['default']} behind EI alone", xlabel=f"evaluations\n{limits}")
    logarithmic(right, "x")
    right.axvline(LATE, color=STOPS["50"], lw=1, ls="--")
    note = f"(limit at 50: {LATE:g}, dashed)"
    heading = f"where the regret of EI alone exceeds {ENOUGH:g}"
    label(right, heading, xlabel=f"ratio to the regret of EI alone\n{note}")
    right.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


# Private releases


def kept(found: Sequence[Figures], n: str = "10") -> Figure:
    """Draw the share of the gain without privacy that is kept against ε, a panel for each ground.

    Args:
        found: The figures of private.py, with the ``kept`` of several ε.
        n: The number of evaluations after the third.
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


# Smaller messages


def sizes(result: Figures, which: str = "odd") -> Figure:
    """Draw mean regrets against bytes, as ratios to summaries in float32, one row for each ground.

    Args:
        result: The figures of bytes.py.
        which: The tasks: "even", "odd" or "all".
    """
    grounds = result["grounds"]
    figure = Figure(figsize=(9, 2.2 * len(grounds) + 0.4), layout="constrained")
    rows = figure.subplots(len(grounds), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    for axes, (name, found) in zip(rows, grounds.items(), strict=True):
        axes.set(xscale="log", yscale="log", ylim=RATIOS)
        for i, (form, ratios) in enumerate(found["ratio"].items()):
            at, values = found["bytes"][form] or ALONE_AT, ratios[which][MEAN]
            shade = colour("PTS") if form == SENT else "0.3"
            interval(axes, at, values, up=True, least=RATIOS[0], color=shade)
            end = values[1 + i % 2] or RATIOS[i % 2]  # names below and above, in turn
            look = {"fontsize": 7, "rotation": 90, "color": shade, "ha": "center"}
            place = (at, end * 1.05) if i % 2 else (at, end / 1.05)
            axes.annotate(form, place, va="bottom" if i % 2 else "top", **look)
        axes.axhline(1.0, color="black", lw=1)
        axes.axvline(MOST_BYTES, color="0.7", lw=1, ls="--")
        axes.set_yticks(ticks := [0.8, 1.0, 1.2, 1.5, 2.0], [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        label(axes, f"{TITLES.get(name, name)}, {which} tasks")
    at_bytes = {at: f"{at:,}" for at in (40, 60, 80, 100, MOST_BYTES, 400, 1300, 2500)}
    at_bytes[ALONE_AT] = "none"
    rows[-1].set_xticks([*at_bytes], [*at_bytes.values()], fontsize="small")
    rows[-1].set_xlabel("bytes of a message without its header")
    figure.supylabel("mean regret until 20, ratio to summaries in float32", fontsize="medium")
    return figure


# Files


def read(path: Path) -> Figures:
    """Read the JSON of a contest."""
    try:
        text = path.read_text()
        result = json.loads(text)
    except (OSError, ValueError) as error:
        raise screen.refuse(f"cannot read {path}: {error}") from None
    if not isinstance(result, dict) or not {"policies", "grounds", "members"} & {*result}:
        raise screen.refuse(
            f"{path} is not a JSON file of table.py, landmine.py, har.py, hostile.py, private.py "
            "or bytes.py"
        )
    if '"ratio_ei"' not in text and '"bytes"' not in text:
        raise screen.refuse(
            f"{path} compares with Thompson sampling only: it was written before contests ran EI "
            "alone. Run the contest again"
        )
    return result


def boxes(result: Figures, title: str) -> dict[str, Figures]:
    """List the contests of a file by title: one, or one for each box."""
    if "boxes" not in result:
        return {TITLES.get(title, title): result}
    return {TITLES.get(box, box): figures for box, figures in result["boxes"].items()}


def wanted(given: argparse.Namespace) -> dict[str, Figure]:
    """Draw the pictures that were asked for, by file name."""
    pictures = {}
    if given.svm:
        pictures["svm"] = contests(boxes(read(given.svm), "svm"))
    if given.landmine:
        pictures["landmine"] = contests(boxes(read(given.landmine), "landmine"))
    if given.har:
        found = boxes(read(given.har), "HAR")
        pictures["har"] = contests(found, "difference", "error above the best known")
    if given.ranks:
        together: dict[str, Figures] = {}
        for path in given.ranks:
            together |= boxes(read(path), path.stem)
        pictures["ranks"] = ranks(together)
    if given.hostile:
        pictures["hostile"] = hostile(read(given.hostile))
    if given.private:
        pictures["kept"] = kept([read(path) for path in given.private])
    if given.bytes:
        pictures["bytes"] = sizes(read(given.bytes))
    return pictures


def main() -> None:
    """Run the command."""
    parser = options.parser(__doc__)
    parser.add_argument("folder", type=Path, metavar="OUT_FOLDER")
    for name in ("svm", "landmine", "har", "hostile", "bytes"):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE.json")
    for name in ("ranks", "private"):
        parser.add_argument(f"--{name}", type=Path, nargs="+", metavar="FILE.json")
    given = parser.parse_args()
    pictures = wanted(given)
    if not pictures:
        raise screen.refuse("nothing to draw: give a file, such as --svm out.json")
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, figure in pictures.items():
        path = given.folder / f"{name}.png"
        figure.savefig(path, dpi=110)
        print(path)
