"""Attack private releases: how well can somebody tell whether a member has contributed?

Two neighbouring federations differ in one member, the target, whose contribution is there or empty.
Both make many releases, with the samplers and the randomness of real ones. The attacker knows all
contributions and the noise, and tells releases apart by the likelihood ratio, the best test there
is.

=====================  ============================================================================
symbol                 meaning
=====================  ============================================================================
V, S                   votes (in 64ths) and sums (in steps) without noise; 0 and 1 are the
                       federations without and with the target
w, x                   votes and sums that were released
b, σ                   scale of the Laplace noise, standard deviation of the Gaussian noise
L                      Σ (|w − V₀| − |w − V₁|) / b + ((x − S₀)·Δ − ½ Δ·Δ) / σ², where Δ = S₁ − S₀
α, β                   how often the attacker is right and how often wrong when it says "there"
=====================  ============================================================================

If releases are (ε, δ)-private, α ≤ e^ε β + δ for every test. So ε ≥ log((α − δ) / β), and with
Clopper-Pearson bounds of α and β, each at 99.95 %, this is a lower bound of ε at 99.9 %. A quarter
of the releases chooses the threshold and the direction ("there" or "not there"); only the others
give the bound, so that it holds whatever was chosen.

The accountant's ε is the smallest upper bound that is known; the bound stays far below it, because
rare releases, which would show most, are too few to be counted. "Half noise" is what the attack
proves if both samplers give half of the noise that they are asked for: a fault that is put in here,
to show that the attack would find it. With so many releases, all of 100 simulated attacks did.

The target contributes as much as anybody can: a shape in the coordinates with second moments, which
is that of the others (aligned) or has nothing in common with it (orthogonal), and a vote for a cell
without votes. Of the other members, at most 3 have contributed: the attacker knows what they
contribute, so more of them would only cost time.

The command ends with status 1 if a bound exceeds the claimed ε, or if half of the noise is not
found. The latter may be bad luck, or the releases are too few.

    python benchmarks/attack/membership.py --json out.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

import fedbo
from fedbo.federation.calibration import STEP
from fedbo.federation.shared import Shared
from fedbo.privacy import Plan, Release, Source, epsilon, mechanisms, release
from fedbo.privacy.noise import SECRET
from fedbo.privacy.release import STEPS

Floats = NDArray[np.float64]
Sampler = Callable[..., NDArray[np.int64]]

CONFIDENCE = 0.999
OTHERS = 3  # members beside the target that have contributed, at most
CANDIDATES = 300  # thresholds that are tried
SMOOTH = 9  # neighbouring thresholds that are averaged, so that luck decides less
SAMPLERS = ("discrete_laplace", "discrete_gaussian")
RELEASE = import_module("fedbo.privacy.release")  # `fedbo.privacy.release` is the function

X = fedbo.Float(0.0, 1.0)
SPACES: dict[str, fedbo.Space] = {
    "line": fedbo.Space({"x": X}),
    "square": fedbo.Space({"x": X, "y": X}),
    "mixed": fedbo.Space({"x": X, "kind": fedbo.Categorical(["a", "b", "c"])}),
    "listed": fedbo.Space(
        {"x": X, "y": X}, points=[{"x": i / 5, "y": j / 5} for i in range(6) for j in range(6)]
    ),
}


class Configuration(NamedTuple):
    """What is attacked."""

    space: str
    members: int
    epsilon: float
    delta: float
    target: str  # "aligned" or "orthogonal"


CONFIGURATIONS = (
    Configuration("line", 10, 2.0, 1e-3, "orthogonal"),
    Configuration("mixed", 28, 1.0, 1e-3, "aligned"),
    Configuration("square", 49, 2.0, 1e-4, "orthogonal"),
    Configuration("listed", 28, 4.0, 1e-3, "aligned"),
    Configuration("line", 1000, 1.5, 1e-4, "orthogonal"),
)


# Releases


class Attacked:
    """A federation with its target, and without it."""

    def __init__(self, what: Configuration, source: Source) -> None:
        self.what, self.source = what, source
        plan = Plan(epsilon=what.epsilon, delta=what.delta)
        self.federation = fedbo.Federation(SPACES[what.space], privacy=plan)
        last = len(Shared.of(self.federation).cells) - 1
        target = self.contribution("target", last, int(what.target == "orthogonal"))
        present = min(OTHERS, what.members - 1)
        empty = [None] * (what.members - 1 - present)
        others = [*(self.contribution(f"other-{i}", 0, 0) for i in range(present)), *empty]
        self.worlds = ([*others, None], [*others, target])
        with samplers(lambda sampler: nothing):
            self.quiet = [self.publish(present) for present in (False, True)]

    def contribution(self, sender: str, cell: int, coordinate: int) -> fedbo.Message:
        """Return a vote for a cell, and a shape that is one coordinate."""
        return fedbo.Message.of_contribution(
            np.eye(Shared.of(self.federation).shape_coordinates)[coordinate],
            cell,
            basis=Shared.of(self.federation).basis.digest,
            fingerprint=self.federation.fingerprint,
            sender=sender,
            sequence=10,
            t_n=10,
        )

    def publish(self, present: bool) -> Release:
        trials, world = 10 * self.what.members, self.worlds[present]
        return release(self.federation, world, trials=trials, source=self.source)

    def ratios(self, releases: int, share: float) -> tuple[Floats, Floats]:
        """Return L of many releases without and with the target, with a share of the noise."""
        V, S = (
            np.array([getattr(made, name) for made in self.quiet], dtype=float)
            for name in ("votes", "sums")
        )
        b = share * self.quiet[0].votes_scale * STEPS
        variance = (share * self.quiet[0].sums_deviation / STEP) ** 2
        change = S[1] - S[0]

        def ratio(made: Release) -> float:
            w, x = np.array(made.votes), np.array(made.sums)
            votes = (np.abs(w - V[0]) - np.abs(w - V[1])).sum() / b
            return float(votes + ((x - S[0]) - change / 2) @ change / variance)

        with samplers(lambda sampler: scaled(sampler, share)):
            without, present = (
                np.array([ratio(self.publish(is_there)) for _ in range(releases)])
                for is_there in (False, True)
            )
        return without, present


@contextmanager
def samplers(replaced: Callable[[Sampler], Sampler]) -> Iterator[None]:
    """Replace the samplers that releases use."""
    new = {name: replaced(getattr(RELEASE, name)) for name in SAMPLERS}
    with mock.patch.multiple(RELEASE, **new):
        yield


def nothing(parameter: Fraction, size: int, *, source: Source) -> NDArray[np.int64]:
    """Draw no noise: the attacker computes what it knows."""
    return np.zeros(size, dtype=np.int64)


def scaled(sampler: Sampler, share: float) -> Sampler:
    """Return the sampler itself, or one that gives a share of the noise."""
    if share == 1.0:
        return sampler
    power = 1 if sampler.__name__ == "discrete_laplace" else 2  # a scale, or a variance

    def less(parameter: Fraction, size: int, *, source: Source) -> NDArray[np.int64]:
        return sampler(parameter * Fraction(share) ** power, size, source=source)

    return less


# Bounds


def lower_bound(without: Floats, present: Floats, delta: float) -> float:
    """Return a lower bound of ε, from L of as many releases without and with the target."""
    first = len(without) // 4
    chosen = [
        (*best_threshold(right[:first], wrong[:first], delta), right[first:], wrong[first:])
        for right, wrong in ((present, without), (-without, -present))
    ]
    _, threshold, right, wrong = max(chosen, key=lambda each: each[0])
    hits, n = np.array([(right >= threshold).sum()]), len(right)
    return float(proven(hits, np.array([(wrong >= threshold).sum()]), n, delta)[0])


def best_threshold(right: Floats, wrong: Floats, delta: float) -> tuple[float, float]:
    """Return the best bound of ε that a threshold promises, and this threshold."""
    thresholds = np.quantile(right, np.linspace(0.005, 0.995, CANDIDATES))
    hits, alarms = (
        len(each) - np.searchsorted(np.sort(each), thresholds) for each in (right, wrong)
    )
    bounds = proven(hits, alarms, len(right), delta)
    smooth = np.convolve(bounds, np.ones(SMOOTH) / SMOOTH, "valid")
    best = int(smooth.argmax())
    return float(smooth[best]), float(thresholds[best + SMOOTH // 2])


def proven(hits: NDArray[Any], alarms: NDArray[Any], n: int, delta: float) -> Floats:
    """Return log((α − δ) / β), at least 0, with Clopper-Pearson bounds of α and β.

    The attacker was right ``hits`` times, and wrong ``alarms`` times, each of n.
    """
    error = (1.0 - CONFIDENCE) / 2
    alpha = np.where(hits > 0, beta.ppf(error, np.maximum(hits, 1), n - hits + 1), 0.0)
    most = np.where(alarms < n, beta.isf(error, alarms + 1, np.maximum(n - alarms, 1)), 1.0)
    bounds: Floats = np.log(np.maximum((alpha - delta) / most, 1.0))
    return bounds


# The command


def audit(what: Configuration, releases: int, source: Source = SECRET) -> dict[str, Any]:
    """Attack one configuration, with all of the noise and with half of it."""
    attacked = Attacked(what, source)
    bounds = [lower_bound(*attacked.ratios(releases, share), what.delta) for share in (1.0, 0.5)]
    return {
        **what._asdict(),
        "accounted": epsilon(mechanisms(attacked.quiet[0]), what.delta),
        "bound": bounds[0],
        "half noise": bounds[1],
        "holds": bounds[0] <= what.epsilon,
        "fault is found": bounds[1] > what.epsilon,
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    text = "releases with the target, as many without, and the same with half noise; default: 8,000"
    parser.add_argument("--releases", type=int, default=8000, metavar="N", help=text)
    text = "only the first K configurations; default: all 5"
    parser.add_argument("--first", type=int, metavar="K", help=text)
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the figures there")
    options = parser.parse_args()
    results = []
    for what in CONFIGURATIONS[: options.first]:
        results.append(audit(what, options.releases))
        cells = (
            f"{value:.3g}" if isinstance(value, float) else str(value)
            for value in results[-1].values()
        )
        print("  ".join(f"{key} {cell:7}" for key, cell in zip(results[-1], cells, strict=True)))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    holds = all(row["holds"] and row["fault is found"] for row in results)
    print("everything holds" if holds else "NOT EVERYTHING HOLDS")
    if not holds:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
