"""Sentences that explain what is seen in a chapter of the report, with figures of these runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedbo.experiments.paper.published import Published, compare, compare_fields
from fedbo.table import Table

_PRESETS = {"paper": "paper preset", "default": "default preset"}


def notes(
    runs: Table, worths: Sequence[tuple[str, str, Table]], published: Published | None
) -> dict[str, tuple[str, ...]]:
    """Paragraphs by chapter; a chapter about which there is nothing to say is left out."""
    said = {
        "fig1": tuple(_far_peers(runs)),
        "fig2": tuple(_few_messages(runs)) + tuple(_saturated(runs)),
        "published": () if published is None else tuple(_met(runs, published)),
        "diagnostics": tuple(_worth(*one) for one in worths),
    }
    return {chapter: paragraphs for chapter, paragraphs in said.items() if paragraphs}


def _far_peers(runs: Table) -> Iterator[str]:
    """Why peers that are far away hardly hurt."""
    synthetic = runs.where(experiment="synthetic", preset="paper")
    near, far = (synthetic.where(source="peer", d_n=d_n, t_n=100)["score"] for d_n in (0.02, 1.2))
    first = synthetic.where(source="initial", method="TS")["score"]
    if min(len(near), len(far), len(first)):
        yield (
            "Peers that are far away are not useless in this recipe: d_n is added or subtracted by "
            "the toss of a coin at every single point, which averages out among neighbours. The "
            f"mean score of a query that followed a peer with d_n = 1.2 is {far.mean():.2f}, of "
            f"one with d_n = 0.02 {near.mean():.2f}, of a random first point {first.mean():.2f} "
            "(the maximum is 1). So there is little to be robust against."
        )


def _few_messages(runs: Table) -> Iterator[str]:
    """How often FTS has listened at all."""
    for preset, name in _PRESETS.items():
        fts = runs.where(method="FTS", preset=preset, every=0)
        fts = _real(fts)
        if len(fts):
            count = len(_runs(fts))
            followed = int(np.count_nonzero(fts["source"] == "peer"))
            yield (
                f"In the {name} a run of FTS followed a peer in {followed / count:.1f} of its "
                "queries on average; all others are Thompson sampling, as TS makes them."
            )


def _saturated(runs: Table) -> Iterator[str]:
    """What is left to gain on HAR."""
    for preset, name in _PRESETS.items():
        alone = runs.where(experiment="har", preset=preset, method="TS")
        if len(alone):
            last = alone.where(iteration=int(alone["iteration"].max()))["best"]
            yield (
                f"On the mobile phone data TS alone ({name}) ends with a validation error of "
                f"{last.mean():.4f}; in {np.mean(last < 0.007):.0%} of its runs that is at most "
                "one wrong point. Nothing can be much better there, so what the methods differ in "
                "shows in how soon they get there."
            )


def _met(runs: Table, published: Published) -> Iterator[str]:
    compared = compare(runs, published)
    if not len(compared):
        return
    met = compared["met"]
    by_field = compare_fields(runs, published)
    apart = int(np.count_nonzero(~by_field["met"]))
    yield (
        "Settings of the authors' code (DIRECT, probabilities of the SVM, their initial points). A "
        "pair is a field and a run; ours is the mean of its seeds. A difference is met if it is "
        f"within two standard errors: {np.count_nonzero(met)} of {len(met)} are. This is a weak "
        "test, for the standard errors allow differences of about 0.01 to 0.016."
    )
    yield (
        f"Single fields differ, both ways: {apart} of {len(by_field)} cells of the second table "
        "are beyond two standard errors, where about 12 % would be by chance (five pairs each). "
        "What was tried on the fields where TS differs most (field 0, where ours is 0.053 ± 0.009 "
        "ahead at 50 iterations, and field 2, where it is 0.011 ± 0.003 behind; the same three "
        "seeds): a whole search for hyper-parameters at every refit changes little (0.044 ± 0.009 "
        "and −0.013 ± 0.002); DIRECT without its local bias narrows the gaps (0.038 ± 0.009 and "
        "−0.009 ± 0.003), and a maximiser that finds the maximum halves them (0.027 ± 0.012 and "
        "−0.006 ± 0.002). So part of it is how well each side maximised; the rest is not "
        "explained. At the initial points the two agree: best AUC +0.0006 ± 0.0012."
    )
    yield (
        "The published messages were built from mispaired data (each query was logged twice). That "
        "does not show in the results: a run uses 0.9 messages on average, and a mispaired one is "
        "worth no less than a right one, for neither is worth much."
    )


def _worth(experiment: str, preset: str, table: Table) -> str:
    mean = dict(zip(table["quantity"].tolist(), table["mean"].tolist(), strict=True))
    error = dict(zip(table["quantity"].tolist(), table["standard_error"].tolist(), strict=True))
    height = table.where(quantity="height")
    return (
        f"{experiment}, {_PRESETS[preset]}: where a peer's message is largest the target scores "
        f"{mean['message']:.3f} on average, at a random point {mean['random']:.3f}, at the peer's "
        f"best point, which would have to be shown, {mean['best']:.3f}. The message's gain over a "
        f"random point is {mean['message_gain']:+.4f} ± {error['message_gain']:.4f}, that of the "
        f"best point {mean['best_gain']:+.4f} ± {error['best_gain']:.4f}. The function that a "
        f"message draws is {height['low'][0]:.1f} to {height['high'][0]:.1f} high at its maximum "
        f"in nine of ten cases, while the best score that went into it is {mean['highest']:.2f}."
    )


def _real(runs: Table) -> Table:
    keep = np.isin(runs["experiment"], ("landmine", "har", "glass"))
    return Table({name: runs[name][keep] for name in runs.columns})


def _runs(runs: Table) -> set[tuple[object, ...]]:
    names = ("experiment", "M", "target", "repeat", "seed")
    return {*zip(*(runs[name].tolist() for name in names), strict=True)}
