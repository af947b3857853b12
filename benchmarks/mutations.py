"""Change what the paper defines, one place at a time, and see which test notices.

``python benchmarks/mutations.py`` copies the repository's files to a temporary folder, makes each
of `MUTATIONS` there, and runs tests of ``make test`` until one fails. It prints a table and ends
with exit code 1 if a mutation survives. Arguments, if there are any, select mutations by a part of
their name.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
#: Tests of ``make test``, the quickest first.
TESTS = (
    *("paper/test_preset.py", "policy/test_fts.py", "policy/test_rgpe.py", "policy/test_taf.py"),
    *("policy/test_schedule.py", "model", "message/test_inbox.py", "test_simulation.py"),
    *("paper/test_synthetic_functions.py", "paper/test_problems.py", "paper/test_svm.py"),
    *("paper/test_logistic.py", "paper/test_runner.py", "paper/test_run.py"),
)

#: Files below src/, and below each: a part of the paper | what the file says => what replaces it.
MUTATIONS = """
fedbo_paper/preset.py
DIRECT | direct=True, => direct=False,
random point for a repeat | random_repeats=True, => random_repeats=False,
length scale of messages | length_scale=0.01 => length_scale=0.3
noise of messages | noise_variance=1e-6 => noise_variance=1e-2
refit every 5 | refit_every=5 => refit_every=1
first fit | if t > self._first else t => if t > 4 else 0
10 starts of a fit | starts=10 => starts=2
isotropic kernel | ard=False => ard=True
SE kernel | kernel="se" => kernel="matern52"
maximum likelihood | priors=None, =>
no initial points in messages | initial_in_messages=False => initial_in_messages=True
scores as they are | raw_scores=True, => raw_scores=False,
200 fresh features | draw_features=200 => draw_features=20
1,000 evaluations | _EVALUATIONS = 1000 => _EVALUATIONS = 100
random initial points | design="random", => design="sobol",
fedbo_paper/problems/synthetic.py
repeats, listed points | repeats="allow", =>
random point, listed points | random_repeats=True, => random_repeats=False,
noise of the target | noise_variance: float = 0.01 => noise_variance: float = 0.1
functions in [0, 1] | f -= f.min() => f = f.copy()
coin tosses of ±d_n | d_n, -d_n => d_n, 0.0
known kernel | _NEVER = 2**31 => _NEVER = 5
fedbo_paper/experiments/spec.py
exponent of p_t, real data | "paper": 2.0 => "paper": 1.0
t_n = 50 | tuple[int, ...] = 50 => tuple[int, ...] = 40
fedbo_paper/experiments/run.py
growing t_n | trials[initial + t_n :] => trials[initial + t_n + 1 :]
new draws at fixed t_n | kind = _Redrawing if => kind = Agent if
fedbo_paper/experiments/plan.py
equal starts | "initial", seed, target => "initial", arm.method, target
fedbo/simulation.py
messages every k | (iteration - 1) % every => iteration % every
fedbo/policy/base.py
p_1 = p_2 | max(t, 2) => max(t, 1)
fedbo/policy/target.py
exact repeats | if self.repeats or => if
repeats of listed points | None if self.repeats else =>
fedbo/policy/fts.py
β_t = 1 | beta: Beta = 1.0 => beta: Beta = 2.0
line 3: r ≤ p_t | if r <= p_t => if r >= p_t
used once | target.inbox.use(n) => pass
stragglers | self.P_N.get(sender, 0.0) => self.P_N.get(sender, 1.0)
fedbo/model/linear.py
equation 2: σ | np.sqrt(self.sigma2) * deviation => self.sigma2 * deviation
equation 3: σ²I | self._gram + self.sigma2 => self._gram + 2 * self.sigma2
fedbo/model/gp.py
equation 1: noise | hyper.noise_variance => 2 * hyper.noise_variance
fedbo/policy/rgpe.py
RGPE: 100 samples | samples: int = 100 => samples: int = 10
RGPE: 95th percentile | dilution: float | None = 95.0 => dilution: float | None = None
RGPE: ties go to the target | lost = lowest < own => lost = lowest <= own
fedbo/policy/taf.py
TAF: own incumbents | inbox.incumbents[rows] => np.roll(inbox.incumbents, 1)[rows]
TAF: ρ | rho: float = 0.5 => rho: float = 0.9
TAF: share of the target | own_share: float = 0.75 => own_share: float = 0.25
"""


class Mutation(NamedTuple):
    """A part of the paper, where it is, and what replaces its first occurrence there."""

    what: str
    file: str
    old: str
    new: str


def mutations(text: str = MUTATIONS) -> Iterator[Mutation]:
    """Read `MUTATIONS`."""
    file = ""
    for line in text.strip().splitlines():
        what, is_mutation, change = line.partition(" | ")
        if not is_mutation:
            file = line
            continue
        old, _, new = change.partition(" =>")
        yield Mutation(what, file, old, new.strip())


def main(wanted: list[str]) -> int:
    """Make the mutations, print which test found each, and return how many survived."""
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        files = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
        ).stdout.split(b"\0")
        for file in filter(None, files):
            (copy / file.decode()).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file.decode(), copy / file.decode())
        assert not failed(copy), "the tests fail without a mutation"
        for mutation in mutations():
            if wanted and not any(part in mutation.what for part in wanted):
                continue
            path = copy / "src" / mutation.file
            text = path.read_text(encoding="utf-8")
            assert mutation.old in text, f"{mutation.what}: {mutation.file} has no {mutation.old!r}"
            path.write_text(text.replace(mutation.old, mutation.new, 1), encoding="utf-8")
            found = failed(copy)
            path.write_text(text, encoding="utf-8")
            survivors += not found
            print(f"{mutation.what:30} {found or 'SURVIVES'}", flush=True)
    return survivors


def failed(copy: Path) -> str:
    """Return the first test that fails in a copy of the repository, or nothing."""
    tests = [f"tests/{test}" for test in TESTS]
    command = [sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider", "-m", "not slow"]
    done = subprocess.run(
        [*command, *tests],
        cwd=copy,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    if not done.returncode:
        return ""
    names = re.findall(r"^(?:FAILED|ERROR) (?:tests/)?(\S+)", done.stdout, re.M)
    return names[0] if names else done.stdout[-500:] + done.stderr[-500:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
