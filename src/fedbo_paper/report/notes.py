"""Sentences that explain what is seen in a chapter of the report, with figures of these runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedbo.table import Table
from fedbo_paper.experiments.published import Published, compare, compare_fields
from fedbo_paper.experiments.results import elapsed
from fedbo_paper.experiments.spec import PRESET_NAMES, REAL


def notes(
    runs: Table, worths: Sequence[tuple[str, str, Table]], published: Published | None
) -> dict[str, tuple[str, ...]]:
    """Paragraphs by chapter; a chapter about which there is nothing to say is left out."""
    said = {
        "fig1": tuple(_far_peers(runs)),
        "fig2": (*_few_messages(runs), *_coarse(runs)),
        "fig3": tuple(_run_times(runs)),
        "published": () if published is None else tuple(_met(runs, published)),
        "diagnostics": tuple(_worth(*one) for one in worths),
    }
    return {chapter: paragraphs for chapter, paragraphs in said.items() if paragraphs}


def _far_peers(runs: Table) -> Iterator[str]:
    """What a query is worth that follows a peer, near or far."""
    for preset, name in PRESET_NAMES.items():
        some = runs.where(experiment="synthetic", preset=preset)
        near, far = (some.where(source="peer", d_n=d_n, t_n=100)["score"] for d_n in (0.02, 1.2))
        first = some.where(source="initial", method="TS")["score"]
        if min(len(near), len(far), len(first)):
            yield (
                f"What a query scores on average that follows a peer with t_n = 100 ({name}): "
                f"{near.mean():.2f} if d_n = 0.02, {far.mean():.2f} if d_n = 1.2; a random first "
                f"point scores {first.mean():.2f}, and the maximum is 1. (d_n is added or "
                "subtracted by the toss of a coin at every single point, which averages out among "
                "neighbours: a far peer may still know a little.)"
            )


def _few_messages(runs: Table) -> Iterator[str]:
    """How often FTS has listened at all."""
    for preset, name in PRESET_NAMES.items():
        fts = _real(runs.where(method="FTS", preset=preset, every=0))
        if fts.height:
            followed = np.count_nonzero(fts["source"] == "peer") / len(_runs(fts))
            yield (
                f"In the {name} a run of FTS made {followed:.2f} of its "
                f"{int(fts['iteration'].max())} queries where a peer's message is largest, on "
                "average; all others are Thompson sampling, as TS makes them."
            )


def _coarse(runs: Table) -> Iterator[str]:
    """How coarse a validation error is."""
    for experiment, name, point in (("har", "mobile phones", 1 / 172), ("glass", "glasses", 0.01)):
        if experiment in runs["experiment"]:
            yield (
                f"One point for validation is {point:.4f} of an error ({name}): differences below "
                "that are less than one answer."
            )


def _run_times(runs: Table) -> Iterator[str]:
    """What 50 iterations take with and without evaluations."""
    columns = {name: runs[name] for name in runs.columns} | {"elapsed": elapsed(runs)}
    last = Table(columns).where(iteration=int(runs["iteration"].max()), every=0)
    spent = np.isin(last["M"], (0, 100)) & np.isin(last["experiment"], REAL)
    last = Table({name: last[name][spent] for name in last.columns})
    for experiment in REAL:
        for preset, name in PRESET_NAMES.items():
            some = last.where(experiment=experiment, preset=preset)
            means = {m: some.where(method=m)["elapsed"].mean() for m in np.unique(some["method"])}
            if {"FTS", "RGPE", "TAF"} <= {*means}:
                listed = ", ".join(f"{method} {means[method]:.2f} s" for method in sorted(means))
                yield (
                    f"A whole run with evaluations takes, on {experiment} with the {name} and "
                    f"M = 100: {listed}."
                )


def _met(runs: Table, published: Published) -> Iterator[str]:
    compared = compare(runs, published)
    if not compared.height:
        return
    met, errors = compared["met"], compared["standard_error"]
    yield (
        "Settings of the authors' code (DIRECT, probabilities of the SVM, their initial points). A "
        "pair is a field and a run; ours is the mean of its seeds. A difference is met if it is "
        f"within two standard errors: {np.count_nonzero(met)} of {len(met)} are. Differences of up "
        f"to {2 * errors.min():.3f} to {2 * errors.max():.3f} would pass. Ours score the initial "
        f"points anew: {_initial(runs, published)}."
    )
    by_field = compare_fields(runs, published)
    apart = by_field.where(met=False)
    yield (
        f"Field by field, {apart.height} of {by_field.height} differences are beyond two standard "
        f"errors (with five pairs each, about 12 % would be by chance): {_listed(apart)}."
    )
    yield from _APART


def _initial(runs: Table, published: Published) -> str:
    """How the best initial score differs from theirs."""
    ours = runs.where(experiment="published", method="TS", iteration=0)
    best: dict[tuple[int, int], list[float]] = {}
    columns = (ours[name].tolist() for name in ("target", "repeat", "seed", "best"))
    last = {(t, r, seed): value for t, r, seed, value in zip(*columns, strict=True)}
    for (field, run, _), value in last.items():
        best.setdefault((field, run), []).append(value)
    theirs = published.curves["TS"].runs
    differences = np.array([np.mean(some) - theirs[f][r][0] for (f, r), some in best.items()])
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    return f"the best of the three is {differences.mean():+.4f} ± {error:.4f} apart"


def _listed(apart: Table) -> str:
    columns = (
        apart[name].tolist()
        for name in ("method", "field", "iteration", "difference", "standard_error")
    )
    return ", ".join(
        f"{method} field {field} at {iteration}: {difference:+.3f} ± {error:.3f}"
        for method, field, iteration, difference, error in zip(*columns, strict=True)
    )


#: What was tried once, apart from these runs; docs/experiments.md has the table.
_APART = (
    "What was tried to explain them, apart from these runs (TS, fields 0 and 2, where single "
    "fields differed most, three seeds; ours less theirs at 50 iterations was +0.053 ± 0.009 and "
    "−0.011 ± 0.003): a whole search for hyper-parameters at every refit changes little "
    "(+0.044 ± 0.009, −0.013 ± 0.002); DIRECT without its local bias narrows both gaps "
    "(+0.038 ± 0.009, −0.009 ± 0.003), and a maximiser that finds the maximum halves them "
    "(+0.027 ± 0.012, −0.006 ± 0.002). So part of the differences is how well each side maximised; "
    "the rest is not explained.",
    "The published messages were built from mispaired data. Measured apart on targets 0 to 5, the "
    "query of such a message gains +0.017 ± 0.009 over a random point and that of a right one "
    "+0.007 ± 0.004: neither is worth much, and a run uses 0.9 of them. So this does not show.",
)


def _worth(experiment: str, preset: str, table: Table) -> str:
    mean = dict(zip(table["quantity"].tolist(), table["mean"].tolist(), strict=True))
    error = dict(zip(table["quantity"].tolist(), table["standard_error"].tolist(), strict=True))
    height = table.where(quantity="height")
    return (
        f"{experiment}, {PRESET_NAMES[preset]}, {height['targets'][0]} targets: where a peer's "
        f"message is largest the target scores {mean['message']:.3f} on average, at a random point "
        f"{mean['random']:.3f}, at the peer's best point, which would have to be shown, "
        f"{mean['best']:.3f}. The message's gain over a random point is "
        f"{mean['message_gain']:+.4f} ± {error['message_gain']:.4f}, that of the best point "
        f"{mean['best_gain']:+.4f} ± {error['best_gain']:.4f}. The function that a message draws "
        f"is {height['low'][0]:.1f} to {height['high'][0]:.1f} high at its maximum in nine of ten "
        f"cases, while the best score that went into it is {mean['highest']:.2f} "
        f"({_UNITS[preset]})."
    )


_UNITS = {
    "paper": "both in raw scores, errors with a minus",
    "default": "both in standardised scores",
}


def _real(runs: Table) -> Table:
    keep = np.isin(runs["experiment"], REAL)
    return Table({name: runs[name][keep] for name in runs.columns})


def _runs(runs: Table) -> set[tuple[object, ...]]:
    names = ("experiment", "M", "target", "repeat", "seed")
    return {*zip(*(runs[name].tolist() for name in names), strict=True)}
