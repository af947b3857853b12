"""An explanation as a figure: the agent's progress, with peers and alone, and each peer's gain."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedbo.insight.colours import COLOURS
from fedbo.insight.explain import SOURCES, Explanation
from fedbo.table import Table

_LOOKS = {  # marker and colour of each source
    "initial": ("s", "#888888"),
    "tip": ("P", COLOURS[2]),
    "own": ("o", COLOURS[0]),
    "peer": ("^", COLOURS[1]),
    "pool": ("D", COLOURS[4]),
    "told": ("X", "black"),
}
_ALONE = "#888888"
_PEERS = 10  # bars at most
_LEGEND: dict[str, Any] = {"frameon": False, "fontsize": "small", "columnspacing": 1.4}
_LONGEST_NAME = 24


@rc_context({"text.parse_math": False})  # a name may have a $ in it
def draw(explanation: Explanation, path: str | os.PathLike[str]) -> Figure:
    """Draw an explanation and write the figure to a file; its ending determines the format."""
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    widths = (5, 3) if explanation.peers.height else (1,)
    left, *right = figure.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0]
    _draw_progress(left, explanation)
    for axes in right:
        _draw_peers(axes, explanation.peers)
    for axes in (left, *right):
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=len(labels), **_LEGEND)
    figure.savefig(path, dpi=150)
    return figure


def _draw_progress(axes: Axes, explanation: Explanation) -> None:
    queries = explanation.queries.where(state="complete")
    trial = queries["trial"]
    if explanation.saved is not None:
        solo = explanation.saved.curves
        replayed = trial[: solo.height]
        band = axes.fill_between(replayed, solo["low"], solo["high"], step="post", color=_ALONE)
        band.set(alpha=0.3, linewidth=0, label="alone, replayed: 90 %")
        [line] = axes.step(replayed, solo["alone"], "--", where="post", color=_ALONE)
        line.set_label("its median")
    axes.step(trial, queries["best"], where="post", color=COLOURS[0], label="best so far")
    low, high = _window(queries, explanation)
    for source in SOURCES:
        mine = queries["source"] == source
        if mine.any():
            marker, colour = _LOOKS[source]
            label = f"{source} ({mine.sum()})"
            look: dict[str, Any] = {"s": 26, "marker": marker, "c": colour, "zorder": 3}
            axes.scatter(trial[mine], queries["score"][mine], label=label, **look)
    outside = int(((queries["score"] < low) | (queries["score"] > high)).sum())
    axes.set_ylim(low, high)
    axes.set_xlim(trial[0] - 0.6, trial[-1] + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.set(xlabel="trial", ylabel=f"score ({outside} far off)" if outside else "score")
    title = f"Agent {_short(explanation.agent)}"
    if explanation.saved is not None:
        title += f": {explanation.saved.amount}"
    axes.set_title(title, loc="left", fontsize="medium")


def _window(queries: Table, explanation: Explanation) -> tuple[float, float]:
    """Return the range of scores to show: all best scores, the solo agents', and most others."""
    scores, best = queries["score"], queries["best"]
    parts = [best, np.quantile(scores, [0.0, 0.75] if best[-1] < best[0] else [0.25, 1.0])]
    if explanation.saved is not None:
        parts += [explanation.saved.curves[name] for name in ("low", "high")]
    values = np.concatenate(parts)
    low, high = float(values.min()), float(values.max())
    margin = 0.06 * (high - low) or 0.5
    return low - margin, high + margin


def _draw_peers(axes: Axes, peers: Table) -> None:
    axes.set_title("What each peer's queries gained", loc="left", fontsize="medium")
    names = [_short(name) for name in peers["peer"][:_PEERS].tolist()]
    gained, shares = peers["gained"][:_PEERS].tolist(), peers["share"][:_PEERS].tolist()
    if peers.height > _PEERS:
        names.append(f"{peers.height - _PEERS} others")
        gained.append(float(peers["gained"][_PEERS:].sum()))
        shares.append(float(peers["share"][_PEERS:].sum()))
    rows = np.arange(len(names))
    axes.barh(rows, gained, 0.7, color=COLOURS[1])
    for row, gain, share in zip(rows, gained, shares, strict=True):
        text = f"{share:.3g} quer{'y' if share == 1 else 'ies'}"
        note = axes.annotate(text, (gain, row), (4, 0), textcoords="offset points", va="center")
        note.set_fontsize("small")
    axes.set_yticks(rows, names)
    axes.set_ylim(max(len(names), 4) - 0.4, -0.6)  # the first bar is on top
    axes.set_xlim(0.0, 1.45 * max(gained) or 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel("gain of the best score")


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
