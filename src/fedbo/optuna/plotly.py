"""Pictures of studies, drawn with plotly, beside those of `optuna.visualization`.

They show what `fedbo.optuna.plots` shows, and each function gives a plotly `Figure`:
``plot_history(study).show()``. What a trial is can be read by pointing at it.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
from optuna.study import Study

from fedbo.optuna import curves
from fedbo.optuna.curves import COLOURS, ITSELF, PEER_COLOURS

try:
    from plotly.graph_objects import Figure, Scatter
    from plotly.subplots import make_subplots
except ImportError as error:
    raise ImportError(
        "These pictures need plotly, which fedbo does not bring along by itself: "
        "pip install plotly. With matplotlib installed, fedbo.optuna.plots draws the same."
    ) from error

_MARKERS = {"initial": "square", "own": "circle", "pool": "diamond", "peer": "triangle-up"}
_MARKERS |= {"told": "x", "pruned": "line-ns-open", "failed": "x-thin-open", "running": "circle"}
_GREY = "#666666"


def plot_history(study: Study, baseline: Study | None = None) -> Figure:
    """Draw the value of every trial by the source of its query, and the best one so far.

    ``baseline`` is a study of the same objective that was run alone: its best value so far is drawn
    too. Values that are infinite, or so far off that nothing else could be seen, are hollow at the
    edge. Trials without a value are above the picture.
    """
    drawn = curves.history(study, baseline)
    figure = _figure(drawn.title)
    if drawn.empty:
        return _say(figure, drawn.empty)
    figure.add_trace(_best(drawn.best, "best so far", "black", "solid"))
    if drawn.baseline is not None:
        figure.add_trace(_best(drawn.baseline, "best so far, alone", COLOURS["alone"], "dash"))
    size = 8 if len(drawn.best) <= curves.MANY else 5
    for dots in drawn.dots:
        symbols = [_MARKERS[dots.source] + ("" if here else "-open") for here in dots.inside]
        figure.add_scatter(
            x=dots.number.tolist(),
            y=dots.shown.tolist(),
            mode="markers",
            name=f"{dots.source} ({len(dots.number)})",
            marker={"symbol": symbols, "color": COLOURS[dots.source], "size": size},
            text=[html.escape(note) for note in dots.notes],
            hoverinfo="text",
            cliponaxis=False,
        )
    above = drawn.high + 0.04 * (drawn.high - drawn.low)
    for name, numbers in drawn.valueless.items():
        figure.add_scatter(
            x=numbers.tolist(),
            y=[above] * len(numbers),
            mode="markers",
            name=f"{name} ({len(numbers)})",
            marker={"symbol": _MARKERS[name], "color": _GREY, "size": 6},
            text=[f"trial {number}: {name}" for number in numbers],
            hoverinfo="text",
            cliponaxis=False,
        )
    if drawn.outside:  # a line of the legend alone
        label, look = f"far off, at the edge ({drawn.outside})", {"symbol": "circle-open"}
        look |= {"color": _GREY}
        figure.add_scatter(x=[None], y=[None], mode="markers", name=label, marker=look)
    _count_whole(figure, len(drawn.best), title_text="trial")
    figure.update_yaxes(
        title_text=html.escape(drawn.metric),
        range=[drawn.low, above if drawn.valueless else drawn.high],
    )
    return figure


def plot_peers(study: Study) -> Figure:
    """Draw how much the policy counted on each peer when it chose each trial.

    The weights of the peers are stacked; what is missing to 1 counted on the agent itself. Trials
    that weighed no peers are left white.
    """
    drawn = curves.peers(study)
    figure = _figure(drawn.title)
    if drawn.empty:
        return _say(figure, drawn.empty)
    rows = [*drawn.weights, 1.0 - drawn.weights.sum(axis=0)]
    names, colours = [*drawn.names, drawn.itself], [*PEER_COLOURS[: len(drawn.names)], ITSELF]
    for name, row, colour in zip(names, rows, colours, strict=True):
        there = np.flatnonzero(~np.isnan(row))
        figure.add_bar(
            x=there.tolist(),
            y=row[there].tolist(),
            name=html.escape(name),
            marker={"color": colour, "line": {"width": 0}},
            hovertemplate="trial %{x}: %{y:.1%}",
        )
    figure.update_layout(barmode="stack", bargap=0, legend_traceorder="reversed")
    white = len(there) < drawn.weights.shape[1]
    title = f"trial{' (white: it weighed no peers)' if white else ''}"
    n = drawn.weights.shape[1]
    _count_whole(figure, n, title_text=title, range=[-0.5, n - 0.5])
    figure.update_yaxes(title_text="weight", range=[0.0, 1.0], tickformat=".0%")
    return figure


def plot_together(studies: Sequence[Study], baselines: Sequence[Study]) -> Figure:
    """Draw the mean of several studies' best values so far, together and alone.

    ``studies`` are those that collaborated and ``baselines`` the same ones run alone; where there
    are as many of either, the n-th of one is compared to the n-th of the other. Bands are standard
    errors. Below is how much better together was.
    """
    drawn = curves.together(studies, baselines)
    if drawn.empty:
        return _say(_figure(drawn.title), drawn.empty)
    panels = make_subplots(rows=2, shared_xaxes=True, row_heights=[0.6, 0.4], vertical_spacing=0.05)
    figure = _figure(drawn.title, panels)
    for name, band, label, dash in (
        ("together", drawn.together, drawn.labels[0], "solid"),
        ("alone", drawn.alone, drawn.labels[1], "dash"),
    ):
        _add_band(figure, band, COLOURS[name], dash, label, row=1)
    _add_band(figure, drawn.gain, "#000000", "solid", "", row=2)
    figure.add_hline(0.0, line={"color": _GREY, "width": 1}, row=2)
    metric = html.escape(f"mean best {drawn.metric}")
    figure.update_yaxes(title_text=metric, range=drawn.ends, row=1)
    figure.update_yaxes(title_text="gain", range=drawn.gain_ends, row=2)
    _count_whole(figure, len(drawn.gain.mean), title_text="finished trials", row=2)
    return figure


def _figure(title: str, figure: Figure | None = None) -> Figure:
    figure = Figure() if figure is None else figure
    axis = {"showline": True, "linecolor": "black", "ticks": "outside", "zeroline": False}
    figure.update_layout(title_text=html.escape(title), plot_bgcolor="white", showlegend=True)
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    return figure


def _count_whole(figure: Figure, trials: int, **settings: Any) -> None:
    """Only whole numbers of trials, which plotly would not keep to where they are few."""
    figure.update_xaxes(dtick=1 if trials <= 8 else None, **settings)


def _say(figure: Figure, sentence: str) -> Figure:
    """For a picture without data."""
    words = html.escape(sentence).replace("\n", "<br>")
    figure.add_annotation(
        text=words, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font_color=_GREY
    )
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    return figure


def _best(values: curves.Floats, name: str, colour: str, dash: str) -> Any:
    return Scatter(
        x=list(range(len(values))),
        y=_drawable(values),
        mode="lines",
        name=name,
        line={"shape": "hv", "color": colour, "dash": dash},
    )


def _add_band(
    figure: Figure, band: curves.Band, colour: str, dash: str, name: str, row: int
) -> None:
    """A line, and its standard errors where it has any."""
    trials = np.arange(1, len(band.mean) + 1)
    there = np.isfinite(band.error)
    if there.any():
        around = np.concatenate([trials[there], trials[there][::-1]])
        edge = np.concatenate(
            [(band.mean + band.error)[there], (band.mean - band.error)[there][::-1]]
        )
        figure.add_scatter(
            x=around.tolist(),
            y=edge.tolist(),
            fill="toself",
            fillcolor=_pale(colour),
            line={"width": 0},
            hoverinfo="skip",
            showlegend=False,
            row=row,
            col=1,
        )
    figure.add_scatter(
        x=trials.tolist(),
        y=_drawable(band.mean),
        mode="lines" if np.isfinite(band.mean).sum() > 1 else "markers",
        name=name,
        showlegend=bool(name),
        line={"color": colour, "dash": dash},
        marker={"color": colour},
        row=row,
        col=1,
    )


def _drawable(values: curves.Floats) -> list[float | None]:
    """JSON has no NaN: None is a gap."""
    return [float(value) if np.isfinite(value) else None for value in values]


def _pale(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.18)"
