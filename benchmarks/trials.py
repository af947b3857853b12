"""What speed.py and agents.py share: trials of smooth random functions, and the command line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def smooth_function(rng: np.random.Generator, D: int) -> Callable[[np.ndarray], np.ndarray]:
    """Draw a sum of random cosines, similar to a GP sample; it takes rows of X."""
    frequencies = rng.standard_normal((100, D)) / 0.5
    phases = rng.uniform(0, 2 * np.pi, 100)
    amplitudes = rng.standard_normal(100) / np.sqrt(50)
    return lambda X: np.cos(X @ frequencies.T + phases) @ amplitudes


def smooth_trials(D: int, n: int, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Draw n random points, and evaluate a smooth random function there."""
    rng = np.random.default_rng(D if seed is None else [D, seed])
    X = rng.random((n, D))
    return X, smooth_function(rng, D)(X)


def progress(text: str) -> None:
    """Show what is being measured, in place of the line before."""
    print(f"\r{text:<50}", end="", file=sys.stderr, flush=True)


def command(
    description: str | None, measure: Callable[[], Any], show: Callable[[Any], None]
) -> None:
    """Measure, show the figures, and write them to the file that --json names."""
    first, _, rest = (description or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the figures there")
    given = parser.parse_args()
    result = measure()
    progress("")
    show(result)
    if given.json:
        given.json.write_text(json.dumps(result, indent=2) + "\n")
