"""Draws a figure with plotly."""

from __future__ import annotations

import html

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fedbo.optuna.plots.figure import GREY, Bars, Figure, Line, Panel, Points

_AXIS = {"showline": True, "linecolor": "black", "ticks": "outside", "zeroline": False}
_FEW = 8  # trials: plotly would put ticks between them


def draw(described: Figure) -> go.Figure:
    """Draw a figure."""
    heights = [panel.height for panel in described.panels] or [1.0]
    figure = make_subplots(
        rows=len(heights), shared_xaxes=True, row_heights=heights, vertical_spacing=0.05
    )
    title = html.escape(described.title)
    figure.update_layout(title_text=title, plot_bgcolor="white", showlegend=True)
    figure.update_xaxes(**_AXIS, visible=not described.empty)
    figure.update_yaxes(**_AXIS, visible=not described.empty)
    if described.empty:
        paper = {"xref": "paper", "yref": "paper", "showarrow": False, "font_color": GREY}
        figure.add_annotation(text=html.escape(described.empty), x=0.5, y=0.5, **paper)
    for row, panel in enumerate(described.panels, 1):
        _draw_panel(figure, panel, row)
    return figure


def _draw_panel(figure: go.Figure, panel: Panel, row: int) -> None:
    for mark in panel.marks:
        if isinstance(mark, Line):
            traces = [*_band(mark), _line(mark)]
        elif isinstance(mark, Bars):
            traces = [_bars(mark)]
            figure.update_layout(barmode="stack", bargap=0, legend_traceorder="reversed")
        else:
            traces = [_points(mark)]
        for trace in traces:
            figure.add_trace(trace, row=row, col=1)
    if panel.has_zero:
        figure.add_hline(0.0, line={"color": GREY, "width": 1}, row=row)
    step = 1 if panel.xlim[1] <= _FEW else None
    figure.update_xaxes(title_text=panel.xlabel, dtick=step, range=panel.xlim, row=row)
    figure.update_yaxes(
        title_text=html.escape(panel.ylabel),
        range=panel.ylim,
        tickformat=".0%" if panel.is_percent else None,
        row=row,
    )


def _line(line: Line) -> go.Scatter:
    dash = "dash" if line.is_dashed else "solid"
    shape = "hv" if line.is_stepped else "linear"
    return go.Scatter(
        x=line.x.tolist(),
        y=[float(y) if np.isfinite(y) else None for y in line.y],  # JSON has no NaN
        mode="markers" if line.is_one_point else "lines",
        name=html.escape(line.name),
        showlegend=bool(line.name),
        line={"color": line.colour, "dash": dash, "shape": shape},
        marker={"color": line.colour},
    )


def _band(line: Line) -> list[go.Scatter]:
    """The standard errors around a line, if it has any."""
    if line.error is None or not np.isfinite(line.error).any():
        return []
    drawn = np.isfinite(line.error)
    x, y, error = line.x[drawn], line.y[drawn], line.error[drawn]
    red, green, blue = (int(line.colour[i : i + 2], 16) for i in (1, 3, 5))
    return [
        go.Scatter(
            x=[*x, *x[::-1]],
            y=[*(y + error), *(y - error)[::-1]],
            fill="toself",
            fillcolor=f"rgba({red}, {green}, {blue}, 0.18)",
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            showlegend=False,
        )
    ]


def _bars(bars: Bars) -> go.Bar:
    trials = np.flatnonzero(np.isfinite(bars.high))
    return go.Bar(
        x=trials.tolist(),
        y=(bars.high - bars.low)[trials].tolist(),
        name=html.escape(bars.name),
        marker={"color": bars.colour, "line": {"width": 0}},
        hovertemplate="trial %{x}: %{y:.1%}",
    )


def _points(points: Points) -> go.Scatter:
    return go.Scatter(
        x=points.x.tolist(),
        y=points.y.tolist(),
        mode="markers",
        name=html.escape(points.name),
        marker={
            "symbol": [points.symbol + ("-open" if hollow else "") for hollow in points.is_hollow],
            "color": points.colour,
            "size": 8,
        },
        text=[*map(html.escape, points.notes)],
        hoverinfo="text",
        cliponaxis=False,
    )
