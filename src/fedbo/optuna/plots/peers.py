"""How much the policy relied on each peer when it chose the trials of a study."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from optuna.study import Study

from fedbo.optuna.plots.figure import Bars, Figure, Panel, begun_trials, shorten, titled
from fedbo.optuna.study import read_origin
from fedbo.policy import Origin

_NAMED = 8  # peers with a name and a colour; a trial does not store more of them
_COLOURS = (  # Tol's muted scheme, made for areas; the last is for all other peers
    *("#332288", "#88CCEE", "#CC6677", "#117733", "#DDCC77", "#882255", "#44AA99", "#999933"),
    "#AAAAAA",
)
_ITSELF = "#ECECEC"


def peers(study: Study) -> Figure:
    """Stack the trust in each peer, largest first; peers without a colour are one bar."""
    origins = [read_origin(trial) for trial in begun_trials(study)]
    trust = [{} if origin is None else origin.trust for origin in origins]
    total: dict[str, float] = {}
    for shares in trust:
        total |= {name: total.get(name, 0.0) + share for name, share in shares.items()}
    ranked = sorted(total, key=lambda name: (-total[name], name))
    title, size = titled(study, "how much it relied on each peer"), (7.5, 3.8)
    if not ranked:
        return Figure(title=title, size=size, empty=_why_empty(origins))
    named, rest = ranked[:_NAMED], ranked[_NAMED:]
    groups = [[name] for name in named] + ([rest] if rest else [])
    labels = [shorten(name) for name in named]
    labels += ["1 other" if len(rest) == 1 else f"{len(rest)} others"] if rest else []
    ground = np.array([0.0 if shares else math.nan for shares in trust])
    rows = [[sum(shares.get(name, 0.0) for name in names) for shares in trust] for names in groups]
    tops = np.vstack([ground, ground + np.cumsum(rows, axis=0), ground + 1.0])
    is_full = any(len(shares) >= _NAMED for shares in trust)
    labels.append("itself, and peers not named" if is_full else "itself")
    colours = [*_COLOURS[: len(groups)], _ITSELF]
    gaps = " (white: it used no peers)" if np.isnan(ground).any() else ""
    panel = Panel(
        marks=[
            Bars(name=label, low=low, high=high, colour=colour)
            for label, low, high, colour in zip(labels, tops, tops[1:], colours, strict=False)
        ],
        xlabel=f"trial{gaps}",
        ylabel="trust",
        xlim=(-0.5, len(trust) - 0.5),
        ylim=(0.0, 1.0),
        is_percent=True,
    )
    return Figure(title=title, size=size, panels=[panel])


def _why_empty(origins: Sequence[Origin | None]) -> str:
    if not origins:
        return "There is no trial yet."
    if not any(origins):
        return "No trial was asked for by a FederatedSampler."
    return (
        "No trial says how much it relied on peers:\n"
        "there was no message yet, or the policy does not rate peers."
    )
