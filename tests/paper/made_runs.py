"""Made-up runs in the shape of the tidy table: no computing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from fedbo.table import Cell, Table

COLUMNS = (
    *("experiment", "preset", "method", "M", "N", "t_n", "d_n", "power", "every"),
    *("target", "repeat", "seed", "iteration", "source"),
    *("best", "simple_regret", "cumulative_regret"),
    *("parameters_received", "seconds_evaluation", "seconds"),
)
EXPERIMENTS = ("synthetic", "landmine", "glass", "har", "agents", "published")
Rows = list[tuple[Cell, ...]]
Level = Callable[[int, int], float]  # of (target, repeat)

nan = math.nan


def arm(
    method: str,
    level: float | Level,
    *,
    experiment: str = "landmine",
    preset: str = "paper",
    M: int = 100,
    N: int = 28,
    t_n: int = 50,
    d_n: float = nan,
    power: float = nan,
    every: int = 0,
    parameters: float | None = None,
    seconds: float = 0.01,
    targets: int = 6,
    repeats: int = 5,
    iterations: int = 50,
    later: float = 0.0,
) -> Rows:
    """Rows of an arm whose runs have ``level`` at every iteration, as score and as regret.

    From iteration 30 on, ``later`` is added. FTS follows a peer in iteration 1.
    """
    if method == "TS":
        M = N = t_n = 0
    squares = 0 if method in ("TS", "FTS") else M * (M + 1) // 2 + 1
    length = M + squares if parameters is None else parameters
    known = experiment == "synthetic"
    rows: Rows = []
    for target in range(targets):
        for repeat in range(repeats):
            # seconds differ a little, or their intervals would have no width
            taken = seconds * (1 + 1e-3 * (repeat * (1 + len(method)) * (1 + N) % 7))
            value = float(level(target, repeat) if callable(level) else level)
            label = (experiment, preset, method, M, N, t_n, d_n, power, every, target, repeat, 0)
            for iteration in (0, 0, *range(1, iterations + 1)):
                now = value + later * (iteration >= 30)
                regret = (now, value * iteration) if known else (nan, nan)
                received = N * length if iteration else 0.0
                source = "peer" if method == "FTS" and iteration == 1 else "own"
                spent = float(received), 0.01, taken
                rows.append((*label, iteration, source, now, *regret, *spent))
    return rows


def table(*arms: Iterable[tuple[Cell, ...]]) -> Table:
    return Table.from_rows(COLUMNS, [row for rows in arms for row in rows])


def of_all(experiments: Sequence[str] = EXPERIMENTS, iterations: int = 8) -> Table:
    """Return runs of every arm that the figures show, with both presets."""
    rows: Rows = []
    for experiment in experiments:
        for preset in ("paper", "default") if experiment != "published" else ("paper",):

            def add(method: str, **settings: float) -> None:
                made = {"experiment": experiment, "preset": preset, "iterations": iterations}  # noqa: B023
                made |= {"repeats": 2, "targets": 1 if experiment == "agents" else 6}  # noqa: B023
                rows.extend(arm(method, 0.3 + len(rows) % 7 / 20, **made | settings))  # type: ignore[arg-type]

            add("TS")
            if experiment == "synthetic":
                for M, t_n in ((25, 40), (100, 40), (25, 100), (100, 100)):
                    add("FTS", M=M, t_n=t_n, d_n=0.02, power=0.5)
                for t_n in (40, 100):
                    add("FTS", t_n=t_n, d_n=0.02, power=0.5, every=1)
                    for power in (0.5, 2.0):
                        add("FTS", t_n=t_n, d_n=1.2, power=power)
            elif experiment == "published":
                for method in ("FTS", "RGPE", "TAF"):
                    for M in (50, 100, 150, 200):
                        add(method, M=M)
            else:
                for method in ("FTS", "RGPE", "TAF"):
                    for M in (50, 100, 150, 200) if experiment != "agents" else ():
                        add(method, M=M)
                    for N in (7, 28, 1000) if experiment == "agents" else ():
                        add(method, N=N)
                add("FTS", every=1, seconds=nan)
    return table(rows)
