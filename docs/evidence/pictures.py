"""Draw pictures of the evidence from the tables of its pages: `python docs/evidence/pictures.py`.

Each picture shows figures of the table of the page with the same name, so that a picture and its
page cannot differ. They have no background, and their colours suit a light page and a dark one.
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbo.insight.colours import COLOURS

HERE = Path(__file__).parent
GREY, (BLUE, RED, GREEN, *_) = "#7d7d7d", COLOURS
LEAST_REGRET = 5e-4  # that is drawn, because its logarithm is
STYLE = {
    "font.size": 13,
    "axes.titlesize": 13,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "savefig.transparent": True,
    "svg.hashsalt": "fedbo",
    "figure.constrained_layout.use": True,
    **{f"{name}.color": GREY for name in ("text", "xtick", "ytick")},
    **{f"axes.{name}color": GREY for name in ("edge", "label", "title")},
}


def table(page: str) -> list[list[str]]:
    """Return the cells of each row of a page's first table."""
    text = (HERE / f"{page}.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| *(.*?) *\|$", text, re.M)
    return [re.split(r" *\| *", row) for row in rows[2:]]


def numbers(cell: str) -> list[float]:
    """Return the numbers in a cell, such as "1,000 agents" or ".71 [.61, .84]"."""
    return [float(n.replace(",", "")) for n in re.findall(r"\d+(?:,\d{3})+|\d*\.\d+|\d+", cell)]


def number(cell: str) -> float:
    return numbers(cell)[0]


def panels(count: int, height: float = 3.6, share: bool = True) -> tuple[Figure, list[Axes]]:
    figure, axes = plt.subplots(1, count, figsize=(8, height), sharey=share)
    return figure, list(axes)


def legend(figure: Figure) -> None:
    """Name the lines of the first panel below all panels."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def attacks() -> Figure:
    """Regret against the number of adaptive Sybils, with and without a list of members."""
    rows = table("attacks")
    alone, honest, listed = rows[0], rows[1], rows[-1]
    adaptive = [row for row in rows if "adaptive" in row[0]]
    sybils = ["none"] + [f"{number(row[0]):,.0f}" for row in adaptive]
    figure, axes = panels(3)
    for column, (panel, trials) in enumerate(zip(axes, (5, 10, 20), strict=True), start=1):
        believed = [number(row[column]) for row in (honest, *adaptive)]
        refused = [number(listed[column])] * len(sybils)
        panel.plot(sybils, believed, "o-", color=RED, label="no list of members")
        panel.axhline(number(alone[column]), color=GREY, ls="--", label="alone")
        panel.plot(sybils, refused, "o-", color=BLUE, label="members listed")
        panel.set_title(f"after {trials} evaluations")
        panel.set(xlabel="adaptive Sybils", ylim=(0, None))
    axes[0].set_ylabel("mean regret")
    legend(figure)
    return figure


def speed() -> Figure:
    """CPU time of a query in two and in six dimensions, a bar for each program."""
    rows = table("speed")
    figure, axes = panels(2, height=2.8)
    for panel, column, D in zip(axes, (1, 3), (2, 6), strict=True):
        colors = [BLUE if row[0].startswith("fedbo") else GREY for row in rows]
        bars = panel.barh(range(len(rows)), [number(row[column]) for row in rows], color=colors)
        panel.bar_label(bars, fmt="%g ms", padding=3)
        panel.set_title(f"D = {D}")
        panel.set_xlabel("CPU time, ms")
        panel.margins(x=0.2)
    names = [
        row[0].replace("`", "").removesuffix(" (fit and pathwise Thompson sampling)")
        for row in rows
    ]
    axes[0].set_yticks(range(len(rows)), names)
    axes[0].invert_yaxis()
    return figure


def paper() -> Figure:
    """Regret of TS and FTS on synthetic functions, and CPU time against the number of peers."""
    rows = table("paper")
    young, old, *_, few, many = rows
    figure, (left, right) = panels(2, share=False)
    names = ["TS", "FTS, peers'\n40 trials", "FTS, peers'\n100 trials"]
    regret = [number(young[1]), number(young[2]), number(old[2])]
    bars = left.bar(names, regret, color=[GREY, BLUE, BLUE], width=0.6)
    left.bar_label(bars, fmt="%.3f", padding=2)
    left.margins(y=0.15)
    left.set_title("synthetic functions")
    left.set_ylabel("mean regret of 50 iterations")
    peers = [numbers(row[0])[-1] for row in (few, many)]
    for column, name, color in ((4, "TAF", GREEN), (3, "RGPE", RED), (2, "FTS", BLUE)):
        seconds = [number(row[column]) for row in (few, many)]
        right.plot(peers, seconds, "o-", color=color, label=name)
    right.set(xscale="log", yscale="log", xlabel="peers")
    right.set_title("CPU seconds of 50 iterations")
    right.legend()
    return figure


def scale() -> Figure:
    """Regret as a ratio to that of an agent alone, against the number of agents."""
    rows = table("scale")
    kinds = {
        "all, or 1,024 at random": (BLUE, [row for row in rows if "most like" not in row[1]]),
        "the 1,024 most alike": (RED, [row for row in rows if "most like" in row[1]]),
    }
    figure, axes = panels(3)
    for column, (panel, queries) in enumerate(zip(axes, (5, 10, 20), strict=True), start=2):
        panel.axhline(1.0, color=GREY, ls="--", label="alone")
        for label, (color, heard) in kinds.items():
            beside = 1.5 if color == RED else 1.0  # so that intervals do not hide each other
            agents = [beside * number(row[0]) for row in heard]
            ratio, low, high = zip(*(numbers(row[column]) for row in heard), strict=True)
            panel.plot(agents, ratio, "o-", color=color, label=label)
            panel.vlines(agents, low, high, color=color)
        panel.set_title(f"after {queries} queries")
        panel.set(xscale="log", xlabel="agents")
    axes[0].set_ylabel("regret / regret alone")
    legend(figure)
    return figure


def samplers() -> Figure:
    """Regret against trials, a panel for each problem, of four samplers alone."""
    rows, trials = table("samplers"), ("10", "20", "50", "200")
    colours = {"fedbo": BLUE, "TPE": RED, "GPSampler": GREEN, "random": GREY}
    figure, axes = plt.subplots(2, 4, figsize=(10, 5.4), sharex=True, sharey=True)
    for panel, first in zip(axes.flat, range(0, len(rows), len(colours)), strict=False):
        for row in rows[first : first + len(colours)]:
            regret = [max(number(cell), LEAST_REGRET) for cell in row[2:6]]
            panel.plot(trials, regret, "o-", color=colours[row[1]], label=row[1])
        panel.set(title=rows[first][0].replace(", D", "\nD"), yscale="log")
    decades = (0.001, 0.01, 0.1, 1)
    for panel in axes[:, 0]:
        panel.set(ylabel="mean regret", yticks=decades, yticklabels=map(str, decades))
    axes[-1, -1].axis("off")
    legend(figure)
    return figure


if __name__ == "__main__":
    (HERE / "drawn").mkdir(exist_ok=True)
    plt.rcParams.update(STYLE)
    for draw in (attacks, speed, paper, scale, samplers):
        draw().savefig(HERE / "drawn" / f"{draw.__name__}.svg")
