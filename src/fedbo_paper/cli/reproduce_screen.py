"""What ``fedbo reproduce`` shows in a terminal: its progress, and the verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import TaskID
from rich.table import Table
from rich.text import Text

from fedbo.table import Table as Columns
from fedbo_paper.cli.where import Where
from fedbo_paper.dp import reproduce as dp
from fedbo_paper.dp.comparison import CURVES, Comparison
from fedbo_paper.experiments import keys, runner
from fedbo_paper.experiments.claims import Finding
from fedbo_paper.experiments.spec import PRESETS, Selection
from fedbo_paper.harness import screen, workers
from fedbo_paper.report.contents import selected
from fedbo_paper.reproduce import Outcome, left_out, reproduce

_COLOURS = {"holds": "green", "does not hold": "red", "not decided": "yellow"}


def run(
    console: Console,
    selections: Sequence[Selection],
    out: Path,
    data: Path | None,
    where: Where,
) -> Outcome | None:
    """Run with a progress bar; return None after Ctrl-C, which loses no finished job."""
    missing = left_out(selections, data)
    for why in missing.values():
        console.print(Text(f"Skipped: {why}", style="yellow"))
    there = [one for one in selections if one.experiment not in missing]
    problems = list(dict.fromkeys(one.spec.problem for one in there))
    describe = partial(keys.describe, problems, data)
    return _run(console, where, describe, partial(reproduce, selections, out, data=data))


def compare(
    console: Console, comparison: Comparison, out: Path, data: Path | None, where: Where
) -> dp.Outcome | None:
    """Compare with a progress bar; return None after Ctrl-C, which loses no finished run."""
    describe = partial(keys.describe, [comparison.problem], data, dp.SOURCE)
    return _run(console, where, describe, partial(dp.reproduce, comparison, out, data=data))


T = TypeVar("T")


def _run(
    console: Console, where: Where, describe: Callable[[], dict[str, str]], work: Callable[..., T]
) -> T | None:
    try:
        with where.workers(console, describe) as jobs, _watching(console) as progress:
            return work(jobs=jobs, progress=progress)
    except KeyboardInterrupt:
        workers.stop()
        console.print("Stopped. Finished work is kept: run the same command to resume.")
        return None


@contextmanager
def _watching(console: Console) -> Iterator[runner.Progress]:
    """A bar for each stage."""
    bars = screen.bars(console)
    stages: dict[str, TaskID] = {}

    def show(stage: str, done: int, of: int) -> None:
        if of and stage not in stages:
            stages[stage] = bars.add_task(stage, total=of, completed=done)
        elif of:
            bars.update(stages[stage], completed=done)

    with bars:
        yield show


def report(console: Console, outcome: Outcome, selections: Sequence[Selection]) -> None:
    """Print the verdicts that were asked for, and where the report is."""
    findings = [finding for finding in outcome.findings if selected(finding, selections)]
    if findings:
        console.print(_verdicts(findings))
    console.print(
        f"{outcome.runs.height:,} trials, digest {outcome.digest} (of everything but CPU times: "
        "the same command gives the same digest)."
    )
    console.print(f"The report is in {outcome.folder / 'report.html'}.", soft_wrap=True)


def _verdicts(findings: Sequence[Finding]) -> Table:
    """Our own verdicts; effects and intervals are in the report."""
    table = screen.table()
    for name in ("figure", "data", "preset", "verdict", "claim"):
        table.add_column(name, no_wrap=name != "claim")
    for finding in findings:
        if finding.preset in PRESETS:
            verdict = Text(finding.verdict, style=_COLOURS[finding.verdict])
            about = (finding.figure, finding.experiment, finding.preset)
            table.add_row(*about, verdict, finding.claim)
    return table


def report_comparison(console: Console, outcome: dp.Outcome, out: Path) -> None:
    """Print the last round of the comparison, what one release gained, and where the files are."""
    summary = outcome.summary
    last = summary.where(round=int(summary["round"].max()))
    title = f"1 − AUC after round {last['round'][0]}, mean of all fields ± half its 95 % interval"
    table = screen.table("method", "ε", "1 − AUC", "less TS", "published", title=title)
    labels = {curve.method.name: curve.label for curve in CURVES}
    for i, method in enumerate(last["method"].tolist()):
        at = {name: column[i] for name, column in last.items()}
        reach = at["difference_high"] - at["difference"]
        table.add_row(
            *(labels[method], _epsilon(at["epsilon"], at["published_epsilon"])),
            f"{at['loss']:.4f} ± {at['high'] - at['loss']:.4f}",
            f"{at['difference']:+.4f} ± {reach:.4f}" if i else "",
            "" if math.isnan(at["published"]) else f"{at['published']:.4f}",
        )
    console.print(table)
    console.print(_gains(outcome.pairs))
    console.print("ε is ours by privacy loss distributions; published ones are in brackets.")
    console.print(f"{last['seeds'][0]} seeds. The figure is in {out / 'dp.png'}.", soft_wrap=True)


def _gains(pairs: Columns) -> Table:
    """One release less what it is judged against, at a few rounds."""
    rounds = [t for t in (5, 20) if t in pairs["round"]] + [int(pairs["round"].max())]
    title = "Paired differences of 1 − AUC; below 0, the first method is better"
    table = screen.table("methods", *(f"after round {t}" for t in rounds), title=title)
    at = {(row[0], row[1], row[2]): row[4:] for row in zip(*pairs.values(), strict=True)}
    for method, against in dict.fromkeys((method, against) for method, against, _ in at):
        effects = [at[method, against, t] for t in rounds]
        cells = [f"{value:+.4f} ± {high - value:.4f}" for value, _, high in effects]
        table.add_row(f"{method} less {against}", *cells)
    return table


def _epsilon(epsilon: float, published: float) -> str:
    """The accounted ε at the publication's δ, and the published one in brackets."""
    ours = "∞" if math.isinf(epsilon) else f"{epsilon:.2f}"
    return ours if math.isnan(published) else f"{ours} ({published:g})"
