"""Measured cumulative regret beside the bound of Theorem 1: python examples/regret_bound.py OUT.png

Functions in the RKHS ball of norm B on 100 points, similar and opposed peers, and the two bounds of
`fedbo_paper.theory`. The bounds hold, and are far above what is measured: see docs/lab/theory.md.
"""

import sys

import numpy as np
from matplotlib.figure import Figure

import fedbo
from fedbo.insight.colours import COLOURS
from fedbo.model.kernel import SE, squared_distances
from fedbo_paper import theory

T, N, B, NOISE = 30, 10, 2.0, 0.05
POINTS = np.linspace(0, 1, 100)[:, None]
K = SE().value(squared_distances(POINTS, POINTS, np.array([0.1])))
SPACE = fedbo.Space({"x": fedbo.Float(0, 1)}, points=[{"x": float(x)} for x in POINTS[:, 0]])
FEDERATION = fedbo.Federation(SPACE, length_scale=0.1, noise_variance=0.1, kind="weights")
SCHEDULE = fedbo.Power(0.5)


def draw(tables: dict, bounds: dict, path: str) -> None:
    """Mean cumulative regret with one standard error, below its bounds, on a log scale."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for (name, runs), colour in zip(tables.items(), COLOURS, strict=False):
        curves = np.array([run["cumulative_regret"][run["iteration"] > 0] for run in runs])
        mean = curves.mean(axis=0)
        error = curves.std(axis=0, ddof=1) / np.sqrt(len(curves))
        t = np.arange(1, len(mean) + 1)
        axes.plot(t, mean, color=colour, label=name)
        axes.fill_between(t, mean - error, mean + error, color=colour, alpha=0.25, linewidth=0)
    for (name, bound), style in zip(bounds.items(), ("--", ":", "-."), strict=False):
        values = np.asarray(bound)
        axes.plot(np.arange(1, len(values) + 1), values, style, color="black", label=name)
    axes.set(xlabel="iteration T", ylabel="cumulative regret R_T", yscale="log")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, dpi=150)


def function(rng: np.random.Generator) -> np.ndarray:
    """A random function of RKHS norm B, at all points."""
    a = rng.standard_normal(len(POINTS))
    return K @ a * (B / np.sqrt(a @ K @ a))


def run(seed: int, sign: float) -> fedbo.Table:
    """One target, and N peers that know its function times ``sign``."""
    rng = np.random.default_rng(seed)
    f = function(rng)
    value = dict(zip(map(str, SPACE.listed), f, strict=True))

    def noisy(params: dict) -> float:
        return value[str(params)] + np.sqrt(NOISE) * rng.standard_normal()

    parties = [
        fedbo.Party(
            agent=fedbo.Agent(FEDERATION, fedbo.FTS(schedule=SCHEDULE), name="target", seed=seed),
            objective=noisy,
            truth=lambda params: value[str(params)],
            optimum=f.max(),
        )
    ]
    for n in range(N):
        peer = fedbo.Agent(FEDERATION, name=f"peer-{n}", seed=n)
        for i in rng.integers(len(POINTS), size=15):
            peer.tell(SPACE.listed[i], sign * noisy(SPACE.listed[i]))
        parties.append(fedbo.Party(agent=peer))
    return fedbo.simulate(parties, T)


setting = theory.Setting.from_kernel(
    K,
    T,
    B=B,
    noise_variance=NOISE,
    t_n=(15,) * N,
    d_n=(2 * B,) * N,
    epsilon=theory.epsilon(FEDERATION.phi, POINTS, K),
)
runs = {
    "similar peers": [run(seed, 1.0) for seed in range(5)],
    "opposed peers": [run(seed, -1.0) for seed in range(5)],
}
bounds = {
    "Theorem 1": theory.bound(SCHEDULE, T, setting),
    "without peers' details": theory.robust_bound(SCHEDULE, T, setting),
}
draw(runs, bounds, sys.argv[1] if len(sys.argv) > 1 else "regret_bound.png")
print(theory.check(SCHEDULE, T, setting))
for name, tables in runs.items():
    print(f"{name}: R_{T} = {np.mean([t['cumulative_regret'][-1] for t in tables]):.1f}")
for name, bound in bounds.items():
    print(f"{name}: R_{T} <= {bound[-1]:.3g}")
